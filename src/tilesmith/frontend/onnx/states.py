"""ONNX's operators with a state that one call passes to the next: caches of keys and values, causal
convolutions, linear attention.
"""

from __future__ import annotations

import math

from tilesmith.frontend.common.slots import Result
from tilesmith.frontend.common.windows import add_bias
from tilesmith.frontend.onnx.attention import heads_of, joined_heads
from tilesmith.frontend.onnx.node import OnnxNode
from tilesmith.frontend.onnx.registry import onnx_op
from tilesmith.frontend.onnx.shapes import equal_where_open
from tilesmith.graph.nodes import Value
from tilesmith.ir.dtypes import f32, i64
from tilesmith.ir.types import Dim
from tilesmith.ops import activation as act
from tilesmith.ops import conv, scatter, slicing
from tilesmith.ops import matmul as mm
from tilesmith.ops.functions import exp

_STEPS = 1 << 12
"""Upper bound on the steps of an unrolled recurrence."""


@onnx_op("TensorScatter", since=24)
def tensor_scatter(n: OnnxNode) -> Result:
    """The cache with `update` written along `axis` from each sample's position on."""
    cache, update, indices = n.input(0), n.input(1), n.optional(2)
    axis = n.axis(n.attr_int("axis", -2), cache.type.rank)
    circular = n.attr_string("mode", "linear", among=("linear", "circular")) == "circular"
    dims, steps = cache.type.shape, update.type.shape
    count, length = steps[axis] if len(steps) == len(dims) else 0, dims[axis]
    fits = equal_where_open(n, steps, (*dims[:axis], count, *dims[axis + 1 :]))
    if isinstance(count, int) and isinstance(length, int):
        fits = fits and count <= length
    if axis == 0 or not fits or update.dtype is not cache.dtype:
        n.bad(f"expected an update of {cache.type}, shorter along axis {axis}; found {update.type}")
    if indices is not None and not equal_where_open(n, indices.type.shape, dims[:1]):
        n.bad(f"write_indices: expected [{dims[0]}], found {indices.type}")
    position = n.positions(count, len(dims), axis)
    if indices is not None:
        first = n.reshape(indices.cast(i64), (dims[0], *[1] * (len(dims) - 1)))
        position = position + first
    if circular:
        position = position % n.of_dims((length,), ())
    return n.add(scatter.ScatterElements(axis), cache, position.expand(*steps), update)


@onnx_op("CausalConvWithState", since=27)
def causal_conv_with_state(n: OnnxNode) -> Result:
    """A depthwise convolution over the concatenation of the state and the input.  The last
    positions of the concatenation become the new state.
    """
    x, weight, bias, past = n.input(0), n.input(1), n.optional(2), n.optional(3)
    activation = n.attr_string("activation", "none", among=("none", "silu", "swish"))
    if x.type.rank != 3 or weight.type.rank != 3:
        n.bad(f"expected an input and a weight of rank 3, found {x.type} and {weight.type}")
    (batch, _, length), channels = x.type.shape, n.extent(x, 1)
    kept = n.extent(weight, 2) - 1
    if past is None:
        padded = n.add(slicing.Pad((0, 0, kept, 0, 0, 0)), x)
    else:
        if not equal_where_open(n, past.type.shape, (batch, channels, kept)):
            n.bad(f"past_state: expected {[batch, channels, kept]}, found {past.type}")
        padded = n.add(slicing.Concat(2), past, x)
    y = add_bias(n, n.add(conv.Conv((1,), (0, 0), (1,), channels), padded, weight), bias)
    if activation != "none":
        y = n.add(act.Silu(), y.cast(f32)).cast(x.dtype)
    return y, n.add(slicing.Split(2, (length, kept)), padded)[1]


