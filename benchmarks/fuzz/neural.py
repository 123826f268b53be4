"""Recipes of contractions, windows, normalisations, resizing, attention and recurrence."""

from __future__ import annotations

from typing import Any

import numpy as np

from .builder import F32, FLOATS, Array, Builder, Rejected, recipe

U8, I8 = np.dtype(np.uint8), np.dtype(np.int8)


def _finite(a: Array) -> bool:
    return bool(np.isfinite(a.astype(np.float64)).all())


def plain(b: Builder, shape: Any, dtype: np.dtype = F32, stored: float = 0.5) -> str:
    """A new operand of small numbers, as weights are."""
    array = np.asarray(b.random.standard_normal(tuple(shape))).astype(dtype)
    return b.store(array) if b.chance(stored) else b.given(array)


@recipe("MatMul", "MatMulInteger")
def matmul(b: Builder, op: str) -> None:
    x = b.pick(b.types(op), rank=(1, 4))
    a = b.of(x)
    inner = a.shape[-1]
    batch = [d if b.chance(0.7) else 1 for d in a.shape[b.number(0, max(a.ndim - 2, 0)) : -2]]
    other = b.choose([(inner,), (*batch, inner, b.extent(9))])
    dtype = a.dtype if op == "MatMul" else b.choose([U8, I8])
    zeros = []
    if op != "MatMul" and b.chance(0.6):
        zeros = [b.store(np.array(b.number(0, 9), d)) for d in (a.dtype, dtype)]
    b.add(op, [x, b.fresh(other, dtype, stored=0.5), *zeros])


@recipe("Gemm")
def gemm(b: Builder, op: str) -> None:
    allowed = [d for d in b.types(op) if d.kind not in "iu"]
    x = b.pick(allowed, rank=(2, 2))
    dtype, ta, tb = b.of(x).dtype, b.number(0, 1), b.number(0, 1)
    (k, m), n = b.of(x).shape if ta else b.of(x).shape[::-1], b.extent(9)
    shape = (n, k) if tb else (k, n)
    bias = (
        [plain(b, b.choose([(), (n,), (1, n), (m, 1), (m, n)]), dtype)]
        if b.chance(0.7) or b.opset < 11
        else []
    )
    scales = {s: b.choose([1.0, 0.5, -2.0]) for s in ("alpha", "beta") if b.chance(0.5)}
    b.add(op, [x, plain(b, shape, dtype), *bias], transA=ta, transB=tb, **scales)


@recipe("Einsum")
def einsum(b: Builder, op: str) -> None:
    text = b.choose(
        [
            "ij,jk->ik",
            "bij,bkj->bik",
            "ii->i",
            "ij->ji",
            "i,j->ij",
            "bhid,bhjd->bhij",
            "ij,ij->",
            "...ij,...jk->...ik",
        ]
    )
    sizes: dict[str, int] = {}
    operands = []
    for term in text.split("->")[0].split(","):
        dims = [sizes.setdefault(c, b.extent(6)) for c in term.replace("...", "")]
        operands.append(plain(b, [2] * term.count("...") + dims))
    b.add(op, operands, equation=text)


