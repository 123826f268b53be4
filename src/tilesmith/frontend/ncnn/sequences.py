"""ncnn's layers on sequences: recurrent ones and attention."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from tilesmith.frontend.aten.recurrent import stack_over_time
from tilesmith.frontend.common.networks import LayerNode
from tilesmith.frontend.common.slots import Result
from tilesmith.frontend.ncnn.elements import ncnn_layer
from tilesmith.frontend.ncnn.layers import take
from tilesmith.graph.nodes import Value
from tilesmith.ir.dtypes import i64
from tilesmith.ops import attention, gather, slicing
from tilesmith.ops import matmul as mm

_KINDS = {"LSTM": "lstm", "GRU": "gru", "RNN": "rnn_tanh"}
_ORDERS = {"LSTM": (0, 1, 3, 2), "GRU": (0, 1, 2), "RNN": (0,)}
"""For each gate of PyTorch, the place of ncnn's."""
_FORWARD, _BACKWARD, _BOTH = 0, 1, 2


@ncnn_layer("LSTM", "GRU", "RNN")
def recurrent(n: LayerNode) -> Result:
    """A layer over a sequence [steps, width].

    Stored: the weights of the input, the biases, the weights of the state and an LSTM's
    projection, each for all directions.  A GRU has two biases of the new state: the state's own one
    is last.
    """
    kind, x, count = n.layer.kind, n.input(), n.attr_int("0", 0, 1)
    if n.attr_int("8", 0):
        n.unsupported("int8 weights")
    hidden = n.attr_int("3", count, 1) if kind == "LSTM" else count
    way = n.attr_int("2", _FORWARD)
    if way not in (_FORWARD, _BACKWARD, _BOTH):
        n.bad(f"direction: expected 0 to 2, found {way}")
    ways, order = 2 if way == _BOTH else 1, _ORDERS[kind]
    width, gates = n.extent(x, 1), len(order)
    inputs = take(n, "weight_xc", ways, gates, hidden, width, flagged=True)
    biases = take(n, "bias_c", ways, gates + (kind == "GRU"), hidden, flagged=True)
    states = take(n, "weight_hc", ways, gates, hidden, count, flagged=True)
    results = take(n, "weight_hr", ways, count, hidden, flagged=True) if hidden != count else None
    params: list[Value] = []
    for d in range(ways):
        params += [_gates(n, v, d, order) for v in (inputs, states, biases)]
        late = [n.const(np.zeros(hidden * (2 if kind == "GRU" else gates), np.float32))]
        late += [_gates(n, biases, d, (3,))] if kind == "GRU" else []
        params.append(n.add(slicing.Concat(0), *late))
        params += [_row(n, results, d)] if results is not None else []
    states_before = [n.optional(i) for i in range(1, 3 if kind == "LSTM" else 2)]
    initial = [
        n.reshape(v, (ways, 1, size))
        if v is not None
        else n.const(np.zeros((ways, 1, size), np.float32))
        for v, size in zip(states_before, (count, hidden))
    ]
    steps = n.reshape(x, (x.type.shape[0], 1, width))
    steps = _reversed(n, steps) if way == _BACKWARD else steps
    y, *after = stack_over_time(
        n, _KINDS[kind], steps, initial, params, True, way == _BOTH, batch_first=False
    )
    y = _reversed(n, y) if way == _BACKWARD else y
    shown = n.reshape(y, (x.type.shape[0], ways * count))
    finals = [n.reshape(v, (ways, v.type.shape[2])) for v in after]
    return (shown, *finals) if len(n.layer.outputs) > 1 else shown


def _row(n: LayerNode, v: Value, at: int) -> Value:
    return n.reshape(n.add(slicing.Slice((at,), (at + 1,), (0,), (1,)), v), v.type.shape[1:])


def _gates(n: LayerNode, v: Value, direction: int, order: Sequence[int]) -> Value:
    """The gates of a direction in PyTorch's order, one below the other."""
    own = n.add(gather.Gather(0), _row(n, v, direction), n.const(order, i64))
    return n.reshape(own, (own.type.shape[0] * own.type.shape[1], *own.type.shape[2:]))


def _reversed(n: LayerNode, v: Value) -> Value:
    return n.add(slicing.Slice((-1,), (-(2**31),), (0,), (-1,)), v)


@ncnn_layer("MultiHeadAttention")
def multi_head_attention(n: LayerNode) -> Result:
    """Attention of sequences [steps, width] with projections, like PyTorch's."""
    size, heads = n.attr_int("0", 0, 1), n.attr_int("1", 1, 1)
    if n.attr_int("7", 0) or n.attr_int("18", 0):
        n.unsupported("cached keys and values, and int8 weights")
    if size % heads:
        n.bad(f"expected a width that is a multiple of {heads} heads, found {size}")
    is_masked = bool(n.attr_int("5", 0))
    values = [n.input(i) for i in range(len(n.slots) - is_masked)]
    if not 1 <= len(values) <= 3:
        n.bad(f"expected 1 to 3 inputs besides the mask, found {len(values)}")
    q, k, v = values[0], values[min(1, len(values) - 1)], values[-1]
    width = n.attr_int("2", size * size) // size
    scale = n.attr_float("6", 1 / math.sqrt(size // heads))
    parts: list[Value] = []
    for name, value, depth in (
        ("q", q, width),
        ("k", k, n.attr_int("3", size)),
        ("v", v, n.attr_int("4", size)),
    ):
        y = _projected(n, name, value, size, depth)
        split = n.reshape(y, (value.type.shape[0], heads, size // heads))
        parts.append(split.transpose(1, 0, 2))
    mask = [n.input(len(values))] if is_masked else []
    y = n.add(attention.Attention(scale), *parts, *mask)
    flat = n.reshape(y.transpose(1, 0, 2), (q.type.shape[0], size))
    return _projected(n, "out", flat, width, size)


def _projected(n: LayerNode, name: str, x: Value, size: int, depth: int) -> Value:
    w = take(n, f"{name}_weight", size, depth, flagged=True)
    return n.add(mm.MatMul(transpose_b=True), x, w) + take(n, f"{name}_bias", size)


@ncnn_layer("SDPA")
def scaled_dot_product_attention(n: LayerNode) -> Result:
    """Attention of heads [heads, steps, width]."""
    if n.attr_int("7", 0) or n.attr_int("18", 0):
        n.unsupported("cached keys and values, and products of int8")
    scale, is_masked = n.attr_float("6", 0), bool(n.attr_int("5", 0))
    inputs = [n.input(i) for i in range(3 + is_masked)]
    return n.add(attention.Attention(scale or None), *inputs)