@onnx_op("LinearAttention", since=27)
def linear_attention(n: OnnxNode) -> Result:
    """Linear attention: each step decays and corrects a matrix per head, which queries then read.

    Computed in f32 and unrolled over time.
    """
    n.ignore("chunk_size")  # selects an algorithm and does not change the result
    q, k, v = (n.input(i) for i in range(3))
    past, decay, beta = (n.optional(i) for i in range(3, 6))
    rules = ("linear", "gated", "delta", "gated_delta")
    rule = n.attr_string("update_rule", "gated_delta", among=rules)
    for name, factor, needed in (
        ("decay", decay, "gated" in rule),
        ("beta", beta, "delta" in rule),
    ):
        if (factor is not None) != needed:
            n.bad(f"{name}: expected {'one' if needed else 'none'} for update_rule {rule!r}")
    heads, shared = n.attr_int("q_num_heads"), n.attr_int("kv_num_heads")
    if shared < 1 or heads < 1 or heads % shared:
        n.bad(f"expected query heads divisible by key heads, found {heads} and {shared}")
    out = q.dtype
    counts = (heads, shared, shared)
    q, k, v = (heads_of(n, x.cast(f32), c) for x, c in zip((q, k, v), counts, strict=True))
    batch, steps, width = q.type.shape[0], n.extent(q, 2), n.extent(q, 3)
    fits = equal_where_open(n, k.type.shape, (batch, shared, steps, width))
    if not fits or not equal_where_open(n, v.type.shape[:3], (batch, shared, steps)):
        n.bad(f"expected queries, keys and values that agree, found {q.type}, {k.type}, {v.type}")
    if steps > _STEPS:
        n.unsupported(f"linear attention over {steps} steps (supported are {_STEPS})")
    columns = n.extent(v, 3)
    state_shape = (batch, shared, width, columns)
    if past is None:
        state = n.const(0, f32).expand(*state_shape)
    elif equal_where_open(n, past.type.shape, state_shape):
        state = past.cast(f32)
    else:
        n.bad(f"past_state: expected {list(state_shape)}, found {past.type}")
    if decay is not None:
        decay = exp(_per_head(n, decay, (batch, shared, steps), (1, width)))
    if beta is not None:
        beta = _per_head(n, beta, (batch, shared if n.extent(beta, -1) != 1 else 1, steps), (1,))
    scale = n.attr_float("scale", 0.0) or 1 / math.sqrt(max(width, 1))
    group, read = heads // shared, []
    for t in range(steps):
        key, value = _step(n, k, t), _step(n, v, t)  # [batch, heads, 1, width or columns]
        column = key.transpose(0, 1, 3, 2)
        if decay is not None:
            rows = _step(n, decay, t).transpose(0, 1, 3, 2)
            state = state * rows
        if beta is not None:
            known = n.add(mm.MatMul(), key, state)
            value = _step(n, beta, t) * (value - known)
        state = state + column * value
        query = n.reshape(_step(n, q, t), (batch, shared, group, width))
        read.append(n.reshape(n.add(mm.MatMul(), query, state), (batch, heads, 1, columns)))
    y = n.add(slicing.Concat(2), *read) * scale
    return (
        joined_heads(n, y).cast(out),
        state.cast(out if past is None else past.dtype),
    )


def _per_head(n: OnnxNode, x: Value, lead: tuple[Dim, int, int], widths: tuple[int, ...]) -> Value:
    """Split the heads of [batch, steps, heads * width]: f32[batch, heads, steps, width].  The width
    is one of `widths`.

    lead: batch, heads and steps.
    """
    split = heads_of(n, x.cast(f32), lead[1])
    if n.extent(split, 3) not in widths:
        n.bad(f"expected {' or '.join(map(str, widths))} numbers per head, found {x.type}")
    if not equal_where_open(n, split.type.shape[:3], lead):
        n.bad(f"expected numbers for batch, heads and steps {list(lead)}, found {x.type}")
    return split


def _step(n: OnnxNode, x: Value, t: int) -> Value:
    return n.add(slicing.Slice((t,), (t + 1,), (2,), (1,)), x)
