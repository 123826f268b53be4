"""Attention with the projections, masks, caches and rotary embeddings of com.microsoft.

Queries, keys and values are [batch, heads, length, width] here.
"""

from __future__ import annotations

import math
from functools import reduce
from operator import and_

import numpy as np

from tilesmith.frontend.common.slots import Result
from tilesmith.frontend.onnx.attention import heads_of, joined_heads, rotated
from tilesmith.frontend.onnx.contrib import contrib_op
from tilesmith.frontend.onnx.contrib.quantized import integer_product
from tilesmith.frontend.onnx.node import OnnxNode
from tilesmith.frontend.onnx.shapes import (
    equal_where_open,
    is_single,
)
from tilesmith.graph.nodes import Value
from tilesmith.ir import extents
from tilesmith.ir.dtypes import i64
from tilesmith.ir.types import Dim, same_dim, same_shape
from tilesmith.ops import attention as att
from tilesmith.ops import functions as fn
from tilesmith.ops import gather, norm, scatter, shape, slicing
from tilesmith.ops import matmul as mm


def _all(n: OnnxNode, conditions: list[Value]) -> Value | None:
    """Whether all conditions hold; None if there are no conditions."""
    return reduce(and_, conditions) if conditions else None


def _plus(n: OnnxNode, a: Value | None, b: Value | None) -> Value | None:
    return b if a is None else a if b is None else a + b


def _scale(n: OnnxNode, q: Value) -> float:
    scale = n.attr_float("scale", 0.0)
    return scale or 1 / math.sqrt(max(n.extent(q, 3), 1))


def _attend(
    n: OnnxNode, q: Value, k: Value, v: Value, bias: Value | None, allowed: Value | None
) -> Value:
    """softmax(q k^T scale + bias) v over the keys that are `allowed`.  Joins the result's heads."""
    if allowed is not None:
        zero = n.const(0, q.dtype) if bias is None else bias
        bias = fn.where(allowed, zero, -math.inf)
    op = att.Attention(_scale(n, q), softcap=n.attr_float("softcap", 0.0))
    return joined_heads(n, n.add(op, q, k, v, *([] if bias is None else [bias])))


def _mask_bias(n: OnnxNode, mask: Value | None, q: Value, k: Value) -> Value | None:
    """The bias for a mask, broadcast to the scores: 0 where a key is visible, `mask_filter_value`
    elsewhere.
    """
    filtered = n.attr_float("mask_filter_value", -10000.0)
    if mask is None:
        return None
    (batch, _, rows, _), columns = q.type.shape, k.type.shape[2]
    dims = mask.type.shape
    key = n.positions(columns, 4, 3)
    twice = extents.product((batch, 2))
    both = same_shape(dims, (twice,)) and not same_shape(dims, (batch,))
    if both or equal_where_open(n, dims, (batch,)):
        # the end of the keys and, for left padding, their start
        bounds = n.reshape(mask.cast(i64), (*dims, 1, 1, 1))
        ends = n.add(slicing.Split(0, (batch, batch)), bounds)[0] if both else bounds
        seen = key < ends
        if both:
            starts = n.add(slicing.Split(0, (batch, batch)), bounds)[1]
            seen = seen & (key >= starts)
    elif equal_where_open(n, dims, (batch, columns)) or equal_where_open(
        n, dims, (batch, rows, columns)
    ):
        wide = n.reshape(mask, (batch, 1, rows if len(dims) == 3 else 1, columns))
        seen = wide.differs(0)
    else:
        n.unsupported(f"a mask {mask.type} for {batch} rows and {columns} keys")
    return fn.where(seen, n.const(0, q.dtype), n.const(filtered, q.dtype))


def _causal(n: OnnxNode, q: Value, k: Value) -> Value | None:
    """The causal mask: which keys each query sees.  The last query sees all keys."""
    if not n.attr_flag("unidirectional"):
        return None
    rows, columns = q.type.shape[2], k.type.shape[2]
    before = n.of_dims((extents.difference(columns, rows),), ())
    query = n.positions(rows, 2, 0) + before
    return n.positions(columns, 2, 1) <= query


