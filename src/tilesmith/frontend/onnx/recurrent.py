"""ONNX's recurrent layers (RNN, GRU, LSTM) as loops over time.

One matrix product multiplies the inputs of all steps by their weights.  Each step then multiplies
only its state.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

from tilesmith.frontend.common.body import Body
from tilesmith.frontend.common.recurrence import over_time
from tilesmith.frontend.common.slots import Result
from tilesmith.frontend.onnx.node import OnnxNode
from tilesmith.frontend.onnx.registry import onnx_op
from tilesmith.graph.control import INDEX
from tilesmith.graph.nodes import Value
from tilesmith.ir.extents import difference
from tilesmith.ir.types import Dim, same_dim
from tilesmith.ops import activation as act
from tilesmith.ops import elementwise as ew
from tilesmith.ops import functions as fn
from tilesmith.ops import matmul as mm
from tilesmith.ops import rules, shape, slicing
from tilesmith.ops.sizes import Extents

Function: TypeAlias = Callable[[Value], Value]
Activation: TypeAlias = tuple[str, float, float]
"""The name of an activation function, and its parameters alpha and beta."""

_GATES = {"RNN": 1, "GRU": 3, "LSTM": 4}
_DEFAULTS = {"RNN": ("Tanh",), "GRU": ("Sigmoid", "Tanh"), "LSTM": ("Sigmoid", "Tanh", "Tanh")}
# Default (alpha, beta) by name, where the specification has defaults.
_PARAMETERS = {
    "Affine": (1.0, 0.0),
    "LeakyRelu": (0.01, 0.0),
    "ThresholdedRelu": (1.0, 0.0),
    "ScaledTanh": (1.0, 1.0),
    "HardSigmoid": (0.2, 0.5),
    "Elu": (1.0, 0.0),
}


def _activation(n: OnnxNode, name: str, alpha: float, beta: float) -> Function:
    simple = {
        "Sigmoid": act.Sigmoid(),
        "Tanh": ew.Tanh(),
        "Relu": act.Relu(),
        "Softsign": act.Softsign(),
        "Softplus": act.Softplus(),
        "LeakyRelu": act.LeakyRelu(alpha),
        "Elu": act.Elu(alpha),
        "ThresholdedRelu": act.ThresholdedRelu(alpha),
        "HardSigmoid": act.HardSigmoid(alpha, beta),
    }
    if name in simple:
        return lambda x: n.add(simple[name], x)
    if name == "Affine":
        return lambda x: x * alpha + beta
    if name == "ScaledTanh":
        return lambda x: fn.tanh(x * beta) * alpha
    return n.unsupported(f"activation {name!r}")


@dataclass(frozen=True, slots=True)
class _Layer:
    """The properties that the directions of a layer share.

    kind: RNN, GRU or LSTM.
    clip: bound of the inputs of activations.
    linear_first: whether a GRU multiplies by its weights before it resets.
    coupled: whether an LSTM's input and forget gates are coupled.
    lengths: lengths of the sequences in a batch.
    hidden: size of a state.
    """

    kind: str
    clip: float | None
    linear_first: bool
    coupled: bool
    lengths: Value | None
    hidden: int


@dataclass(frozen=True, slots=True)
class Weights:
    """The weights of one direction's inputs or states, [columns, gates * hidden].

    parts: the values that hold the weights.
    times: computes the product of rows with these parts.
    """

    parts: tuple[Value, ...]
    times: Callable[[OnnxNode, Value, Sequence[Value]], Value]

    def product(self, n: OnnxNode, rows: Value) -> Value:
        """Rows [..., columns] times these weights."""
        return self.times(n, rows, self.parts)

    def inside(self, body: Body) -> Weights:
        """The weights as a loop's body sees them."""
        return replace(self, parts=tuple(map(body.capture, self.parts)))


WeightsOf: TypeAlias = Callable[[int, int], Weights]
"""Maps 0 (inputs) or 1 (states) and the number of a direction to the weights."""


def _times_rows(n: OnnxNode, x: Value, parts: Sequence[Value]) -> Value:
    """x times the transpose of parts [gates * hidden, columns]."""
    return n.add(mm.MatMul(transpose_b=True), x, *parts)


@dataclass(frozen=True, slots=True)
class _Cell:
    """The weights of one direction.

    recurrent: weights of the state.
    bias: bias of the product with the state, [gates * hidden]; None if it is already added to the
        products of the inputs.
    peephole: peephole weights, [3 * hidden].
    functions: names and parameters of the activations.
    """

    recurrent: Weights
    bias: Value | None
    peephole: Value | None
    functions: Sequence[Activation]

    def inside(self, body: Body) -> _Cell:
        """The cell as a loop's body sees it."""
        bias, peephole = (
            None if v is None else body.capture(v) for v in (self.bias, self.peephole)
        )
        return replace(self, recurrent=self.recurrent.inside(body), bias=bias, peephole=peephole)


@onnx_op("RNN", "GRU", "LSTM", since=1)
def recurrent(n: OnnxNode) -> Result:
    stored = n.input(1), n.input(2)
    return layer(n, lambda at, d: Weights((pick(n, stored[at], d),), _times_rows))


