"""Recurrent layers: LSTM, GRU and RNN as loops over time.

One matrix product multiplies the inputs of all steps by their weights, so that a step multiplies
only its state.  Gates stand side by side, in PyTorch's order: input, forget, cell, output (LSTM),
reset, update, new (GRU).

The backend of `torch.compile` uses `tilesmith.recurrence` and `tilesmith.recurrence_backward` for a
layer's steps (`tilesmith.engines.torch.recurrent`).  In programs of `torch.export`, whole stacks of
layers are calls such as `aten.lstm.input`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TypeVar

from tilesmith.frontend.aten.node import AtenNode
from tilesmith.frontend.aten.random_numbers import dropped
from tilesmith.frontend.aten.registry import aten_op
from tilesmith.frontend.common.body import Body
from tilesmith.frontend.common.node import NodeContext
from tilesmith.graph.control import INDEX, Loop
from tilesmith.graph.nodes import Value
from tilesmith.ir.types import TensorType
from tilesmith.ops import activation as act
from tilesmith.ops import elementwise as ew
from tilesmith.ops import matmul as mm
from tilesmith.ops import shape, slicing
from tilesmith.ops.functions import tanh, where

T = TypeVar("T")

GATES = {"lstm": 4, "gru": 3, "rnn_tanh": 1, "rnn_relu": 1}
"""The number of gates of a kind of layer."""


@aten_op("tilesmith.recurrence.default")
def recurrence(
    n: NodeContext,
    kind: str,
    x: Value,
    state: Sequence[Value],
    weight: Value,
    bias: Value | None,
    projection: Value | None,
    reverse: bool,
    keep: bool,
) -> list[Value]:
    """The steps of one direction of a layer.

    x: the inputs times their weights plus biases, [steps, batch, gates * hidden].
    state: the state before the first step: [batch, hidden] (LSTM with a projection: [batch,
        projected]), and the cell of an LSTM, [batch, hidden].
    weight: weights of the state, [gates * hidden, hidden or projected].
    bias: bias of a GRU's product with the state, [3 * hidden]; other layers have it in `x`.
    projection: [projected, hidden].
    reverse: whether the last step comes first.
    keep: whether to return results for `recurrence_backward`, too.

    Returns the outputs of all steps, [steps, batch, hidden or projected], and the state after the
    last step.  With `keep`, also the gates of each step, [steps, batch, gates * hidden], and an
    LSTM's cells, [steps, batch, hidden].  A GRU's gates include the product with the state that the
    reset gate multiplies.
    """
    body, inner, (*before, xt) = _body(n, kind, [v.type for v in state], [x])
    others = (None if v is None else body.capture(v) for v in (bias, projection))
    after, kept = _forward(inner, kind, xt, before, body.capture(weight), *others)
    collected = [after[0], *kept] if keep else [after[0]]
    results = _loop(n, body, (state, after), [x], collected, reverse)
    return [results[len(state)], *results[: len(state)], *results[len(state) + 1 :]]


@aten_op("tilesmith.recurrence_backward.default")
def recurrence_backward(
    n: AtenNode,
    kind: str,
    shown: Value,
    state: Sequence[Value],
    kept: Sequence[Value],
    weight: Value,
    reverse: bool,
) -> list[Value]:
    """The gradient of `recurrence` without a projection.  `reverse` is the same as in the forward
    call.

    shown: the gradient of the outputs of all steps, [steps, batch, hidden].
    state: the gradients of the state after the last step, each [batch, hidden].
    kept: for an RNN, the outputs of all steps.  Otherwise two tensors: the gates that `recurrence`
        returns, and before each step the cell of an LSTM or the state of a GRU, [steps, batch,
        hidden].
    weight: weight of the state.

    Returns the gradients of `x`, [steps, batch, gates * hidden], of the product with the state
    (only for a GRU; for other layers it equals the gradient of `x`), and of the state before the
    first step.
    """
    body, inner, inputs = _body(n, kind, [v.type for v in state], [shown, *kept])
    grads, (dy, *saved) = inputs[: len(state)], inputs[len(state) :]
    grads = [inner.add(ew.Add(), grads[0], dy), *grads[1:]]
    products, rest = _backward(inner, kind, grads, saved)
    through = inner.add(mm.MatMul(), products[-1], body.capture(weight))
    if rest is None:
        after = [through]
    elif kind == "gru":
        after = [inner.add(ew.Add(), through, rest)]
    else:
        after = [through, rest]
    results = _loop(n, body, (state, after), [shown, *kept], products, not reverse)
    return [*results[len(state) :], *results[: len(state)]]


def _body(
    n: NodeContext, kind: str, state: Sequence[TensorType], sliced: Sequence[Value]
) -> tuple[Body, NodeContext, list[Value]]:
    """A loop body over time: its builder, a node in it, and its inputs.  The inputs are the state
    and an element of each of `sliced`.
    """
    body = Body(n.builder, kind)
    elements = [TensorType(v.dtype, v.type.shape[1:]) for v in sliced]
    _, *inputs = body.given([INDEX, *state, *elements])
    return body, replace(n, builder=body), inputs


def _loop(
    n: NodeContext,
    body: Body,
    states: tuple[Sequence[Value], Sequence[Value]],
    sliced: Sequence[Value],
    collected: Sequence[Value],
    reverse: bool,
) -> tuple[Value, ...]:
    """The state after the last step, and the `collected` values of all steps.

    states: the state before the first step, in the enclosing graph, and the state after a step, in
        the body.
    """
    before, after = states
    way = -1 if reverse else 1
    results = [*after, *collected]
    graph = body.finish(results, [f"out{i}" for i in range(len(results))])
    steps = sliced[0].type.shape[0]
    op = Loop(graph, len(before), (way,) * len(sliced), (way,) * len(collected), steps)
    return n.add(op, *before, *sliced, *body.captured)


def _forward(
    n: NodeContext,
    kind: str,
    x: Value,
    state: Sequence[Value],
    weight: Value,
    bias: Value | None,
    projection: Value | None,
) -> tuple[list[Value], list[Value]]:
    """The state after a step, and the values that its gradient needs."""
    product = n.add(mm.MatMul(transpose_b=True), state[0], weight)
    if bias is not None:
        product = product + bias
    if kind == "gru":
        r, z, new = _split(n, x, 3)
        hr, hz, hn = _split(n, product, 3)
        r = n.add(act.Sigmoid(), r + hr)
        z = n.add(act.Sigmoid(), z + hz)
        new = tanh(new + r * hn)
        change = z * (state[0] - new)
        return [new + change], [_joined(n, r, z, new, hn)]
    total = x + product
    if kind != "lstm":
        return [n.add(act.Relu(), total) if kind == "rnn_relu" else tanh(total)], []
    i, f, g, o = _split(n, total, 4)
    i, f, o = (n.add(act.Sigmoid(), v) for v in (i, f, o))
    g = tanh(g)
    cell = f * state[1] + i * g
    shown = o * tanh(cell)
    if projection is not None:
        shown = n.add(mm.MatMul(transpose_b=True), shown, projection)
    return [shown, cell], [_joined(n, i, f, g, o), cell]


def _backward(
    n: NodeContext, kind: str, grads: Sequence[Value], kept: Sequence[Value]
) -> tuple[list[Value], Value | None]:
    """Gradients of one step.

    The first result is a list: the gradient of `x`, and for a GRU also the gradient of the product
    with the state.  For other layers both gradients are equal.  The second result is a part of the
    gradient of an LSTM's cell or a GRU's state: the part that does not pass through that product.
    It is None for an RNN.
    """

    def mul(a: Value, *others: Value) -> Value:
        for b in others:
            a = a * b
        return a

    def slope(y: Value, *, of_tanh: bool) -> Value:
        """The slope of tanh or of the logistic function at the point where its value is `y`."""
        one = n.const(1, y.dtype)
        if of_tanh:
            return one - mul(y, y)
        return mul(y, one - y)

    dh = grads[0]
    if kind == "rnn_relu":
        zero = n.const(0, dh.dtype)
        return [where(kept[0] > zero, dh, zero)], None
    if kind == "rnn_tanh":
        return [mul(dh, slope(kept[0], of_tanh=True))], None
    gates, before = kept
    if kind == "gru":
        r, z, new, hn = _split(n, gates, 4)
        d_new = mul(dh, 1 - z, slope(new, of_tanh=True))
        d_z = mul(dh, before - new, slope(z, of_tanh=False))
        d_r = mul(d_new, hn, slope(r, of_tanh=False))
        own = _joined(n, d_r, d_z, d_new)
        return [own, _joined(n, d_r, d_z, mul(d_new, r))], mul(dh, z)
    i, f, g, o = _split(n, gates, 4)
    out = tanh(mul(f, before) + mul(i, g))
    d_cell = grads[1] + mul(dh, o, slope(out, of_tanh=True))
    d_gates = _joined(
        n,
        mul(d_cell, g, slope(i, of_tanh=False)),
        mul(d_cell, before, slope(f, of_tanh=False)),
        mul(d_cell, i, slope(g, of_tanh=True)),
        mul(dh, out, slope(o, of_tanh=False)),
    )
    return [d_gates], mul(d_cell, f)


def _split(n: NodeContext, gates: Value, count: int) -> tuple[Value, ...]:
    width = n.extent(gates, 1) // count
    return n.add(slicing.Split(1, (width,) * count), gates)


def _joined(n: NodeContext, *gates: Value) -> Value:
    return n.add(slicing.Concat(1), *gates)


@aten_op("aten.lstm.input")
def lstm(
    n: AtenNode,
    input: Value,
    hx: Sequence[Value],
    params: Sequence[Value],
    has_biases: bool,
    num_layers: int,
    dropout: float,
    train: bool,
    bidirectional: bool,
    batch_first: bool,
) -> tuple[Value, ...]:
    del num_layers  # the number of `params` and the state determine it
    between = _between(n, dropout, train)
    return stack_over_time(
        n, "lstm", input, hx, params, has_biases, bidirectional, batch_first, between
    )


@aten_op("aten.gru.input", "aten.rnn_tanh.input", "aten.rnn_relu.input")
def simple(
    n: AtenNode,
    input: Value,
    hx: Value,
    params: Sequence[Value],
    has_biases: bool,
    num_layers: int,
    dropout: float,
    train: bool,
    bidirectional: bool,
    batch_first: bool,
) -> tuple[Value, ...]:
    del num_layers
    between, kind = _between(n, dropout, train), n.target.split(".")[1]
    return stack_over_time(
        n, kind, input, [hx], params, has_biases, bidirectional, batch_first, between
    )


def _between(n: AtenNode, dropout: float, train: bool) -> Callable[[Value], Value]:
    """A function from the results of a layer to the input of the next layer."""
    return lambda x: dropped(n, x, dropout) if dropout and train else x


def stack_over_time(
    n: NodeContext,
    kind: str,
    x: Value,
    state: Sequence[Value],
    params: Sequence[Value],
    has_biases: bool,
    bidirectional: bool,
    batch_first: bool,
    between: Callable[[Value], Value] = lambda x: x,
) -> tuple[Value, ...]:
    """The outputs of a stack's last layer, and the state of all layers after the last step.  The
    state has the form of the initial one, [layers * directions, batch, hidden].

    between: maps the results of a layer to the input of the next layer.
    """
    if batch_first:
        x = x.transpose(1, 0, 2)
    directions = 2 if bidirectional else 1
    count = n.extent(state[0], 0)
    per = len(params) // count
    finals: list[list[Value]] = []
    for layer in range(count // directions):
        shown = []
        for d in range(directions):
            position = layer * directions + d
            own = [_row(n, s, position) for s in state]
            w, r, biases, hr = direction_of(params, position, per, has_biases)
            projected = n.add(mm.MatMul(transpose_b=True), x, w)
            late = kind == "gru" and bool(biases)
            for b in biases[:1] if late else biases:
                projected = projected + b
            bias = biases[1] if late else None
            y, *after = recurrence(n, kind, projected, own, r, bias, hr, d == 1, False)
            shown.append(y)
            finals.append(after)
        x = shown[0] if len(shown) == 1 else n.add(slicing.Concat(2), *shown)
        if layer + 1 < count // directions:
            x = between(x)
    if batch_first:
        x = x.transpose(1, 0, 2)
    return (x, *(_stacked(n, states) for states in zip(*finals, strict=True)))


def direction_of(
    params: Sequence[T], number: int, per: int, has_biases: bool
) -> tuple[T, T, Sequence[T], T | None]:
    """The weights of the inputs, the weights of the state, the biases and the projection of one
    direction of a layer.

    number: the direction's position, counted through all layers.
    per: the number of `params` of each direction.
    """
    w, r, *others = params[number * per : (number + 1) * per]
    biases, projection = (others[:2], others[2:]) if has_biases else ([], others)
    return w, r, biases, projection[0] if projection else None


def _row(n: NodeContext, v: Value, at: int) -> Value:
    return n.reshape(n.add(slicing.Slice((at,), (at + 1,), (0,), (1,)), v), v.type.shape[1:])


def _stacked(n: NodeContext, states: Sequence[Value]) -> Value:
    parts = [n.add(shape.Unsqueeze((0,)), v) for v in states]
    return parts[0] if len(parts) == 1 else n.add(slicing.Concat(0), *parts)


@aten_op("aten.lstm_cell.default")
def lstm_cell(
    n: AtenNode,
    input: Value,
    hx: Sequence[Value],
    w_ih: Value,
    w_hh: Value,
    b_ih: Value | None = None,
    b_hh: Value | None = None,
) -> tuple[Value, ...]:
    return tuple(_cell(n, "lstm", input, hx, w_ih, w_hh, b_ih, b_hh))


@aten_op("aten.gru_cell.default", "aten.rnn_tanh_cell.default", "aten.rnn_relu_cell.default")
def simple_cell(
    n: AtenNode,
    input: Value,
    hx: Value,
    w_ih: Value,
    w_hh: Value,
    b_ih: Value | None = None,
    b_hh: Value | None = None,
) -> Value:
    kind = n.target.split(".")[1].removesuffix("_cell")
    return _cell(n, kind, input, [hx], w_ih, w_hh, b_ih, b_hh)[0]


def _cell(
    n: AtenNode,
    kind: str,
    x: Value,
    state: Sequence[Value],
    w: Value,
    r: Value,
    *biases: Value | None,
) -> list[Value]:
    """The state after a step whose input is `x`, [batch, width]."""
    projected = n.add(mm.MatMul(transpose_b=True), x, w)
    if biases[0] is not None:
        projected = projected + biases[0]
    return _forward(n, kind, projected, state, r, biases[1], None)[0]
