"""Keras' attention layers."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

from tilesmith.frontend.keras.node import KerasNode, Tensor, with_axis
from tilesmith.frontend.keras.registry import layer
from tilesmith.graph.nodes import Value
from tilesmith.ir import extents
from tilesmith.ir.dtypes import bool_
from tilesmith.ir.types import Dim
from tilesmith.ops import attention as att
from tilesmith.ops import functions as fn
from tilesmith.ops import matmul as mm
from tilesmith.ops import norm


def causal(n: KerasNode, rows: Dim, columns: Dim) -> Value:
    """Bools [rows, columns], true where the column's index is at most the row's."""
    return n.positions(columns, 2, 1) <= n.positions(rows, 2, 0)


def _both(a: Value | None, b: Value | None) -> Value | None:
    return b if a is None else a if b is None else a & b


def _projected(n: KerasNode, x: Value, name: str, index: int, of: int) -> Value:
    """`x` [..., D] times a kernel [D, heads, width], plus a bias; gives [..., heads, width].

    name, index, of: the projection's name, its number, and the number of projections.
    """
    own = _part(n, name, index, of)
    w = own.weight(0)
    depth, *heads = n.shape(w)
    y = n.add(mm.MatMul(), x, n.reshape(w, (depth, math.prod(heads))))
    y = n.reshape(y, (*x.type.shape[:-1], *heads))
    return y + own.weight(1) if n.option("use_bias", True) else y


def _part(n: KerasNode, name: str, index: int, of: int) -> KerasNode:
    return replace(n, weights=n.weights.part([f"{name}_dense", f"_{name}_dense"], index, of))


@layer("MultiHeadAttention", "GroupedQueryAttention", "GroupQueryAttention")
def multi_head_attention(n: KerasNode) -> Any:
    is_grouped = n.kind.startswith("Group")
    query, value, key = _operands(n)
    q, v = query.value, value.value
    k = v if key is None else key.value
    assert isinstance(q, Value) and isinstance(v, Value) and isinstance(k, Value)
    gated = bool(n.option("use_gate", False))
    parts = ["query", "key", "value", *["gate"] * gated, "output"]
    of = len(parts)
    projected = [_projected(n, x, name, i, of) for i, (x, name) in enumerate(zip((q, k, v), parts))]
    axes = n.option("attention_axes", None) or list(range(1, q.type.rank - 1))
    axes = n.axes((axes,) if isinstance(axes, int) else tuple(axes), q.type.rank)
    outside = [a for a in range(q.type.rank - 1) if a not in axes]
    flat: list[Value] = []
    for p in projected:  # [outside..., axes..., heads, width] to [outside..., heads, rows, width]
        dims = p.type.shape
        p = p.transpose(*outside, q.type.rank - 1, *axes, q.type.rank)
        rows = extents.product(dims[a] for a in axes)
        flat.append(n.reshape(p, (*(dims[a] for a in outside), dims[-2], rows, dims[-1])))
    mask = _mask(n, query, value, key, flat[0].type.shape[-2], flat[1].type.shape[-2])
    if mask is not None:
        mask = with_axis(n, mask, -3)
        for _ in range(flat[0].type.rank - mask.type.rank):
            mask = with_axis(n, mask, -4)
    width = n.extent(flat[0], flat[0].type.rank - 1)
    if n.argument("return_attention_scores", None, False):
        if is_grouped:
            n.unsupported("return_attention_scores")
        scores = n.add(mm.MatMul(transpose_b=True), flat[0] * (1 / math.sqrt(width)), flat[1])
        scores = scores if mask is None else fn.where(mask, scores, scores - 3e4)
        scores = n.add(norm.Softmax(-1), scores)
        y = n.add(mm.MatMul(), scores, flat[2])
    else:
        scores = None
        y = n.add(att.Attention(), *flat, *([] if mask is None else [mask]))
    dims, count = q.type.shape, len(outside)
    y = n.reshape(y, (*y.type.shape[: count + 1], *(dims[a] for a in axes), y.type.shape[-1]))
    order = [*outside, -1, *axes]  # the query's axis for each axis of y
    places = [order.index(a) for a in range(q.type.rank - 1)]
    y = y.transpose(*places, count, y.type.rank - 1)
    if gated:
        y = y * _projected(n, q, "gate", 3, of)
    own = _part(n, "output", of - 1, of)
    w = own.weight(0)
    heads, values, *out = n.shape(w)
    y = n.reshape(y, (*dims[:-1], heads * values))
    y = n.add(mm.MatMul(), y, n.reshape(w, (heads * values, math.prod(out))))
    y = n.reshape(y, (*dims[:-1], *out))
    y = y + own.weight(1) if n.option("use_bias", True) else y
    shown = Tensor(y, _given(n, "query_mask", query))
    return shown if scores is None else [shown, scores]


def _operands(n: KerasNode) -> tuple[Tensor, Tensor, Tensor | None]:
    """The query, the value, and the key if it is given."""
    passed = [*n.args, *[None] * 3][:3]
    query, value, key = (n.kwargs.get(k, g) for k, g in zip(("query", "value", "key"), passed))
    if not isinstance(query, Tensor) or not isinstance(value, Tensor):
        n.bad("expected a query and a value")
    return query, value, key if isinstance(key, Tensor) else None


def _mask(
    n: KerasNode, query: Tensor, value: Tensor, key: Tensor | None, rows: Dim, columns: Dim
) -> Value | None:
    """Whether each query (row) attends to each key (column), [batch or 1, rows, columns].

    None if all queries attend to all keys.
    """
    mask = None
    tensors = (("query", query), ("value", value), ("key", key))
    for axis, (name, t) in zip((-1, -2, -2), tensors, strict=True):
        own = _given(n, f"{name}_mask", t)
        mask = mask if own is None else _both(mask, with_axis(n, own, axis))
    if n.argument("use_causal_mask", None, False):
        mask = _both(mask, with_axis(n, causal(n, rows, columns), 0))
    window = n.option("sliding_window", None)
    if window is not None:
        apart = abs(n.positions(columns, 2, 1) - n.positions(rows, 2, 0))
        mask = _both(mask, with_axis(n, apart < int(window), 0))
    return _both(mask, _given(n, "attention_mask", None))


def _given(n: KerasNode, name: str, tensor: Tensor | None) -> Value | None:
    """The mask that the call passes as argument `name`, or else the mask of `tensor`."""
    passed = n.kwargs.get(name)
    if isinstance(passed, Tensor) and isinstance(passed.value, Value):
        return passed.value.cast(bool_)
    return None if tensor is None else tensor.mask


@layer("Attention", "AdditiveAttention")
def attention(n: KerasNode) -> Any:
    tensors = [t for t in n.tensors if isinstance(t.value, Value)]
    q, v, *others = n.inputs
    k = others[0] if others and len(n.args[0] if n.args else []) > 2 else v
    masks = n.kwargs.get("mask") or [None, None]
    passed = [m.value.cast(bool_) if isinstance(m, Tensor) else None for m in masks[:2]]  # type: ignore[union-attr]
    own, other = (passed[i] if passed[i] is not None else tensors[i].mask for i in (0, 1))
    scale: Any = None
    if n.kind == "AdditiveAttention" or n.option("score_mode", "dot") == "concat":
        together = with_axis(n, q, -2) + with_axis(n, k, -3)
        is_additive = n.kind == "AdditiveAttention"
        if n.option("use_scale", is_additive):
            scale = n.weight(0)
            together = together * scale if not is_additive else together
        y = fn.tanh(together)
        y = y * scale if is_additive and scale is not None else y
        scores = y.sum((y.type.rank - 1,))
        if not is_additive:
            scores = scores * n.weight(1 if scale is not None else 0)
    else:
        scores = n.add(mm.MatMul(transpose_b=True), q, k)
        scores = scores * n.weight(0) if n.option("use_scale", False) else scores
    mask = None if other is None else with_axis(n, other, -2)
    if n.argument("use_causal_mask", None, n.option("causal", False)):
        mask = _both(mask, with_axis(n, causal(n, *scores.type.shape[-2:]), 0))
    if mask is not None:
        scores = fn.where(mask, scores, scores - (6.5e4 if scores.dtype.bits < 32 else 1e9))
    weights = n.add(norm.Softmax(-1), scores)
    y = n.add(mm.MatMul(), weights, v)
    y = y if own is None else fn.where(with_axis(n, own, -1), y, 0.0)
    shown = Tensor(y, own)
    return [shown, weights] if n.argument("return_attention_scores", None, False) else shown