def layer(n: OnnxNode, weights: WeightsOf) -> Result:
    """Import a recurrent layer.  `weights` reads W and R, [directions, gates * hidden, columns]."""
    kind = n.op_type
    if n.version < 7:
        # The attribute says whether the node has output Y.  The list of outputs also shows that.
        n.ignore("output_sequence")
    x, w, r, bias = n.input(0), n.input(1), n.input(2), n.optional(3)
    lengths, h0 = n.optional(4), n.optional(5)
    c0, peepholes = (n.optional(6), n.optional(7)) if kind == "LSTM" else (None, None)
    direction = n.attr_string("direction", "forward", among=("forward", "reverse", "bidirectional"))
    count = 2 if direction == "bidirectional" else 1
    batch_first = n.attr_flag("layout") if n.version >= 14 else False
    if batch_first:
        x = x.transpose(1, 0, 2)
        h0, c0 = (None if s is None else s.transpose(1, 0, 2) for s in (h0, c0))
    if x.type.rank != 3 or w.type.rank != 3 or r.type.rank != 3:
        n.bad(f"expected X, W and R of rank 3, found {x.type}, {w.type} and {r.type}")
    batch = x.type.shape[1]
    steps, width = x.type.shape[0], rules.static(n.op_type, x.type.shape[2], "an extent of X")
    hidden, gates = n.extent(r, 2), _GATES[kind]
    if n.has("hidden_size") and n.attr_int("hidden_size") != hidden:
        n.bad(
            f"attribute 'hidden_size': expected {hidden} as R has, found "
            f"{n.attr_int('hidden_size')}"
        )
    w_shape, r_shape = ((count, gates * hidden, columns) for columns in (width, hidden))
    if n.shape(w) != w_shape or n.shape(r) != r_shape:
        n.bad(f"expected W {w_shape} and R {r_shape}, found {w.type} and {r.type}")
    sizes = (2 * gates * hidden, hidden, hidden, 3 * hidden)
    for name, v, size in zip(("B", "h", "c", "P"), (bias, h0, c0, peepholes), sizes, strict=True):
        fits = (count, batch, hidden) if name in ("h", "c") else (count, size)
        if v is not None and not rules.equal_shapes(kind, v.type.shape, fits):
            n.bad(f"{name}: expected shape {list(fits)}, found {v.type}")
    if lengths is not None and not rules.equal_shapes(kind, lengths.type.shape, (batch,)):
        n.bad(f"sequence_lens: expected [{batch}], found {lengths.type}")
    common = _Layer(
        kind,
        n.attr_float("clip") if n.has("clip") else None,
        n.attr_flag("linear_before_reset") if kind == "GRU" else False,
        n.attr_flag("input_forget") if kind == "LSTM" else False,
        lengths,
        hidden,
    )
    functions = _functions(n, count)
    zero = n.const(0, x.dtype).expand(batch, hidden)
    outputs: list[Value] = []
    finals: list[tuple[Value, ...]] = []
    for d in range(count):
        b, h, c, p = (None if v is None else pick(n, v, d) for v in (bias, h0, c0, peepholes))
        recurrent_bias = None
        projected = weights(0, d).product(n, x)
        if b is not None:
            b_w, recurrent_bias = n.add(slicing.Split(0, (gates * hidden, gates * hidden)), b)
            if not common.linear_first:
                b_w, recurrent_bias = b_w + recurrent_bias, None
            projected = projected + b_w
        cell = _Cell(weights(1, d), recurrent_bias, p, functions[d])
        state = (h or zero, c or zero) if kind == "LSTM" else (h or zero,)
        *final, collected = _over_time(
            n, common, cell, (projected, steps), state, direction == "reverse" or d == 1
        )
        outputs.append(collected)
        finals.append(tuple(final))
    return _results(n, outputs, finals, batch_first)


def _over_time(
    n: OnnxNode,
    layer: _Layer,
    cell: _Cell,
    inputs: tuple[Value, Dim],
    state: Sequence[Value],
    backward: bool,
) -> tuple[Value, ...]:
    """The final state, and the outputs of all steps, [steps, batch, hidden].

    inputs: the inputs times weights plus biases, [steps, batch, gates * hidden], and the number of
        steps.
    """
    projected, steps = inputs
    batch = projected.type.shape[1]

    def step(
        body: Body, number: Value, x: Value, before: Sequence[Value]
    ) -> tuple[Sequence[Value], Value]:
        inner = replace(n, builder=body)
        after = _step(inner, layer, cell.inside(body), x, before)
        if layer.lengths is None:
            return after, after[0]
        # Beyond a sequence's end the state stays and the output is zero.
        lengths = body.capture(layer.lengths)
        if backward:
            last = inner.add(Extents((difference(steps, 1),), (), INDEX.dtype))
            number = inner.add(ew.Sub(), last, number)
        live = inner.add(ew.Less(), inner.add(ew.Cast(lengths.dtype), number), lengths)
        live = inner.reshape(live, (batch, 1))
        shown = inner.add(ew.Where(), live, after[0], inner.const(0, after[0].dtype))
        pairs = zip(after, before, strict=True)
        return [inner.add(ew.Where(), live, new, old) for new, old in pairs], shown

    final, collected = over_time(n, layer.kind, projected, state, step, backward)
    return (*final, collected)


