"""OpenVINO's recurrent layers: single steps, and sequences [batch, steps, width]."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from tilesmith.frontend.common.cells import (
    GATES,
    Activation,
    Cell,
    Recurrence,
    Weights,
    cell_over_time,
    pick,
    step,
    times_rows,
)
from tilesmith.frontend.common.networks import LayerNode
from tilesmith.frontend.common.slots import Result
from tilesmith.frontend.openvino.elements import openvino_layer
from tilesmith.graph.nodes import Value
from tilesmith.ir.dtypes import i64
from tilesmith.ir.types import same_dim
from tilesmith.ops import gather, shape, slicing

_ORDERS = {"RNN": (0,), "GRU": (0, 1, 2), "LSTM": (1, 3, 0, 2)}
"""For each gate of ONNX, the place of OpenVINO's."""
_DEFAULTS = {"RNN": "tanh", "GRU": "sigmoid,tanh", "LSTM": "sigmoid,tanh,tanh"}
_FUNCTIONS = {"sigmoid": "Sigmoid", "tanh": "Tanh", "relu": "Relu"}


class _Stored(NamedTuple):
    """Weights of all directions, with ONNX's order of gates.

    inputs, states: [directions, gates * hidden, columns].
    early: biases of the inputs' products, [directions, gates * hidden].
    late: biases of the states' products, for a GRU whose weights come before its reset.
    """

    inputs: Value
    states: Value
    early: Value | None
    late: Value | None


def _form(n: LayerNode, kind: str, lengths: Value | None) -> Recurrence:
    if n.attr_flag("input_forget", False) or n.attr_string("weights_format", "fico") != "fico":
        n.unsupported("coupled gates, and gates in another order than forget, input, cell, output")
    clip = n.attr_float("clip", 0)
    if not clip >= 0:
        n.bad(f"clip: expected a number from 0, found {clip}")
    linear = kind == "GRU" and n.attr_flag("linear_before_reset", False)
    return Recurrence(kind, clip or None, linear, False, lengths, n.attr_int("hidden_size", low=1))


def _functions(n: LayerNode, kind: str) -> list[Activation]:
    names = [name.strip() for name in n.attr_string("activations", _DEFAULTS[kind]).split(",")]
    wanted = _DEFAULTS[kind].count(",") + 1
    if len(names) != wanted:
        n.bad(f"activations: expected {wanted} names, found {names}")
    for name in names:
        if name not in _FUNCTIONS:
            n.unsupported(f"activation {name!r}")
    return [(_FUNCTIONS[name], 1.0, 0.0) for name in names]


def _ordered(n: LayerNode, v: Value, form: Recurrence) -> Value:
    """Gates [directions, gates * hidden, ...] in ONNX's order."""
    order = _ORDERS[form.kind]
    if order == tuple(range(len(order))):
        return v
    ways, _, *rest = v.type.shape
    apart = n.reshape(v, (ways, len(order), form.hidden, *rest))
    return n.reshape(n.add(gather.Gather(1), apart, n.const(order, i64)), v.type.shape)


def _stored(n: LayerNode, form: Recurrence, at: int, is_cell: bool) -> _Stored:
    """The weights, from input number `at` on.  Those of a cell have no axis of directions."""
    if len(n.slots) > at + 3:
        n.unsupported("peepholes")
    values = [n.optional(at + i) for i in range(3)]
    if is_cell:
        values = [None if v is None else n.add(shape.Unsqueeze((0,)), v) for v in values]
    w, r, b = values
    rows = GATES[form.kind] * form.hidden
    if w is None or r is None or {w.type.rank, r.type.rank} != {3}:
        return n.bad("expected weights of inputs and of states")
    ways, columns = n.shape(w)[0], n.shape(w)[2]
    if n.shape(w) != (ways, rows, columns) or n.shape(r) != (ways, rows, form.hidden):
        n.bad(f"expected {rows} rows of weights, found {w.type} and {r.type}")
    late = None
    if b is not None:
        wide = rows + form.hidden if form.linear_first else rows
        if n.shape(b) != (ways, wide):
            n.bad(f"expected biases {[ways, wide]}, found {b.type}")
        if form.linear_first:
            b, own = n.add(slicing.Split(1, (rows, form.hidden)), b)
            none = n.const(np.zeros((ways, 2 * form.hidden)), w.dtype)
            late = n.add(slicing.Concat(1), none, own)
        b = _ordered(n, b, form)
    return _Stored(_ordered(n, w, form), _ordered(n, r, form), b, late)


