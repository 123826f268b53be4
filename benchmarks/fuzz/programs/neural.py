"""Recipes of products, convolutions, pools, norms, attention and losses."""

from __future__ import annotations

import torch

from .draw import BOOL, F32, FLOATS, INTS, Draw, recipe


@recipe(3)
def product(d: Draw) -> None:
    x = d.pick(FLOATS if d.chance(0.9) else INTS, (1, 4))
    t = d.of(x)
    if d.chance(0.5) and t.ndim > 0:
        y = d.new((t.shape[-1], d.extent(8)), t.dtype)
        d.add(d.choose(["torch.matmul({0}, {1})", "{0} @ {1}"]), x, y)
    elif t.ndim > 1:
        y = d.new((*t.shape[:-2], t.shape[-1], d.extent(6)), t.dtype)
        d.add("{0} @ {1}" if d.chance(0.7) else "torch.matmul({1}.mT, {0}.mT)", x, y)
    else:
        y = d.new(d.shape(1, 1), t.dtype)
        d.add(d.choose(["torch.outer({0}, {1})", "torch.kron({0}, {1})"]), x, y)


@recipe()
def sums_of_products(d: Draw) -> None:
    x = d.pick(FLOATS, (2, 3))
    t = d.of(x)
    y = d.new(t.shape, t.dtype)
    form = d.choose(
        [
            "torch.einsum('...ij,...kj->...ik', {0}, {1})",
            "torch.einsum('...ij,...ij->...j', {0}, {1})",
            "torch.tensordot({0}, {1}, dims=([-1], [-1]))",
            "torch.einsum('...ij->...ji', {0})",
            "torch.einsum('...ij,...ij->...', {0}, {1})",
            "torch.cdist({0}, {1})",
            "{0} @ {1}.mT",
        ]
    )
    d.add(form, x, y)


@recipe(2)
def linear(d: Draw) -> None:
    x = d.pick(FLOATS, (1, 4))
    t = d.of(x)
    out = d.extent(9)
    w = d.new((out, t.shape[-1]), t.dtype)
    if d.chance(0.6):
        d.add("F.linear({0}, {1}, {2})", x, w, d.new((out,), t.dtype))
    else:
        d.add("F.linear({0}, {1})", x, w)


@recipe(0.7)
def added_product(d: Draw) -> None:
    m, k, n = d.number(1, 6), d.number(1, 6), d.number(1, 6)
    b, x, y = d.new((d.choose([1, m]), n)), d.new((m, k)), d.new((k, n))
    scale = d.choose(["", ", beta=0.5, alpha=2", ", beta=0"])
    d.add(f"torch.addmm({{0}}, {{1}}, {{2}}{scale})", b, x, y)


def _image(d: Draw, rank: int) -> str:
    return d.pick(FLOATS, (rank, rank), lambda t: t.shape[1] > 0 and t.numel() <= 1024)