def pick(n: OnnxNode, v: Value, d: int) -> Value:
    """Direction number `d` of a tensor whose first axis is the directions."""
    rest = v.type.shape[1:]
    if same_dim(v.type.shape[0], 1):
        return n.reshape(v, rest)
    return n.reshape(n.add(slicing.Slice((d,), (d + 1,), (0,), (1,)), v), rest)


def _functions(n: OnnxNode, count: int) -> list[list[Activation]]:
    per = len(_DEFAULTS[n.op_type])
    names = n.attr_strings("activations") or _DEFAULTS[n.op_type] * count
    if len(names) != per * count:
        n.bad(f"attribute 'activations': expected {per * count} names, found {list(names)}")
    alphas, betas = (
        list(n.attr_floats("activation_alpha") or ()),
        list(n.attr_floats("activation_beta") or ()),
    )
    made: list[Activation] = []
    for name in names:
        known = {
            k.lower(): k for k in (*_PARAMETERS, "Sigmoid", "Tanh", "Relu", "Softsign", "Softplus")
        }
        name = known.get(name.lower(), name)
        alpha, beta = _PARAMETERS.get(name, (1.0, 0.0))
        # The list of parameters has entries only for functions that use them.
        if name in _PARAMETERS:
            alpha = alphas.pop(0) if alphas else alpha
            if name in ("Affine", "ScaledTanh", "HardSigmoid"):
                beta = betas.pop(0) if betas else beta
        made.append((name, alpha, beta))
    return [made[d * per : (d + 1) * per] for d in range(count)]


def _step(n: OnnxNode, layer: _Layer, cell: _Cell, x: Value, state: Sequence[Value]) -> list[Value]:
    """The state after a step whose projected input is `x`, [batch, gates * hidden]."""
    kind, clip, before = layer.kind, layer.clip, state[0]
    parts = (layer.hidden,) * _GATES[kind]
    functions = [_activation(n, *f) for f in cell.functions]

    def limit(v: Value) -> Value:
        return v if clip is None else fn.clip(v, -clip, clip)

    def add(*terms: Value | None) -> Value:
        present = [v for v in terms if v is not None]
        total = present[0]
        for v in present[1:]:
            total = total + v
        return total

    def mul(a: Value, b: Value) -> Value:
        return a * b

    product = cell.recurrent.product(n, before)
    if cell.bias is not None:
        product = add(product, cell.bias)
    if kind == "RNN":
        return [functions[0](limit(add(x, product)))]
    one = n.const(1, x.dtype)
    if kind == "GRU":
        f, g = functions
        xs, hs = n.add(slicing.Split(1, parts), x), n.add(slicing.Split(1, parts), product)
        z, r = f(limit(add(xs[0], hs[0]))), f(limit(add(xs[1], hs[1])))
        if layer.linear_first:
            candidate = add(xs[2], mul(r, hs[2]))
        else:
            own = n.add(slicing.Split(0, parts), *cell.recurrent.parts)[2]
            candidate = add(xs[2], n.add(mm.MatMul(transpose_b=True), mul(r, before), own))
        candidate = g(limit(candidate))
        return [add(mul(one - z, candidate), mul(z, before))]
    memory = state[1]
    f, g, h = functions
    i, o, forget, c = n.add(slicing.Split(1, parts), add(x, product))
    peep = None if cell.peephole is None else n.add(slicing.Split(0, parts[:3]), cell.peephole)
    i = f(limit(i if peep is None else add(i, mul(peep[0], memory))))
    if layer.coupled:
        forget = one - i
    else:
        forget = f(limit(forget if peep is None else add(forget, mul(peep[2], memory))))
    following = add(mul(forget, memory), mul(i, g(limit(c))))
    o = f(limit(o if peep is None else add(o, mul(peep[1], following))))
    return [mul(o, h(following)), following]


def _results(
    n: OnnxNode, outputs: list[Value], finals: list[tuple[Value, ...]], batch_first: bool
) -> Result:
    """Y [steps, directions, batch, hidden], Y_h and (LSTM) Y_c [directions, batch, hidden]."""
    per_direction = [n.add(shape.Unsqueeze((1,)), v) for v in outputs]
    y = per_direction[0] if len(per_direction) == 1 else n.add(slicing.Concat(1), *per_direction)
    last = []
    for states in zip(*finals, strict=True):
        parts = [n.add(shape.Unsqueeze((0,)), v) for v in states]
        last.append(parts[0] if len(parts) == 1 else n.add(slicing.Concat(0), *parts))
    if batch_first:
        y = y.transpose(2, 0, 1, 3)
        last = [v.transpose(1, 0, 2) for v in last]
    return (y, *last)