@contrib_op("Attention", "QAttention")
def attention(n: OnnxNode) -> Result:
    """A projection to queries, keys and values, then attention."""
    heads = n.attr_int("num_heads")
    if n.attr_int("do_rotary", 0) or n.attr_int("past_present_share_buffer", 0):
        n.unsupported("rotary embeddings or shared buffers of Attention")
    n.ignore("rotary_embedding_dim")
    if n.op_type == "Attention":
        projected = n.add(mm.MatMul(), n.input(0), n.input(1))
        bias, mask, past, extra = (n.optional(i) for i in range(2, 6))
    else:
        scales, zeros = (n.input(3), n.input(4)), (n.optional(6), n.optional(7))
        projected = integer_product(n, n.input(0), n.input(1), *scales, *zeros)
        bias, mask, past, extra = n.optional(2), n.optional(5), n.optional(8), None
    if bias is not None:
        projected = projected + bias
    width = n.extent(projected, 2)
    sizes = n.attr_ints("qkv_hidden_sizes") or (width // 3,) * 3
    if len(sizes) != 3 or sum(sizes) != width:
        n.bad(f"attribute 'qkv_hidden_sizes': expected three that add up to {width}, found {sizes}")
    parts = n.add(slicing.Split(2, sizes), projected)
    q, k, v = (heads_of(n, x, heads) for x in parts)
    if past is not None:
        old = n.add(slicing.Split(0, (1, 1)), past)
        k, v = (
            n.add(slicing.Concat(2), n.reshape(o, o.type.shape[1:]), new)
            for o, new in zip(old, (k, v), strict=True)
        )
    bias = _plus(n, _mask_bias(n, mask, q, k), extra)
    y = _attend(n, q, k, v, bias, _causal(n, q, k))
    if not n.wants(1):
        return y
    return y, n.add(slicing.Concat(0), *(n.add(shape.Unsqueeze((0,)), x) for x in (k, v)))


def _pieces(n: OnnxNode, packed: Value, count: int) -> list[Value]:
    """Split [batch, length, heads, count, width] into `count` of [batch, heads, length, width]."""
    if packed.type.rank != 5 or n.extent(packed, 3) != count:
        n.bad(f"expected {count} packed operands of rank 5, found {packed.type}")
    batch, length, heads, _, width = packed.type.shape
    parts = n.add(slicing.Split(3, (1,) * count), packed)
    parts = (n.reshape(p, (batch, length, heads, width)) for p in parts)
    return [p.transpose(0, 2, 1, 3) for p in parts]


@contrib_op("MultiHeadAttention")
def multi_head_attention(n: OnnxNode) -> Result:
    query, inputs = n.input(0), [n.optional(i) for i in range(8)]
    bias, mask, extra, *past = inputs[3:]
    q, k, v = _operands(n, query, inputs[1], inputs[2], bias)
    if n.wants(3):
        n.unsupported("the scores as an output")
    k, v = (_behind(n, old, x) for old, x in zip(past, (k, v), strict=True))
    extra = _plus(n, _mask_bias(n, mask, q, k), extra)
    return _attend(n, q, k, v, extra, _causal(n, q, k)), k, v


@contrib_op("DecoderMaskedMultiHeadAttention")
def decoder_masked_multi_head_attention(n: OnnxNode) -> Result:
    """Attention of one query; the past may be a buffer that has space for the new key."""
    n.ignore("output_qk")
    query, inputs = n.input(0), [n.optional(i) for i in range(11)]
    mask, extra, *past, length, _, beams, bias = inputs[3:]
    if beams is not None or n.wants(3):
        n.unsupported("beams that refer to one another, or the scores as an output")
    q, k, v = _operands(n, query, inputs[1], inputs[2], bias)
    allowed = None
    if not n.attr_flag("past_present_share_buffer"):
        k, v = (_behind(n, old, x) for old, x in zip(past, (k, v), strict=True))
    elif past[0] is not None:
        if length is None or length.type.size != 1:
            n.bad("expected one past_sequence_length for a shared buffer")
        first = n.reshape(length.cast(i64), (1, 1))
        place = first.expand(q.type.shape[0], 1)
        k, v = (
            x if old is None else _written(n, old, x, place)
            for old, x in zip(past, (k, v), strict=True)
        )
        key = n.positions(k.type.shape[2], 4, 3)
        allowed = key <= n.reshape(first, (1, 1, 1, 1))
    extra = _plus(n, _mask_bias(n, mask, q, k), extra)
    return _attend(n, q, k, v, extra, allowed), k, v


def _behind(n: OnnxNode, old: Value | None, new: Value) -> Value:
    return new if old is None else n.add(slicing.Concat(2), old, new)


def _operands(
    n: OnnxNode, query: Value, key: Value | None, value: Value | None, bias: Value | None
) -> tuple[Value, Value, Value]:
    """Queries, keys and values from packed or separate inputs, with the bias added."""
    heads = n.attr_int("num_heads")
    if heads < 1:
        n.bad(f"attribute 'num_heads': expected at least 1, found {heads}")
    if query.type.rank == 5:
        q, k, v = _pieces(n, query, 3)
    elif key is None:
        parts = n.add(slicing.Split(2, (n.extent(query, 2) // 3,) * 3), query)
        q, k, v = (heads_of(n, x, heads) for x in parts)
    else:
        q = heads_of(n, query, heads)
        if key.type.rank == 5:
            k, v = _pieces(n, key, 2)
        elif value is None:
            n.bad("expected a value for a key that is not packed, found none")
        elif key.type.rank == 4:  # cross attention passes cached keys and values
            k, v = key, value
        else:
            k, v = heads_of(n, key, heads), heads_of(n, value, heads)
    if bias is None:
        return q, k, v
    parts = n.add(slicing.Split(0, tuple(heads * n.extent(x, 3) for x in (q, k, v))), bias)
    q, k, v = (
        x + n.reshape(b, (heads, 1, n.extent(x, 3))) for x, b in zip((q, k, v), parts, strict=True)
    )
    return q, k, v


@contrib_op("RotaryEmbedding")
def rotary_embedding(n: OnnxNode) -> Result:
    n.ignore("is_packed_batching")
    x, position, cos, sin = (n.input(i) for i in range(4))
    factor = n.attr_float("scale", 1.0)
    if factor != 1.0:
        n.unsupported("scaled rotary embeddings")
    turned, heads = 2 * n.extent(cos, 1), n.attr_int("num_heads", 0)
    if n.attr_int("rotary_embedding_dim", 0) not in (0, turned):
        n.bad(f"attribute 'rotary_embedding_dim': expected {turned} as the caches have")
    is_3d = x.type.rank == 3
    y = heads_of(n, x, heads or n.extent(x, 2) // turned) if is_3d else x
    angles = _angles(n, position, y.type.shape[0], y.type.shape[2])
    cos, sin = (n.add(gather.Gather(0), c, angles) for c in (cos, sin))
    y = rotated(n, y, cos, sin, turned, n.attr_flag("interleaved"))
    return joined_heads(n, y) if is_3d else y


def _angles(n: OnnxNode, given: Value, batch: Dim, length: Dim) -> Value:
    """Positions [batch, length], from given positions or from the position of the first row."""
    wanted, dims = (batch, length), given.type.shape
    if same_shape(dims, wanted) or (not is_single(given) and equal_where_open(n, dims, wanted)):
        return given
    if not is_single(given):
        n.bad(f"position_ids: expected [{batch},{length}] or one, found {given.type}")
    first = n.reshape(given.cast(i64), (1, 1))
    each = first + n.positions(length, 2, 1)
    return each.expand(batch, length)


@contrib_op("GroupQueryAttention")
def group_query_attention(n: OnnxNode) -> Result:
    """Causal attention over a cache, to which new keys and values are appended."""
    query, key, value, past_key, past_value = n.input(0), *(n.optional(i) for i in range(1, 5))
    last, total = n.input(5).cast(i64), n.input(6)
    if not is_single(total):
        n.bad(f"total_sequence_length: expected one number, found {total.type}")
    total = n.reshape(total.cast(i64), (1,))
    cos, sin, position, extra, sink = (n.optional(i) for i in range(7, 12))
    heads, shared = n.attr_int("num_heads"), n.attr_int("kv_num_heads")
    quantised = [n.attr_string(f"{x}_quant_type", "NONE") != "NONE" for x in "kv"]
    n.ignore("kv_cache_bit_width")
    if any(quantised) or n.attr_flag("sliding_window_cache") or n.attr_int("qk_output", 0):
        n.unsupported("a quantised or sliding cache, or the scores as an output")
    if key is None or value is None:
        width = n.extent(query, 2) // (heads + 2 * shared)
        sizes = (heads * width, shared * width, shared * width)
        query, key, value = n.add(slicing.Split(2, sizes), query)
    q, k, v = heads_of(n, query, heads), heads_of(n, key, shared), heads_of(n, value, shared)
    batch, _, rows, _ = q.type.shape
    # A prompt's rows begin at position 0 and are padded at the end.  Later calls have the last
    # rows of the sequence.
    ends = n.reshape(last, (batch, 1)) + 1
    is_prompt = total.equals(n.of_dims((rows,), ()))
    later = ends - n.of_dims((rows,), ())
    start = fn.where(is_prompt, 0, later)
    place = start + n.positions(rows, 2, 1)
    if n.attr_flag("do_rotary"):
        if cos is None or sin is None:
            n.bad("expected cos_cache and sin_cache for do_rotary, found none")
        angles = place if position is None else position
        interleaved, turned = n.attr_flag("rotary_interleaved"), 2 * n.extent(cos, 1)
        cos, sin = (n.add(gather.Gather(0), c, angles) for c in (cos, sin))
        q, k = (rotated(n, x, cos, sin, turned, interleaved) for x in (q, k))
    else:
        n.ignore("rotary_interleaved")
    if past_key is not None and past_value is not None:
        pairs = enumerate(((past_key, k), (past_value, v)), 1)
        k, v = (
            _written(n, old if n.is_in_place(i) else _enlarged(n, old, total), new, place)
            for i, (old, new) in pairs
        )
    columns = k.type.shape[2]
    keys = n.positions(columns, 4, 3)
    ahead = keys - n.reshape(place, (batch, 1, rows, 1))
    conditions = []
    if n.attr_flag("causal", True):
        conditions.append(ahead <= 0)
    else:
        seen = n.reshape(ends, (batch, 1, 1, 1))
        conditions.append(keys < seen)
    window = n.attr_int("local_window_size", -1)
    if window > 0:
        conditions.append(ahead > -window)
    if extra is not None:
        missing = extents.difference(columns, extra.type.shape[3])
        if not extents.is_at_most(missing, 0):
            extra = n.add(slicing.Pad((*[0] * 7, missing)), extra)
    allowed = _all(n, conditions)
    if sink is None and n.attr_int("smooth_softmax", -1) != 1:
        return _attend(n, q, k, v, extra, allowed), k, v
    n.ignore("softcap")
    return _with_sink(n, q, k, v, extra, allowed, sink), k, v


def _enlarged(n: OnnxNode, old: Value, total: Value) -> Value:
    """The cache `old`, padded to at least `total` rows."""
    (needed,) = n.extents(total, "total_sequence_length")
    spare = extents.larger(extents.difference(needed, old.type.shape[2]), 0)
    return old if same_dim(spare, 0) else n.add(slicing.Pad((0, 0, 0, 0, 0, 0, spare, 0)), old)


def _written(n: OnnxNode, old: Value, new: Value, place: Value) -> Value:
    """The cache `old` with `new` written to the rows `place` of each sample."""
    dims = new.type.shape
    position = n.reshape(place, (dims[0], 1, dims[2], 1)).expand(*dims)
    return n.add(scatter.ScatterElements(2), old, position, new)


def _with_sink(
    n: OnnxNode,
    q: Value,
    k: Value,
    v: Value,
    bias: Value | None,
    allowed: Value | None,
    sink: Value | None,
) -> Value:
    """Like `_attend`, but the softmax includes one more score, which weights no value.

    sink: this score for each head; None: 0 for all heads.
    """
    (batch, _, rows, _), heads = q.type.shape, n.extent(q, 1)
    group = heads // n.extent(k, 1)
    if group > 1:
        k, v = (_repeated(n, x, group) for x in (k, v))
    scores = n.add(mm.MatMul(transpose_b=True), q, k)
    scores = scores * _scale(n, q)
    cap = n.attr_float("softcap", 0.0)
    if cap > 0:
        limit = n.const(cap, q.dtype)
        scores = fn.tanh(scores / limit) * limit
    if bias is not None:
        scores = scores + bias
    if allowed is not None:
        scores = fn.where(allowed, scores, -math.inf)
    one = n.const(np.zeros((heads, 1, 1)), q.dtype)
    if sink is not None:
        one = n.reshape(sink.cast(q.dtype), (heads, 1, 1))
    column = one.expand(batch, heads, rows, 1)
    weights = n.add(norm.Softmax(-1), n.add(slicing.Concat(3), scores, column))
    kept = n.add(slicing.Slice((0,), (-1,), (3,), (1,)), weights)
    return joined_heads(n, n.add(mm.MatMul(), kept, v))


def _repeated(n: OnnxNode, x: Value, group: int) -> Value:
    """Repeat each head `group` times."""
    batch, _, rows, width = x.type.shape
    heads = n.extent(x, 1)
    wide = n.add(shape.Unsqueeze((2,)), x).expand(batch, heads, group, rows, width)
    return n.reshape(wide, (batch, heads * group, rows, width))