def _windows(b: Builder, dims: tuple[int, ...], pool: bool) -> dict[str, Any]:
    """Attributes of windows over images of extents `dims`, none larger than its image."""
    rank = len(dims)
    kernel = [b.number(1, min(4, d)) for d in dims]
    found: dict[str, Any] = {"kernel_shape": kernel}
    if b.chance(0.6):
        found["strides"] = [b.number(1, 3) for _ in dims]
    if b.chance(0.3) and (not pool or b.opset >= 10):
        room = [
            min(2, (d - 1) // (k - 1) if k > 1 else 2) for d, k in zip(dims, kernel, strict=True)
        ]
        found["dilations"] = [b.number(1, most) for most in room]
    form = b.number(0, 4)
    if form <= 1:
        dilated = found.get("dilations", [1] * rank)
        most = [(k - 1) * d if not pool else k - 1 for k, d in zip(kernel, dilated, strict=True)]
        found["pads"] = [b.number(0, most[i % rank]) for i in range(2 * rank)]
    elif form == 2:
        found["auto_pad"] = b.choose(["SAME_UPPER", "SAME_LOWER", "VALID"])
        if found["auto_pad"] != "VALID":
            found.pop("dilations", None)  # engines differ: docs/conformance.md
            found["strides"] = [b.number(1, k) for k in kernel]
    return found


def _image(b: Builder, allowed: Any = (F32,)) -> str:
    return b.pick(
        allowed, rank=(3, 5), fits=lambda a: a.size > 0 and min(a.shape[2:]) > 0 and _finite(a)
    )


@recipe("Conv", "ConvInteger")
def conv(b: Builder, op: str) -> None:
    x = _image(b, FLOATS[:3] if op == "Conv" else (U8,))
    image = b.of(x)
    group = b.choose([g for g in range(1, image.shape[1] + 1) if image.shape[1] % g == 0])
    windows = _windows(b, image.shape[2:], pool=False)
    if b.chance(0.3):
        windows["group"] = group
    group = windows.get("group", 1)
    out = group * b.number(1, 3)
    shape = (out, image.shape[1] // group, *windows["kernel_shape"])
    if op == "Conv":
        weight = plain(b, shape, image.dtype, 0.8)
        more = [plain(b, (out,), image.dtype, 0.8)] if b.chance(0.5) else []
    else:
        weight = b.fresh(shape, b.choose([U8, I8]), 0.8)
        more = [b.store(np.uint8(b.number(0, 9)))] if b.chance(0.5) else []
    b.add(op, [x, weight, *more], **windows)


@recipe("ConvTranspose")
def conv_transpose(b: Builder, op: str) -> None:
    x = _image(b, FLOATS[:2])
    image = b.of(x)
    windows = _windows(b, image.shape[2:], pool=False)
    if windows.get("auto_pad", "VALID") != "VALID":
        del windows["auto_pad"]
    strides = windows.get("strides", [1] * (image.ndim - 2))
    if b.chance(0.3):
        windows["output_padding"] = [b.number(0, s - 1) for s in strides]
    group = b.choose([g for g in range(1, image.shape[1] + 1) if image.shape[1] % g == 0])
    shape = (image.shape[1], b.number(1, 3), *windows["kernel_shape"])
    bias = [plain(b, (shape[1] * group,), image.dtype)] if b.chance(0.4) else []
    b.add(op, [x, plain(b, shape, image.dtype, 0.8), *bias], group=group, **windows)


@recipe("MaxPool", "AveragePool", "LpPool")
def pool(b: Builder, op: str) -> None:
    x = _image(b, [d for d in b.types(op) if d in (*FLOATS[:3], U8, I8)])
    windows = _windows(b, b.of(x).shape[2:], pool=True)
    if (op == "AveragePool" and b.opset < 19) or (op == "LpPool" and b.opset < 18):
        windows.pop("dilations", None)
    if op == "MaxPool" and b.opset < 10:
        windows.pop("dilations", None)
    since = {"MaxPool": 10, "AveragePool": 10, "LpPool": 18}[op]
    if b.opset >= since and b.chance(0.3) and "auto_pad" not in windows:
        windows["ceil_mode"] = 1
    if op == "AveragePool" and b.chance(0.3):
        windows["count_include_pad"] = 1
    if op == "LpPool":
        windows["p"] = b.number(1, 3)
    indices = op == "MaxPool" and b.chance(0.3)
    b.add(op, [x], 2 if indices else 1, **windows)


@recipe("GlobalAveragePool", "GlobalMaxPool", "GlobalLpPool")
def global_pool(b: Builder, op: str) -> None:
    b.add(op, [_image(b, [d for d in b.types(op) if d in FLOATS[:3]])])


@recipe("BatchNormalization")
def batch_norm(b: Builder, op: str) -> None:
    x = b.pick(FLOATS[:2], rank=(2, 5), fits=lambda a: a.size > 0 and _finite(a))
    channels, dtype = b.of(x).shape[1], b.of(x).dtype
    parts = [plain(b, (channels,), dtype) for _ in range(3)]
    b.add(op, [x, *parts, b.store((b.random.random(channels) + 0.5).astype(dtype))], epsilon=1e-3)


@recipe("InstanceNormalization")
def instance_norm(b: Builder, op: str) -> None:
    x = _image(b, FLOATS[:2])
    dims, dtype = b.of(x).shape, b.of(x).dtype
    b.add(op, [x, plain(b, (dims[1],), dtype), plain(b, (dims[1],), dtype)], epsilon=1e-2)


@recipe("LayerNormalization", "RMSNormalization")
def layer_norm(b: Builder, op: str) -> None:
    x = b.pick(FLOATS[:2], rank=(1, 4), fits=lambda a: a.size > 0 and _finite(a))
    array = b.of(x)
    axis = b.axis(array.ndim)
    parts = [
        plain(b, array.shape[axis:], array.dtype)
        for _ in range(1 if op[0] == "R" or b.chance(0.5) else 2)
    ]
    b.add(op, [x, *parts], axis=axis, epsilon=1e-2)


@recipe("GroupNormalization")
def group_norm(b: Builder, op: str) -> None:
    x = _image(b)
    channels = b.of(x).shape[1]
    groups = b.choose([g for g in range(1, channels + 1) if channels % g == 0])
    size = channels if b.opset >= 21 else groups
    b.add(op, [x, plain(b, (size,)), plain(b, (size,))], num_groups=groups, epsilon=1e-2)


@recipe("LRN")
def lrn(b: Builder, op: str) -> None:
    # ONNX Runtime takes rank 4 and odd sizes only.
    x = b.pick((F32,), rank=(4, 4), fits=lambda a: a.size > 0 and _finite(a))
    b.add(op, [x], size=b.choose([1, 3, 5]), alpha=0.1, beta=0.75)


@recipe("LpNormalization")
def lp_norm(b: Builder, op: str) -> None:
    x = b.pick(FLOATS[:2], rank=(1, 4), fits=_finite)
    b.add(op, [x], axis=b.axis(b.of(x).ndim), p=b.number(1, 2))


@recipe("MeanVarianceNormalization")
def mean_variance(b: Builder, op: str) -> None:
    x = b.pick((F32,), rank=(4, 4), fits=lambda a: a.size > 0 and _finite(a))
    b.add(op, [x], **({"axes": b.choose([[0, 2, 3], [2, 3], [1]])} if b.chance(0.7) else {}))


@recipe("Resize")
def resize(b: Builder, op: str) -> None:
    if b.opset < 11:
        raise Rejected("its first version was of another meaning")
    x = b.pick((F32,), rank=(1, 4), fits=lambda a: a.size > 0 and _finite(a))
    dims = b.of(x).shape
    mode = b.choose(["nearest", "linear", "cubic"])
    changed = range(max(len(dims) - 2, 0), len(dims))
    more: dict[str, Any] = {"mode": mode}
    if b.chance(0.7):
        kinds = ["half_pixel", "asymmetric", "align_corners", "pytorch_half_pixel"]
        more["coordinate_transformation_mode"] = b.choose(kinds)
    if mode == "nearest" and b.chance(0.7):
        kinds = ["round_prefer_floor", "round_prefer_ceil", "floor", "ceil"]
        more["nearest_mode"] = b.choose(kinds)
    if mode == "cubic" and b.chance(0.4):
        more["exclude_outside"] = 1
    if mode != "nearest" and b.opset >= 18 and b.chance(0.3):
        more["antialias"] = 1
    # By scales, the reference evaluator divides by a fractional length (docs/conformance.md).
    is_aligned = more.get("coordinate_transformation_mode") == "align_corners"
    if b.chance(0.5) or is_aligned:
        sizes = [b.number(1, 9) if i in changed else d for i, d in enumerate(dims)]
        b.add(
            op,
            [
                x,
                b.store(np.zeros(0, np.float32)) if b.opset < 13 else "",
                "" if b.opset >= 13 else b.store(np.zeros(0, np.float32)),
                b.ints(*sizes),
            ],
            **more,
        )
    else:
        scales = [
            b.choose([0.5, 0.6, 1.0, 1.5, 2.0, 3.0]) if i in changed else 1.0
            for i in range(len(dims))
        ]
        b.add(op, [x, b.store(np.zeros(0, np.float32)), b.store(np.float32(scales))], **more)


@recipe("GridSample")
def grid_sample(b: Builder, op: str) -> None:
    n, h, w = b.extent(2, 1), b.extent(5, 1), b.extent(5, 1)
    grid = b.random.uniform(-1.4, 1.4, (n, b.extent(4, 1), b.extent(4, 1), 2)).astype(np.float32)
    modes = ["linear", "nearest", "cubic"] if b.opset >= 20 else ["bilinear", "nearest", "bicubic"]
    x = plain(b, (n, b.extent(3, 1), h, w))
    b.add(
        op,
        [x, b.given(grid)],
        mode=b.choose(modes),
        align_corners=b.number(0, 1),
        padding_mode=b.choose(["zeros", "border", "reflection"]),
    )


@recipe("LSTM", "GRU", "RNN")
def recurrent(b: Builder, op: str) -> None:
    gates = {"LSTM": 4, "GRU": 3, "RNN": 1}[op]
    steps, batch, size, hidden = b.extent(5, 1), b.extent(3, 1), b.extent(5, 1), b.extent(4, 1)
    direction = b.choose(["forward", "reverse", "bidirectional"])
    d = 2 if direction == "bidirectional" else 1
    parts = [plain(b, (steps, batch, size), stored=0.0)]
    parts += [
        plain(b, (d, gates * hidden, size), stored=0.8),
        plain(b, (d, gates * hidden, hidden), stored=0.8),
    ]
    parts.append(plain(b, (d, 2 * gates * hidden), stored=0.8) if b.chance(0.7) else "")
    parts.append("")  # the reference evaluator ignores lengths
    for _ in range(2 if op == "LSTM" else 1):
        parts.append(plain(b, (d, batch, hidden)) if b.chance(0.5) else "")
    more = {"linear_before_reset": b.number(0, 1)} if op == "GRU" else {}
    while not parts[-1]:
        parts.pop()
    b.add(op, parts, 3 if op == "LSTM" else 2, hidden_size=hidden, direction=direction, **more)


@recipe("Attention")
def attention(b: Builder, op: str) -> None:
    if b.opset < 23:
        raise Rejected("newer")
    n, heads, rep, q, k, d, v = (b.extent(m, 1) for m in (2, 2, 2, 5, 5, 4, 4))
    parts = [plain(b, s) for s in ((n, heads * rep, q, d), (n, heads, k, d), (n, heads, k, v))]
    if b.chance(0.5):
        shape = b.choose([(q, k), (n, 1, q, k), (1, heads * rep, q, k)])
        parts.append(b.given(b.random.random(shape) < 0.7) if b.chance(0.5) else plain(b, shape))
    more: dict[str, Any] = {"is_causal": 1} if b.chance(0.4) else {}
    if b.chance(0.3):
        more["softcap"] = 2.0
    b.add(op, parts, **more)


@recipe("NegativeLogLikelihoodLoss", "SoftmaxCrossEntropyLoss")
def loss(b: Builder, op: str) -> None:
    n, classes, rest = b.extent(4, 1), b.extent(5, 1), [b.extent(3, 1)] * b.number(0, 2)
    target = b.given(b.random.integers(0, classes, (n, *rest)).astype(np.int64))
    weight = [plain(b, (classes,))] if b.chance(0.4) else []
    b.add(
        op,
        [plain(b, (n, classes, *rest)), target, *weight],
        reduction=b.choose(["none", "sum", "mean"]),
    )


@recipe("Det")
def det(b: Builder, op: str) -> None:
    size = b.number(1, 4)
    b.add(op, [plain(b, (*b.shape(0, 2), size, size))])


@recipe("Col2Im")
def col2im(b: Builder, op: str) -> None:
    h, w, kh, kw = b.number(2, 5), b.number(2, 5), b.number(1, 2), b.number(1, 2)
    x = plain(b, (1, 2 * kh * kw, (h - kh + 1) * (w - kw + 1)))
    b.add(op, [x, b.ints(h, w), b.ints(kh, kw)])
