"""TFLite's LSTM layers of floats.

Each gate has weights of its own.  If a layer leaves out its input gate, 1 minus
the forget gate replaces it.  A layer may have weights of the memory (peepholes), a projection of
its output, bounds, and normalised gates.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from tilesmith.frontend.common.body import Body
from tilesmith.frontend.common.recurrence import over_time
from tilesmith.frontend.common.slots import Result
from tilesmith.frontend.tflite.activations import FUSED, activated
from tilesmith.frontend.tflite.contractions import product
from tilesmith.frontend.tflite.convolutions import check_floats
from tilesmith.frontend.tflite.node import TfliteNode
from tilesmith.frontend.tflite.registry import tflite_op
from tilesmith.graph.nodes import Value
from tilesmith.ops import activation as act
from tilesmith.ops import functions as fn
from tilesmith.ops import norm, slicing
from tilesmith.ops.base import Op

_EPSILON = 1e-8
"""Constant that TFLite adds to the variances of normalised gates."""


@dataclass(frozen=True, slots=True)
class _Lists:
    """Numbers of the operator's inputs that a direction of a layer reads.

    weights: the first weights of the input; the weights of the state, the peepholes, the biases
        and the projection follow.
    norms: the first weights of normalisation; None if the operator has none.
    aux: the first weights of the auxiliary input; None if the operator has no such input.
    states: the output of the step before, and the memory.
    """

    weights: int
    norms: int | None
    aux: int | None
    states: tuple[int, int]


@dataclass(frozen=True, slots=True, eq=False)
class _Gate:
    """The weights of a gate; None for weights that the layer leaves out.

    own: weights of the input, [cells, inputs].
    aux: weights of the auxiliary input.
    before: weights of the output of the step before, [cells, outputs]; [cells] if diagonal.
    memory, bias, norm: peephole, bias, and scale of the normalisation, [cells].
    """

    own: Value
    before: Value
    aux: Value | None
    memory: Value | None
    bias: Value | None
    norm: Value | None


@dataclass(frozen=True, slots=True)
class _Layer:
    """A direction of a layer.

    gates: input, forget, cell and output gate; only the input gate may be None.
    projection, projection_bias: weights [outputs, cells] and bias [outputs] for the output.
    function: name of the activation of cells.
    cell_clip, projection_clip: bounds on magnitudes; 0 for no bound.
    """

    gates: tuple[_Gate | None, _Gate, _Gate, _Gate]
    projection: Value | None
    projection_bias: Value | None
    function: str
    cell_clip: float
    projection_clip: float


def _read(n: TfliteNode, lists: _Lists) -> _Layer:
    first = lists.weights

    def gate(number: int) -> _Gate | None:
        own, before = n.optional(first + number), n.optional(first + 4 + number)
        if own is None or before is None:
            if number == 0 and own is before:
                return None
            n.bad(f"expected weights of gate {number}, found none")
        # the cell gate has no peephole
        peephole = (first + 8, first + 9, None, first + 10)[number]
        return _Gate(
            own,
            before,
            None if lists.aux is None else n.optional(lists.aux + number),
            None if peephole is None else n.optional(peephole),
            n.optional(first + 11 + number),
            None if lists.norms is None else n.optional(lists.norms + number),
        )

    first_gate, *rest = (gate(i) for i in range(4))
    forget, cell, output = (g for g in rest if g is not None)
    gates = (first_gate, forget, cell, output)
    for g in gates:
        if g is not None:
            check_floats(n, g.own, g.before)
    return _Layer(
        gates,
        n.optional(first + 15),
        n.optional(first + 16),
        n.choice("fused_activation_function", FUSED),
        n.option("cell_clip"),
        n.option("proj_clip"),
    )


def _joined(n: TfliteNode, x: Value, aux: Value | None, layer: _Layer) -> Value:
    """The inputs of all steps times the weights of all gates, [..., gates * cells].  Biases are
    added unless the gates are normalised.
    """
    gates = [g for g in layer.gates if g is not None]
    y = product(n, x, n.add(slicing.Concat(0), *(g.own for g in gates)))
    more = [g.aux for g in gates if g.aux is not None]
    if aux is not None and more:
        if len(more) != len(gates):
            n.bad(f"expected auxiliary weights of {len(gates)} gates, found {len(more)}")
        y = y + product(n, aux, n.add(slicing.Concat(0), *more))
    biases = [g.bias for g in gates if g.norm is None and g.bias is not None]
    if len(biases) == len(gates):
        return y + n.add(slicing.Concat(0), *biases)
    if biases:
        n.unsupported("biases of only some gates")
    return y


def _step(
    n: TfliteNode, layer: _Layer, x: Value, h: Value, c: Value, of: Callable[[Value], Value]
) -> tuple[Value, Value]:
    """The output and the memory after a step.

    x: the products with the inputs, [batch, gates * cells].
    h, c: output and memory before, [batch, outputs] and [batch, cells].
    of: maps a stored value to its value in the builder of `n`.
    """
    gates = [g for g in layer.gates if g is not None]
    cells = n.extent(c, 1)
    if all(g.before.type.rank == 1 for g in gates):
        terms = [h * of(g.before) for g in gates]
    else:
        whole = n.add(slicing.Concat(0), *(of(g.before) for g in gates))
        terms = _parts(n, product(n, h, whole), len(gates), cells)
    sums = dict(zip(gates, zip(_parts(n, x, len(gates), cells), terms, strict=True), strict=True))

    def gate(g: _Gate, memory: Value) -> Value:
        a, b = sums[g]
        y = a + b
        if g.memory is not None:
            y = y + memory * of(g.memory)
        if g.norm is not None:
            operands = [of(v) for v in (g.norm, g.bias) if v is not None]
            y = n.add(norm.LayerNorm(-1, _EPSILON), y, *operands)
        return y

    def sigmoid(y: Value) -> Value:
        return n.add(act.Sigmoid(), y)

    first, forgets, cell, shows = layer.gates
    forget = sigmoid(gate(forgets, c))
    keep = 1.0 - forget if first is None else sigmoid(gate(first, c))
    c = forget * c + keep * activated(n, gate(cell, c), layer.function)
    c = _bounded(c, layer.cell_clip)
    h = sigmoid(gate(shows, c)) * activated(n, c, layer.function)
    if layer.projection is not None:
        h = product(n, h, of(layer.projection))
        if layer.projection_bias is not None:
            h = h + of(layer.projection_bias)
        h = _bounded(h, layer.projection_clip)
    return h, c


def _parts(n: TfliteNode, x: Value, count: int, cells: int) -> Sequence[Value]:
    made = n.add(slicing.Split(1, (cells,) * count), x)
    return made if isinstance(made, tuple) else (made,)


def _bounded(x: Value, bound: float) -> Value:
    return fn.clip(x, -bound, bound) if bound > 0 else x


def _direction(
    n: TfliteNode, x: Value, aux: Value | None, lists: _Lists, backward: bool = False
) -> Value:
    """The outputs of all steps of a direction, [steps, batch, outputs]."""
    layer = _read(n, lists)
    check_floats(n, x)
    h, c = (n.input(i) for i in lists.states)

    def step(
        body: Body, _: Value, x: Value, before: Sequence[Value]
    ) -> tuple[Sequence[Value], Value]:
        after = _step(replace(n, builder=body), layer, x, before[0], before[1], body.capture)
        return after, after[0]

    final, outputs = over_time(n, "lstm", _joined(n, x, aux, layer), (h, c), step, backward)
    for index, value in zip(lists.states, final, strict=True):
        n.keep(index, value)
    return outputs


def steps_first(n: TfliteNode, x: Value, is_time_major: bool) -> Value:
    """Swap batch and steps of [batch, steps, ...] or [steps, batch, ...] unless `is_time_major`."""
    if x.type.rank != 3:
        n.bad(f"expected sequences of 3 axes, found {x.type}")
    return x if is_time_major else x.transpose(1, 0, 2)


@tflite_op("UNIDIRECTIONAL_SEQUENCE_LSTM")
def unidirectional_sequence_lstm(n: TfliteNode) -> Result:
    is_time_major = bool(n.option("time_major"))
    x = steps_first(n, n.input(0), is_time_major)
    lists = _Lists(1, 20, None, (18, 19))
    return steps_first(n, _direction(n, x, None, lists), is_time_major)


@tflite_op("BIDIRECTIONAL_SEQUENCE_LSTM")
def bidirectional_sequence_lstm(n: TfliteNode) -> Result:
    return both_directions(
        n,
        39,
        (40, 44),
        lambda x, aux: _direction(n, x, aux, _Lists(1, None, 40, (35, 36))),
        lambda x, aux: _direction(n, x, aux, _Lists(18, None, 44, (37, 38)), True),
    )


def both_directions(
    n: TfliteNode,
    aux: int,
    aux_weights: tuple[int, int],
    forward: Callable[[Value, Value | None], Value],
    backward: Callable[[Value, Value | None], Value],
    replaces: bool = True,
) -> Result:
    """The outputs of two directions, apart or joined along the last axis.

    aux: number of the auxiliary input.
    aux_weights: number of the first auxiliary weights of each direction.  Those of the first
        gate may be left out.
    replaces: whether the backward direction reads the auxiliary input instead of the main input if
        no direction has auxiliary weights.
    """
    is_time_major = bool(n.option("time_major"))
    x, other = n.input(0), n.optional(aux)
    x = steps_first(n, x, is_time_major)
    behind = x
    if other is not None:
        other = steps_first(n, other, is_time_major)
        if not any(n.optional(w + i) is not None for w in aux_weights for i in (0, 1)):
            behind, other = other if replaces else x, None
    made = [forward(x, other), backward(behind, other)]
    if n.option("merge_outputs"):
        return steps_first(n, n.add(slicing.Concat(2), *made), is_time_major)
    return tuple(steps_first(n, y, is_time_major) for y in made)


@tflite_op("LSTM")
def lstm(n: TfliteNode) -> Result:
    """A step of an LSTM."""
    if n.choice("kernel_type", ("FULL", "BASIC")) == "BASIC":
        return _basic(n)
    layer, h, c = _read(n, _Lists(1, 20, None, (18, 19))), n.input(18), n.input(19)
    x = n.input(0)
    check_floats(n, x)
    h, c = _step(n, layer, _joined(n, x, None, layer), h, c, lambda v: v)
    n.keep(18, h)
    n.keep(19, c)
    return h


def _basic(n: TfliteNode) -> Result:
    """A step whose gates share one matrix of weights for input and output."""
    x, h, w, bias, c = (n.input(i) for i in range(5))
    check_floats(n, x, h, w, bias, c)
    both = n.add(slicing.Concat(1), x, h)
    sums = product(n, both, w) + bias
    first, cell, forget, shows = _parts(n, sums, 4, n.extent(c, 1))
    sigmoid: Op = act.Sigmoid()
    c = n.add(sigmoid, first) * fn.tanh(cell) + n.add(sigmoid, forget) * c
    return n.add(sigmoid, shows) * fn.tanh(c), c, both, sums