def _cell(n: LayerNode, stored: _Stored, functions: Sequence[Activation], way: int) -> Cell:
    late = None if stored.late is None else pick(n, stored.late, way)
    return Cell(Weights((pick(n, stored.states, way),), times_rows), late, None, functions)


def _projected(n: LayerNode, stored: _Stored, x: Value, way: int) -> Value:
    y = Weights((pick(n, stored.inputs, way),), times_rows).product(n, x)
    return y if stored.early is None else y + pick(n, stored.early, way)


@openvino_layer("LSTMCell", "GRUCell", "RNNCell")
def one_step(n: LayerNode) -> Result:
    """The state after a step [batch, width]."""
    kind = n.layer.kind.removesuffix("Cell")
    states = 2 if kind == "LSTM" else 1
    form = _form(n, kind, None)
    stored = _stored(n, form, 1 + states, True)
    cell = _cell(n, stored, _functions(n, kind), 0)
    before = [n.input(1 + i) for i in range(states)]
    return tuple(step(n, form, cell, _projected(n, stored, n.input(0), 0), before))


def _lengths(n: LayerNode, value: Value, x: Value) -> Value | None:
    """The lengths of sequences; None if all sequences have all steps."""
    if not value.dtype.is_int or value.type.rank != 1:
        n.bad(f"the lengths of sequences: expected a list of integers, found {value.type}")
    steps, held = x.type.shape[1], n.builder.contents(value)
    if held is not None and all(same_dim(d, steps) for d in held.flat):
        return None
    known = n.known(value)
    if known is not None and isinstance(steps, int):
        if known.size and not 0 <= known.min() <= known.max() <= steps:
            n.bad(f"the lengths of sequences: expected 0 to {steps}, found {known.tolist()}")
        return value
    lengths = value.cast(i64)
    wrong = (lengths < 0) | (lengths > n.of_dims((steps,), ()))
    n.builder.require_zero(
        wrong.cast(i64).sum((0,)).reshape(1), "lengths below 0 or above the steps"
    )
    return value


@openvino_layer("LSTMSequence", "GRUSequence", "RNNSequence")
def sequence(n: LayerNode) -> Result:
    """The outputs of all steps [batch, directions, steps, hidden], and the states after the last
    step [batch, directions, hidden].
    """
    kind = n.layer.kind.removesuffix("Sequence")
    states = 2 if kind == "LSTM" else 1
    x, before = n.input(0), [n.input(1 + i) for i in range(states)]
    if x.type.rank != 3 or any(v.type.rank != 3 for v in before):
        n.bad(f"expected sequences and states of rank 3, found {x.type} and {before[0].type}")
    form = _form(n, kind, _lengths(n, n.input(1 + states), x))
    stored, functions = _stored(n, form, 2 + states, False), _functions(n, kind)
    direction = n.attr_string("direction", "forward").lower()
    ways = {"forward": 1, "reverse": 1, "bidirectional": 2}.get(direction)
    if ways is None or n.shape(stored.inputs)[0] != ways:
        n.bad(f"expected weights for direction {direction!r}, found {stored.inputs.type}")
    for v in before:
        if (n.extent(v, 1), n.extent(v, 2)) != (ways, form.hidden):
            n.bad(f"expected states [batch, {ways}, {form.hidden}], found {v.type}")
    rows = x.transpose(1, 0, 2)
    made: list[tuple[Value, ...]] = []
    for way in range(ways):
        first = [pick(n, v.transpose(1, 0, 2), way) for v in before]
        backward = direction == "reverse" or way == 1
        inputs = _projected(n, stored, rows, way), rows.type.shape[0]
        *final, shown = cell_over_time(
            n, form, _cell(n, stored, functions, way), inputs, first, backward
        )
        made.append((shown.transpose(1, 0, 2), *final))
    parts = [[n.add(shape.Unsqueeze((1,)), v) for v in column] for column in zip(*made)]
    return tuple(p[0] if len(p) == 1 else n.add(slicing.Concat(1), *p) for p in parts)