@recipe(2)
def convolution(d: Draw) -> None:
    dims = d.choose([1, 2, 2])
    x = _image(d, dims + 2)
    t = d.of(x)
    groups = d.choose([1, 1, 1, t.shape[1]])
    out = groups * d.number(1, 3)
    kernel = [d.number(1, 3) for _ in range(dims)]
    bias = d.chance(0.6)
    more = f"stride={d.number(1, 2)}, groups={groups}"
    if transposed := d.chance(0.25):
        w = d.new((t.shape[1], out // groups, *kernel), t.dtype)
        more += f", padding={d.number(0, 1)}"
    else:
        w = d.new((out, t.shape[1] // groups, *kernel), t.dtype)
        more += f", padding={d.number(0, 2)}, dilation={d.number(1, 2)}"
    op = f"conv_transpose{dims}d" if transposed else f"conv{dims}d"
    form = f"F.{op}({{0}}, {{1}}, {'{2}' if bias else None}, {more})"
    d.add(form, x, w, *([d.new((out,), t.dtype)] if bias else []))


@recipe(1.5)
def pool(d: Draw) -> None:
    dims = d.choose([1, 2, 2])
    x = _image(d, dims + 2)
    k = d.number(1, 3)
    form = d.choose(
        [
            f"F.max_pool{dims}d({{0}}, {k}, stride={d.number(1, 2)}, padding={k // 2})",
            f"F.avg_pool{dims}d({{0}}, {k}, padding={k // 2}, count_include_pad={d.chance(0.5)})",
            f"F.avg_pool{dims}d({{0}}, {k}, ceil_mode={d.chance(0.3)})",
            f"F.adaptive_avg_pool{dims}d({{0}}, {d.number(1, 3)})",
            f"F.adaptive_max_pool{dims}d({{0}}, {d.number(1, 2)})",
            "F.interpolate({0}, scale_factor=2)",
            f"F.interpolate({{0}}, size={d.number(1, 6)}, mode='nearest')",
        ]
    )
    d.add(form, x)


@recipe(0.5)
def image(d: Draw) -> None:
    x = _image(d, 4)
    form = d.choose(
        [
            "F.interpolate({0}, scale_factor=2, mode='bilinear', align_corners=True)",
            "F.interpolate({0}, size=(5, 4), mode='bilinear')",
            "F.interpolate({0}, scale_factor=1.5, mode='bicubic')",
            "F.unfold({0}, 2)",
            "F.pixel_unshuffle({0}, 1)",
            f"F.lp_pool2d({{0}}, 2, {d.number(1, 2)})",
        ]
    )
    d.add(form, x)


@recipe(2)
def norm(d: Draw) -> None:
    x = d.pick(FLOATS, (2, 4))
    t = d.of(x)
    kind = d.number(0, 4)
    channels = t.shape[1]
    if kind == 0:
        w, b = (d.new((t.shape[-1],), t.dtype) for _ in range(2))
        d.add(f"F.layer_norm({{0}}, ({d.size(x, -1)},), {{1}}, {{2}})", x, w, b)
    elif kind == 1:
        groups = d.choose([g for g in (1, 2, 3) if channels and channels % g == 0] or [1])
        w, b = (d.new((channels,), t.dtype) for _ in range(2))
        d.add(f"F.group_norm({{0}}, {groups}, {{1}}, {{2}})", x, w, b)
    elif kind == 2:
        w = d.new((t.shape[-1],), t.dtype)
        d.add(f"F.rms_norm({{0}}, ({d.size(x, -1)},), {{1}})", x, w)
    elif kind == 3:
        training = d.chance(0.4)
        mean = d._kept("b", d.buffers, torch.zeros(channels, dtype=t.dtype))
        var = d._kept("b", d.buffers, torch.ones(channels, dtype=t.dtype))
        d.add(f"F.batch_norm({{0}}, {{1}}, {{2}}, training={training})", x, mean, var)
    else:
        d.add("F.instance_norm({0})", x)


@recipe(2)
def softmax(d: Draw) -> None:
    x = d.pick(FLOATS, (1, 4))
    op = d.choose(["softmax", "softmax", "log_softmax", "softmin"])
    d.add(f"F.{op}({{0}}, dim={d.axis(x)})", x)


@recipe()
def gated(d: Draw) -> None:
    x = d.pick(FLOATS, (1, 4), lambda t: t.shape[-1] % 2 == 0)
    d.add(
        d.choose(["F.glu({0}, -1)", "F.prelu({0}, {1})", "F.dropout({0}, 0.3, training=False)"]),
        x,
        d.new((1,), d.of(x).dtype),
    )


@recipe(1.5)
def attention(d: Draw) -> None:
    q = d.pick(FLOATS, (3, 4), lambda t: t.numel() <= 512 and t.shape[-1] > 0)
    t = d.of(q)
    length = d.extent(8)
    k, v = (d.new((*t.shape[:-2], length, t.shape[-1]), t.dtype) for _ in range(2))
    kind = d.random.random()
    if kind < 0.3:
        d.add("F.scaled_dot_product_attention({0}, {1}, {2})", q, k, v)
    elif kind < 0.5:
        d.add("F.scaled_dot_product_attention({0}, {1}, {2}, is_causal=True)", q, k, v)
    else:
        lead = d.choose([(), (1,) * (t.ndim - 2), tuple(t.shape[:-2])])
        mask = d.new((*lead, t.shape[-2], length), BOOL if d.chance(0.6) else t.dtype)
        d.add("F.scaled_dot_product_attention({0}, {1}, {2}, attn_mask={3})", q, k, v, mask)


@recipe()
def loss(d: Draw) -> None:
    x = d.pick((F32,), (2, 2), lambda t: t.shape[1] > 1)
    t = d.of(x)
    target = d.given(
        torch.as_tensor(d.random.integers(0, t.shape[1], t.shape[:1])), only_input=True
    )
    form = d.choose(
        [
            "F.cross_entropy({0}, {1})",
            "F.cross_entropy({0}, {1}, ignore_index=0, reduction='sum')",
            "F.nll_loss(F.log_softmax({0}, 1), {1})",
            "F.cross_entropy({0}, {1}, label_smoothing=0.1)",
            "F.cross_entropy({0}, {1}, reduction='none')",
            "F.multi_margin_loss({0}, {1})",
        ]
    )
    d.add(form, x, target)


@recipe(0.5)
def two_sided_loss(d: Draw) -> None:
    x = d.pick((F32,), (1, 3))
    form = d.choose(
        [
            "F.binary_cross_entropy_with_logits({0}, {1}.sigmoid())",
            "F.binary_cross_entropy({0}.sigmoid(), {1}.sigmoid())",
            "F.soft_margin_loss({0}, {1}.sign())",
            "F.gaussian_nll_loss({0}, {1}, {1}.abs())",
        ]
    )
    d.add(form, x, d.new(d.of(x).shape))
