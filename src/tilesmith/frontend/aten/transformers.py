"""PyTorch's fast paths of multi-head attention and of encoder layers.  During inference, modules
call each fast path as one operator, so traces contain these operators.
"""

from __future__ import annotations

import math

from tilesmith.frontend.aten.activations import gelu
from tilesmith.frontend.aten.attention import scaled_dot_product_attention
from tilesmith.frontend.aten.contractions import linear
from tilesmith.frontend.aten.node import AtenNode
from tilesmith.frontend.aten.normalizations import layer_norm
from tilesmith.frontend.aten.registry import aten_op
from tilesmith.graph.nodes import Value
from tilesmith.ops import activation as act
from tilesmith.ops import matmul, norm, slicing
from tilesmith.ops.functions import where

_PADDING = 1
"""The `mask_type` of masks of keys, bool [batch, keys]."""


@aten_op("aten._native_multi_head_attention.default")
def multi_head_attention(
    n: AtenNode, query: Value, key: Value, value: Value, embed_dim: int, num_head: int,
    qkv_weight: Value, qkv_bias: Value, proj_weight: Value, proj_bias: Value,
    mask: Value | None = None, need_weights: bool = True, average_attn_weights: bool = True,
    mask_type: int | None = None,
) -> tuple[Value, Value | None]:  # fmt: skip
    """Attention for inputs [batch, tokens, features].  `mask` is true where a key is left out.

    A row whose keys are all left out is NaN, as in PyTorch.
    """
    heads, size = num_head, embed_dim // num_head

    def headed(x: Value, part: int) -> Value:
        low, high = part * embed_dim, (part + 1) * embed_dim
        weight, bias = (
            n.add(slicing.Slice((low,), (high,), (0,), (1,)), w) for w in (qkv_weight, qkv_bias)
        )
        y = linear(n, x, weight, bias)
        return n.permute(n.reshape(y, (*x.type.shape[:2], heads, size)), (0, 2, 1, 3))

    q, k, v = (headed(x, part) for part, x in enumerate((query, key, value)))
    weights: Value | None = None
    if mask is None and not need_weights:
        y = scaled_dot_product_attention(n, q, k, v)
    else:
        scores = n.add(matmul.MatMul(transpose_b=True), q, k)
        scores = scores * (1 / math.sqrt(size))
        if mask is not None:
            hidden = n.truth(mask)
            if mask_type == _PADDING:
                batch, keys = hidden.type.shape
                hidden = n.reshape(hidden, (batch, 1, 1, keys))
            scores = where(hidden, -math.inf, scores)
        shares = n.add(norm.Softmax(3), scores)
        y = n.add(matmul.MatMul(), shares, v)
        if need_weights:
            weights = shares.mean((1,)) if average_attn_weights else shares
    y = n.reshape(n.permute(y, (0, 2, 1, 3)), (*query.type.shape[:2], embed_dim))
    return linear(n, y, proj_weight, proj_bias), weights


@aten_op("aten._transformer_encoder_layer_fwd.default")
def encoder_layer(
    n: AtenNode, src: Value, embed_dim: int, num_heads: int, qkv_weight: Value, qkv_bias: Value,
    proj_weight: Value, proj_bias: Value, use_gelu: bool, norm_first: bool, eps: float,
    norm_weight_1: Value, norm_bias_1: Value, norm_weight_2: Value, norm_bias_2: Value,
    ffn_weight_1: Value, ffn_bias_1: Value, ffn_weight_2: Value, ffn_bias_2: Value,
    mask: Value | None = None, mask_type: int | None = None,
) -> Value:  # fmt: skip
    """A transformer's encoder layer: attention, then two linear layers.  Both parts are added to
    their input.  Normalisation comes before each part, or after each sum.
    """

    def first(x: Value) -> Value:
        return layer_norm(n, x, (embed_dim,), norm_weight_1, norm_bias_1, eps)

    def second(x: Value) -> Value:
        return layer_norm(n, x, (embed_dim,), norm_weight_2, norm_bias_2, eps)

    def attended(x: Value) -> Value:
        return multi_head_attention(
            n, x, x, x, embed_dim, num_heads, qkv_weight, qkv_bias, proj_weight, proj_bias, mask,
            False, True, mask_type,
        )[0]  # fmt: skip

    def fed(x: Value) -> Value:
        h = linear(n, x, ffn_weight_1, ffn_bias_1)
        h = gelu(n, h) if use_gelu else n.add(act.Relu(), h)
        return linear(n, h, ffn_weight_2, ffn_bias_2)

    if norm_first:
        x = src + attended(first(src))
        return x + fed(second(x))
    x = first(src + attended(src))
    return second(x + fed(x))
