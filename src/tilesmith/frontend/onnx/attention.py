"""ONNX's attention and rotary embeddings."""

from __future__ import annotations

import math

from tilesmith.frontend.common.branches import results_of
from tilesmith.frontend.common.slots import Result
from tilesmith.frontend.onnx.control import graph_attribute
from tilesmith.frontend.onnx.node import OnnxNode
from tilesmith.frontend.onnx.registry import onnx_op
from tilesmith.frontend.onnx.tensors import element_type
from tilesmith.graph.nodes import Value
from tilesmith.ir import extents
from tilesmith.ir.dtypes import f32, f64, i64
from tilesmith.ir.types import Dim, same_dim
from tilesmith.ops import attention as att
from tilesmith.ops import functions as fn
from tilesmith.ops import gather, norm, rules, shape, slicing
from tilesmith.ops import matmul as mm


@onnx_op("Attention", since=23)
def attention(n: OnnxNode) -> Result:
    """Attention by scores, masks and softmax, in the order of the operator's specification.

    Without a mask and extra outputs, one `Attention` operator computes the result; otherwise
    several operators do.  A query whose keys are all masked gives zeros.
    """
    q, k, v = (n.input(i) for i in range(3))
    mask, past_key, past_value = n.optional(3), n.optional(4), n.optional(5)
    lengths = n.optional(6) if n.version >= 24 else None
    is_3d = q.type.rank == 3
    if is_3d:
        heads, shared = n.attr_int("q_num_heads"), n.attr_int("kv_num_heads")
        q, k, v = heads_of(n, q, heads), heads_of(n, k, shared), heads_of(n, v, shared)
    else:
        n.ignore("q_num_heads", "kv_num_heads")
    if not q.type.rank == k.type.rank == v.type.rank == 4:
        n.bad(f"expected Q, K and V of rank 3, or of rank 4, found {q.type}, {k.type} and {v.type}")
    if (past_key is None) != (past_value is None):
        n.bad("expected both past_key and past_value, or neither")
    if past_key is not None and lengths is not None:
        n.bad("expected either a past or nonpad_kv_seqlen, found both")
    for name, cache in (("past_key", past_key), ("past_value", past_value)):
        if cache is not None and cache.type.rank != 4:
            n.bad(f"{name}: expected rank 4, found {cache.type}")
    past: Dim = 0
    if past_key is not None and past_value is not None:
        past = past_key.type.shape[2]
        k, v = n.add(slicing.Concat(2), past_key, k), n.add(slicing.Concat(2), past_value, v)
    width, group = n.extent(q, 3), _group(n, q, k, v)
    scale = n.attr_float("scale") if n.has("scale") else 1 / math.sqrt(max(width, 1))
    softcap, causal = n.attr_float("softcap", 0.0), n.attr_flag("is_causal")
    mode = n.attr_int("qk_matmul_output_mode", 0)
    precision = (
        element_type(n.attr_int("softmax_precision"), "softmax_precision")
        if n.has("softmax_precision")
        else None
    )
    left = n.attr_int("left_window_size", -1) if n.version >= 25 else -1
    right = n.attr_int("right_window_size", -1) if n.version >= 25 else -1
    windowed = left >= 0 or right >= 0
    if (
        mask is None
        and lengths is None
        and same_dim(past, 0)
        and not windowed
        and precision is None
        and not n.wants(3)
    ):
        y = n.add(att.Attention(scale, causal, softcap), q, k, v)
        y = joined_heads(n, y) if is_3d else y
        return y, k, v
    scores = _product(n, q * scale, k, group, transpose=True)
    shown = [scores]
    if softcap > 0:
        cap = n.const(softcap, scores.dtype)
        scores = fn.tanh(scores / cap) * cap
    shown.append(scores)
    bias = _bias(n, q, k, mask, lengths, past, causal, left, right)
    if bias is not None:
        scores = scores + bias
    shown.append(scores)
    wide = scores if precision is None else scores.cast(precision)
    softmax = norm.Softmax(-1) if bias is None else norm.MaskedSoftmax(-1)
    weights = n.add(softmax, wide)
    weights = weights.cast(q.dtype)
    shown.append(weights)
    if not 0 <= mode < len(shown):
        n.bad(f"attribute 'qk_matmul_output_mode': expected 0 to 3, found {mode}")
    y = _product(n, weights, v, group, transpose=False)
    return joined_heads(n, y) if is_3d else y, k, v, shown[mode]


