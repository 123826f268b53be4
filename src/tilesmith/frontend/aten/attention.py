"""Attention."""

from __future__ import annotations

from functools import partial

from tilesmith.frontend.aten.node import AtenNode
from tilesmith.frontend.aten.random_numbers import dropped
from tilesmith.frontend.aten.registry import aten_op
from tilesmith.graph.nodes import Value
from tilesmith.ops.attention import Attention


@aten_op("aten.scaled_dot_product_attention.default")
def scaled_dot_product_attention(
    n: AtenNode,
    query: Value,
    key: Value,
    value: Value,
    attn_mask: Value | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Value:
    mask = () if attn_mask is None else (attn_mask,)
    if attn_mask is not None and not attn_mask.dtype.is_bool:
        mask = (n.cast(attn_mask, query.dtype),)
    op = Attention(scale, is_causal)
    if not dropout_p:
        return n.add(op, query, key, value, *mask)
    return op.attended(n.builder, (query, key, value, *mask), partial(dropped, n, rate=dropout_p))


@aten_op("aten._scaled_dot_product_flash_attention_for_cpu.default")
def flash_attention(
    n: AtenNode,
    query: Value,
    key: Value,
    value: Value,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    attn_mask: Value | None = None,
    scale: float | None = None,
) -> tuple[Value, None]:
    """PyTorch's attention kernel.  The second result is None, as only the gradient needs it."""
    y = scaled_dot_product_attention(n, query, key, value, attn_mask, dropout_p, is_causal, scale)
    return y, None
