"""The cells of recurrent layers (RNN, GRU, LSTM), and their loops over time.

One matrix product multiplies the inputs of all steps by their weights.  Each step then multiplies
only its state.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

from tilesmith.frontend.common.body import Body
from tilesmith.frontend.common.node import NodeContext
from tilesmith.frontend.common.recurrence import over_time
from tilesmith.graph.control import INDEX
from tilesmith.graph.nodes import Value
from tilesmith.ir.extents import difference
from tilesmith.ir.types import Dim, same_dim
from tilesmith.ops import activation as act
from tilesmith.ops import elementwise as ew
from tilesmith.ops import functions as fn
from tilesmith.ops import matmul as mm
from tilesmith.ops import slicing
from tilesmith.ops.sizes import Extents

Function: TypeAlias = Callable[[Value], Value]
Activation: TypeAlias = tuple[str, float, float]
"""The name of an activation function, and its parameters alpha and beta."""

GATES = {"RNN": 1, "GRU": 3, "LSTM": 4}
"""Number of gates by kind of layer."""


def _activation(n: NodeContext, name: str, alpha: float, beta: float) -> Function:
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
class Recurrence:
    """The properties that the directions of a recurrent layer share.

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
    times: Callable[[NodeContext, Value, Sequence[Value]], Value]

    def product(self, n: NodeContext, rows: Value) -> Value:
        """Rows [..., columns] times these weights."""
        return self.times(n, rows, self.parts)

    def inside(self, body: Body) -> Weights:
        """The weights as a loop's body sees them."""
        return replace(self, parts=tuple(map(body.capture, self.parts)))


def times_rows(n: NodeContext, x: Value, parts: Sequence[Value]) -> Value:
    """x times the transpose of parts [gates * hidden, columns]."""
    return n.add(mm.MatMul(transpose_b=True), x, *parts)


@dataclass(frozen=True, slots=True)
class Cell:
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

    def inside(self, body: Body) -> Cell:
        """The cell as a loop's body sees it."""
        bias, peephole = (
            None if v is None else body.capture(v) for v in (self.bias, self.peephole)
        )
        return replace(self, recurrent=self.recurrent.inside(body), bias=bias, peephole=peephole)


def pick(n: NodeContext, v: Value, d: int) -> Value:
    """Direction number `d` of a tensor whose first axis is the directions."""
    rest = v.type.shape[1:]
    if same_dim(v.type.shape[0], 1):
        return n.reshape(v, rest)
    return n.reshape(n.add(slicing.Slice((d,), (d + 1,), (0,), (1,)), v), rest)


def cell_over_time(
    n: NodeContext,
    layer: Recurrence,
    cell: Cell,
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

    def one(
        body: Body, number: Value, x: Value, before: Sequence[Value]
    ) -> tuple[Sequence[Value], Value]:
        inner = replace(n, builder=body)
        after = step(inner, layer, cell.inside(body), x, before)
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

    final, collected = over_time(n, layer.kind, projected, state, one, backward)
    return (*final, collected)


def step(
    n: NodeContext, layer: Recurrence, cell: Cell, x: Value, state: Sequence[Value]
) -> list[Value]:
    """The state after a step whose projected input is `x`, [batch, gates * hidden]."""
    kind, clip, before = layer.kind, layer.clip, state[0]
    parts = (layer.hidden,) * GATES[kind]
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