def _group(n: OnnxNode, q: Value, k: Value, v: Value) -> int:
    """The number of query heads that share a head of keys and values."""
    heads, shared = n.extent(q, 1), n.extent(k, 1)
    group = heads // max(shared, 1)
    if not group or shared * group != heads or n.extent(v, 1) != shared:
        n.bad(f"expected query heads divisible by key heads, found {heads} and {shared}")
    return group


def heads_of(n: OnnxNode, x: Value, heads: int) -> Value:
    """Split the heads of [batch, length, heads * width]: [batch, heads, length, width]."""
    if x.type.rank != 3:
        n.bad(f"expected rank 3, found {x.type}")
    batch, length, _ = x.type.shape
    hidden = n.extent(x, 2)
    if heads < 1 or hidden % heads:
        n.bad(f"expected a width divisible by {heads} heads, found {hidden}")
    split = n.reshape(x, (batch, length, heads, hidden // heads))
    return split.transpose(0, 2, 1, 3)


def joined_heads(n: OnnxNode, y: Value) -> Value:
    """Join the heads of [batch, heads, length, width]: [batch, length, heads * width]."""
    batch, heads, length, width = y.type.shape
    joined = extents.product((heads, width))
    return n.reshape(y.transpose(0, 2, 1, 3), (batch, length, joined))


def _product(n: OnnxNode, a: Value, b: Value, group: int, transpose: bool) -> Value:
    """`a` @ `b` per head, with `b` transposed if `transpose`.  `group` heads of `a` share one head
    of `b`.
    """
    op = mm.MatMul(transpose_b=transpose)
    if group == 1:
        return n.add(op, a, b)
    batch, heads, rows, inner = a.type.shape
    shared = rules.divided("attention", heads, group, "the heads")
    a = n.reshape(a, (batch, shared, group, rows, inner))
    y = n.add(op, a, n.add(shape.Unsqueeze((2,)), b))
    return n.reshape(y, (batch, heads, rows, y.type.shape[-1]))


def _bias(
    n: OnnxNode,
    q: Value,
    k: Value,
    mask: Value | None,
    lengths: Value | None,
    past: Dim,
    causal: bool,
    left: int,
    right: int,
) -> Value | None:
    """The term added to the scores: -inf for keys that are masked out, otherwise 0 or the float
    mask.
    """
    rows, columns = q.type.shape[2], k.type.shape[2]
    zero, lowest = n.const(0, q.dtype), n.const(-math.inf, q.dtype)
    parts: list[Value] = []
    if mask is not None:
        part: Value = mask
        if mask.type.rank < 1:
            n.bad(f"attn_mask: expected a mask of the scores, found {mask.type}")
        missing = extents.difference(columns, mask.type.shape[-1])
        if not extents.is_at_most(missing, 0):
            pads = (*[0] * mask.type.rank, *[0] * (mask.type.rank - 1), missing)
            filler = False if mask.dtype.is_bool else -math.inf
            part = n.add(slicing.Pad(pads, "constant", filler), mask)
        parts.append(fn.where(part, zero, lowest) if part.dtype.is_bool else part)
    allowed: list[Value] = []
    # Position of a query among the keys: its row plus the number of keys before the first query.
    query, key = n.positions(rows, 2, 0), n.positions(columns, 2, 1)
    before = n.of_dims((past,), ())
    if lengths is not None:
        valid = n.reshape(lengths.cast(i64), (q.type.shape[0], 1, 1, 1))
        allowed.append(key < valid)
        before = valid - n.of_dims((rows,), ())
    ahead = key - (query + before)
    if causal:
        allowed.append(ahead <= 0)
    if left >= 0:
        allowed.append(ahead >= -left)
    if right >= 0:
        allowed.append(ahead <= right)
    parts += [fn.where(condition, zero, lowest) for condition in allowed]
    if not parts:
        return None
    bias = parts[0]
    for other in parts[1:]:
        bias = bias + other
    return bias


@onnx_op("FlexAttention", since=1, domain="ai.onnx.preview")
def flex_attention(n: OnnxNode) -> Result:
    """Attention with sub-graphs that may change scores and weights."""
    q, k, v = (n.input(i) for i in range(3))
    if not q.type.rank == k.type.rank == v.type.rank == 4:
        n.bad(f"expected Q, K and V of rank 4, found {q.type}, {k.type} and {v.type}")
    group = _group(n, q, k, v)
    precision = f64 if q.dtype is f64 else f32
    if n.has("softmax_precision"):
        precision = element_type(n.attr_int("softmax_precision"), "softmax_precision")
    scale = n.attr_float("scale") if n.has("scale") else 1 / math.sqrt(max(n.extent(q, 3), 1))
    scores = _product(n, q, k, group, transpose=True).cast(precision)
    scores = _modified(n, "score_mod", scores * scale)
    weights = _modified(n, "prob_mod", n.add(norm.Softmax(-1), scores))
    return _product(n, weights.cast(v.dtype), v, group, transpose=False)


def _modified(n: OnnxNode, name: str, x: Value) -> Value:
    """The result of the sub-graph in attribute `name` for `x`; `x` without the attribute."""
    if not n.has(name):
        return x
    (y,) = results_of(n.inline(graph_attribute(n, name), (x,), f"{n.loc}.{name}"))
    if not isinstance(y, Value) or y.type != x.type:
        n.bad(f"attribute {name!r}: expected a result {x.type}")
    return y


@onnx_op("RotaryEmbedding", since=23)
def rotary_embedding(n: OnnxNode) -> Result:
    x, cos, sin, positions = n.input(0), n.input(1), n.input(2), n.optional(3)
    heads, interleaved = n.attr_int("num_heads", 0), n.attr_flag("interleaved")
    is_3d = x.type.rank == 3
    y = heads_of(n, x, heads) if is_3d else x
    if y.type.rank != 4:
        n.bad(f"expected an input of rank 3 or 4, found {x.type}")
    turned = n.attr_int("rotary_embedding_dim", 0) or n.extent(y, 3)
    if positions is not None:
        cos, sin = (n.add(gather.Gather(0), c, positions) for c in (cos, sin))
    y = rotated(n, y, cos, sin, turned, interleaved)
    return joined_heads(n, y) if is_3d else y


def rotated(n: OnnxNode, y: Value, cos: Value, sin: Value, turned: int, interleaved: bool) -> Value:
    """Rotate pairs of the first `turned` columns of `y` [batch, heads, length, width].  The
    cosines and sines of the angles are [batch, length, turned / 2].
    """
    width = n.extent(y, 3)
    if not 0 < turned <= width or turned % 2:
        n.bad(
            f"attribute 'rotary_embedding_dim': expected an even number up to {width}, found "
            f"{turned}"
        )
    if cos.type.rank != 3 or n.extent(cos, 2) != turned // 2 or cos.type != sin.type:
        n.bad(f"expected caches of {turned // 2} columns, found {cos.type} and {sin.type}")
    cos, sin = (n.add(shape.Unsqueeze((1,)), c) for c in (cos, sin))
    rest = None
    if turned < width:
        y, rest = n.add(slicing.Split(3, (turned, width - turned)), y)
    if interleaved:
        a, b = (n.add(slicing.Slice((i,), (turned,), (3,), (2,)), y) for i in (0, 1))
    else:
        a, b = n.add(slicing.Split(3, (turned // 2, turned // 2)), y)
    real = cos * a - sin * b
    imaginary = sin * a + cos * b
    if interleaved:
        pair = (n.add(shape.Unsqueeze((4,)), v) for v in (real, imaginary))
        y = n.reshape(n.add(slicing.Concat(4), *pair), y.type.shape)
    else:
        y = n.add(slicing.Concat(3), real, imaginary)
    return y if rest is None else n.add(slicing.Concat(3), y, rest)
