"""ONNX's recurrent layers (RNN, GRU, LSTM)."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from tilesmith.frontend.common.cells import (
    GATES,
    Activation,
    Cell,
    Recurrence,
    Weights,
    cell_over_time,
    pick,
    times_rows,
)
from tilesmith.frontend.common.slots import Result
from tilesmith.frontend.onnx.node import OnnxNode
from tilesmith.frontend.onnx.registry import onnx_op
from tilesmith.graph.nodes import Value
from tilesmith.ops import rules, shape, slicing

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


WeightsOf: TypeAlias = Callable[[int, int], Weights]
"""Maps 0 (inputs) or 1 (states) and the number of a direction to the weights."""


@onnx_op("RNN", "GRU", "LSTM", since=1)
def recurrent(n: OnnxNode) -> Result:
    stored = n.input(1), n.input(2)
    return layer(n, lambda at, d: Weights((pick(n, stored[at], d),), times_rows))


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
    hidden, gates = n.extent(r, 2), GATES[kind]
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
    common = Recurrence(
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
        cell = Cell(weights(1, d), recurrent_bias, p, functions[d])
        state = (h or zero, c or zero) if kind == "LSTM" else (h or zero,)
        *final, collected = cell_over_time(
            n, common, cell, (projected, steps), state, direction == "reverse" or d == 1
        )
        outputs.append(collected)
        finals.append(tuple(final))
    return _results(n, outputs, finals, batch_first)


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
