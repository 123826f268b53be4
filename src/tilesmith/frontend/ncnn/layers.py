"""ncnn's convolutions, pools, products and normalisations."""

from __future__ import annotations

from tilesmith.frontend.common import pools
from tilesmith.frontend.common.arithmetic import rounded_away
from tilesmith.frontend.common.networks import LayerNode
from tilesmith.frontend.common.slots import Result
from tilesmith.frontend.common.windows import Geometry, add_bias, convolve, geometry
from tilesmith.frontend.ncnn.elements import LAYERS, activate, ncnn_layer
from tilesmith.frontend.ncnn.model import Weights
from tilesmith.graph.nodes import Value
from tilesmith.ir import extents
from tilesmith.ir.dtypes import f32, i8, i64
from tilesmith.ops import activation as act
from tilesmith.ops import conv as cv
from tilesmith.ops import functions as fn
from tilesmith.ops import gather, norm, pool, slicing
from tilesmith.ops import matmul as mm

__all__ = ["LAYERS"]


def take(n: LayerNode, what: str, *shape: int, flagged: bool = False) -> Value:
    """The layer's next stored tensor."""
    weights: Weights = n.layer.attributes["weights"]
    return weights.take(n, what, *shape, flagged=flagged)


def _batch(n: LayerNode, x: Value) -> Value:
    """`x` with a batch axis of extent 1."""
    return n.reshape(x, (1, *x.type.shape))


def _single(n: LayerNode, x: Value) -> Value:
    return n.reshape(x, x.type.shape[1:])


def _pairs(n: LayerNode, x: Value, across: str, down: str, default: int) -> tuple[int, ...]:
    """A number for each spatial axis.

    across: the parameter for the last axis.
    down: the parameter for the other axis; by default its number is that of the last axis.
    """
    width = n.attr_int(across, default)
    return (width,) if x.type.rank == 2 else (n.attr_int(down, width), width)


def _window(n: LayerNode, x: Value, dilated: bool = True) -> Geometry:
    kernel, rank = _pairs(n, x, "1", "11", 0), x.type.rank - 1
    strides = _pairs(n, x, "3", "13", 1) if dilated else _pairs(n, x, "2", "12", 1)
    dilations = _pairs(n, x, "2", "12", 1) if dilated else (1,) * rank
    left = n.attr_int("4" if dilated else "3", 0)
    top = n.attr_int("14" if dilated else "13", left)
    right, bottom = n.attr_int("15" if dilated else "14", left), 0
    if not dilated and rank == 1:
        right = n.attr_int("14", left)
    bottom = n.attr_int("16" if dilated else "15", top)
    pads = (left, right) if rank == 1 else (top, left, bottom, right)
    if left in (-233, -234):  # "same" padding
        g = geometry(n, _batch(n, x), kernel, strides, 0, dilations)
        g.pads = g.same_pads(left == -233)
        return g
    return geometry(n, _batch(n, x), kernel, strides, pads, dilations)


def _quantized(x: Value, scale: Value) -> Value:
    """The integers from -127 to 127 that stand for `x`, rounded half away from zero, as f32."""
    return fn.clip(rounded_away(x * scale), -127, 127)


@ncnn_layer("Convolution", "ConvolutionDepthWise", "Convolution1D", "ConvolutionDepthWise1D")
def convolution(n: LayerNode) -> Result:
    x, count = n.input(), n.attr_int("0", 0, 1)
    groups = n.attr_int("7", 1, 1) if "DepthWise" in n.layer.kind else 1
    if n.attr_int("19", 0):
        n.unsupported("weights that are inputs (19=1)")
    is_product = n.layer.kind == "Convolution" and x.type.rank == 1
    if is_product:  # a list of channels is an image of one pixel
        x = n.reshape(x, (*x.type.shape, 1, 1))
    g, channels = _window(n, x), n.extent(x, 0)
    w = take(n, "weight", count, channels // groups, *g.kernel, flagged=True)
    bias = take(n, "bias", count) if n.attr_int("5", 0) else None
    padding = n.attr_float("18", 0)
    x = _batch(n, x)
    scale: Value | None = None
    if w.dtype is i8:
        term = n.attr_int("8", 0)
        if not 0 < term < 100:
            n.unsupported(f"results that stay int8 (8={term})" if term else "int8 without scales")
        sizes = groups if groups > 1 else count
        each = take(n, "weight_scale", sizes)
        if groups > 1:
            each = n.reshape(n.expand(n.reshape(each, (groups, 1)), (groups, count // groups)),
                             (count,))  # fmt: skip
        own = take(n, "input_scale", 1)
        x, w = _quantized(x, own), w.cast(f32)
        scale = n.reshape(own * each, (count, *[1] * len(g.kernel)))
    if padding:
        rank = len(g.kernel)
        pads = (0, 0, *g.pads[:rank], 0, 0, *g.pads[rank:])
        x = n.add(slicing.Pad(pads, "constant", padding), x)
        g.pads = (0,) * (2 * rank)
    y = convolve(n, x, w, g, groups)
    y = y / scale if scale is not None else y
    y = _single(n, add_bias(n, y, bias))
    return activate(n, n.reshape(y, (count,)) if is_product else y)


@ncnn_layer("Deconvolution", "DeconvolutionDepthWise")
def deconvolution(n: LayerNode) -> Result:
    x, count = n.input(), n.attr_int("0", 0, 1)
    groups = n.attr_int("7", 1, 1) if "DepthWise" in n.layer.kind else 1
    if n.attr_int("28", 0) or n.attr_int("20", 0) or n.attr_int("21", 0):
        n.unsupported("weights that are inputs, or a fixed result size")
    g, channels = _window(n, x), n.extent(x, 0)
    # from [groups, outputs, inputs, kernel] to [groups * inputs, outputs, kernel]
    shape = (groups, count // groups, channels // groups, *g.kernel)
    w = take(n, "weight", *shape, flagged=True).transpose(0, 2, 1, 3, 4)
    w = n.reshape(w, (channels, count // groups, *g.kernel))
    bias = take(n, "bias", count) if n.attr_int("5", 0) else None
    more = n.attr_int("18", 0)
    extra = (n.attr_int("19", more), more)
    pads = g.numbers() or n.unsupported("padding of an open size")
    op = cv.ConvTranspose(g.strides, pads, g.dilations, groups, extra)
    return activate(n, _single(n, add_bias(n, n.add(op, _batch(n, x), w), bias)))


@ncnn_layer("Pooling", "Pooling1D")
def pooling(n: LayerNode) -> Result:
    x, rank = n.input(), n.input().type.rank - 1
    kind: pools.Kind = "average" if n.attr_int("0", 0) else "max"
    batch = _batch(n, x)
    if n.attr_int("4", 0):
        return n.reshape(pools.global_pool(n, batch, kind), x.type.shape[:1])
    if n.attr_int("7", 0):
        width = n.attr_int("8", 0)
        sizes = (width,) if rank == 1 else (n.attr_int("18", width), width)
        sizes = tuple(n.extent(x, 1 + i) if s == -233 else s for i, s in enumerate(sizes))
        if kind == "max":
            return pools.adaptive_maxima(n, x, sizes)[0]
        return pools.adaptive_averages(n, x, sizes)
    g, mode, counts = _window(n, x, dilated=False), n.attr_int("5", 0), bool(n.attr_int("6", 0))
    if mode in (2, 3):
        g.pads, counts = g.same_pads(mode == 2), True
    if (
        mode == 0 and counts and kind == "average"
    ):  # averages also count the filled part of the last window
        sizes = n.shape(x)[1:]
        pads = [p for p in g.pads if isinstance(p, int)]
        for i, (e, k, s) in enumerate(zip(sizes, g.kernel, g.strides, strict=True)):
            pads[rank + i] += -(e + pads[i] + pads[rank + i] - k) % s
        g.pads = tuple(pads)
    return _single(n, pools.pooled(n, batch, kind, g, "floor" if mode else "full", counts))


@ncnn_layer("InnerProduct")
def inner_product(n: LayerNode) -> Result:
    x, count, size = n.input(), n.attr_int("0", 0, 1), n.attr_int("2", 0, 1)
    w = take(n, "weight", count, size // count, flagged=True)
    bias = take(n, "bias", count) if n.attr_int("1", 0) else None
    keeps_rows = x.type.rank == 2 and n.extent(x, 1) == size // count
    x = x if keeps_rows else n.reshape(x, (extents.product(x.type.shape),))
    scale: Value | None = None
    if w.dtype is i8:
        scale = take(n, "weight_scale", count) * (own := take(n, "input_scale", 1))
        x, w = _quantized(x, own), w.cast(f32)
    y = n.add(mm.MatMul(), x, w.transpose(1, 0))
    y = y / scale if scale is not None else y
    return activate(n, y if bias is None else y + bias)


@ncnn_layer("MatMul")
def matmul(n: LayerNode) -> Result:
    return n.add(mm.MatMul(transpose_b=bool(n.attr_int("0", 0))), n.input(0), n.input(1))


@ncnn_layer("Gemm")
def gemm(n: LayerNode) -> Result:
    alpha, beta, kind = n.attr_float("0", 1), n.attr_float("1", 1), n.attr_int("10", 0)
    for key in ("11", "18"):
        if n.attr_int(key, 0):
            n.unsupported(f"parameter {key}={n.attr_int(key)}")
    rows, columns, depth = (n.attr_int(key, 0) for key in ("7", "8", "9"))
    flips = bool(n.attr_int("2", 0)), bool(n.attr_int("3", 0))
    rest = list(n.inputs)
    operands: list[Value] = []
    for i, (key, sides) in enumerate((("4", (rows, depth)), ("5", (depth, columns)))):
        if n.attr_int(key, 0):
            sides = sides[::-1] if flips[i] else sides
            operands.append(take(n, "ab"[i], *sides, flagged=True))
        else:
            operands.append(rest.pop(0))
    y = n.add(mm.MatMul(*flips), *operands)
    addend: Value | None = rest.pop(0) if rest else None
    if n.attr_int("6", 0) and kind != -1:
        shapes = {0: (1,), 1: (rows, 1), 2: (rows, 1), 3: (rows, columns), 4: (1, columns)}
        if kind not in shapes:
            n.bad(f"parameter 10: expected -1 to 4, found {kind}")
        addend = take(n, "c", *shapes[kind], flagged=True)
    y = y if addend is None else y + (addend if beta == 1 else addend * beta)
    y = y if alpha == 1 else y * alpha
    return y.transpose(1, 0) if n.attr_int("14", 0) else y


@ncnn_layer("Embed")
def embed(n: LayerNode) -> Result:
    count, places = n.attr_int("0", 0, 1), n.attr_int("1", 0, 1)
    table = take(n, "weight", places, count, flagged=True)
    y = n.add(gather.Gather(0), table, n.input().cast(i64))
    return y + take(n, "bias", count) if n.attr_int("2", 0) else y


def _outer(n: LayerNode, numbers: Value, like: Value) -> Value:
    """A list reshaped to broadcast along the outermost axis of `like`."""
    return n.reshape(numbers, (*numbers.type.shape, *[1] * (like.type.rank - 1)))


@ncnn_layer("BatchNorm")
def batch_norm(n: LayerNode) -> Result:
    x, count = n.input(), n.attr_int("0", 0, 1)
    slope, mean, variance, bias = (
        _outer(n, take(n, what, count), x) for what in ("slope", "mean", "variance", "bias")
    )
    factor = slope / fn.sqrt(variance + n.attr_float("1", 0))
    return x * factor + (bias - mean * factor)


@ncnn_layer("Scale")
def scale(n: LayerNode) -> Result:
    x, count = n.input(), n.attr_int("0", 0)
    factor = n.input(1) if count == -233 else take(n, "scale", count)
    y = x * _outer(n, factor, x)
    if not n.attr_int("1", 0):
        return y
    return y + _outer(n, take(n, "bias", n.extent(factor, 0)), x)


@ncnn_layer("Bias")
def bias(n: LayerNode) -> Result:
    x, numbers = n.input(), take(n, "bias", n.attr_int("0", 0, 1))
    if x.type.rank < 3:  # it counts as one channel
        numbers = n.add(slicing.Slice((0,), (1,), (0,), (1,)), numbers)
    return x + _outer(n, numbers, x)


@ncnn_layer("PReLU")
def prelu(n: LayerNode) -> Result:
    x = n.input()
    return n.add(act.PRelu(), x, _outer(n, take(n, "slope", n.attr_int("0", 0, 1)), x))


def _normalized(n: LayerNode, x: Value, axes: tuple[int, ...], eps: float) -> Value:
    centred = x - x.mean(axes, keepdims=True)
    return centred / fn.sqrt((centred * centred).mean(axes, keepdims=True) + eps)


def _affine(n: LayerNode, y: Value, count: int, axis: int) -> Value:
    """`y` times stored factors plus stored addends, which lie along `axis` and all later axes.

    With `axis` 0, they lie along the outermost axis only.
    """
    if not n.attr_int("2" if n.layer.kind != "GroupNorm" else "3", 1):
        return y
    dims = n.shape(y)[axis:] if axis else (count, *[1] * (y.type.rank - 1))
    factor = n.reshape(take(n, "gamma", count), dims)
    if n.layer.kind == "RMSNorm":
        return y * factor
    return y * factor + n.reshape(take(n, "beta", count), dims)


def _row_axes(n: LayerNode, x: Value) -> tuple[int, ...]:
    """The axes over which LayerNorm normalises: the last one, or the last two."""
    last = x.type.rank - 1
    size = n.attr_int("0", 0)
    is_row = x.type.rank < 3 or n.extent(x, last) == size
    return (last,) if is_row else (last - 1, last)


@ncnn_layer("LayerNorm")
def layer_norm(n: LayerNode) -> Result:
    x = n.input()
    axes = _row_axes(n, x)
    y = _normalized(n, x, axes, n.attr_float("1", 1e-3))
    if x.type.rank == 1 and n.attr_int("2", 1):
        return y * take(n, "gamma", n.attr_int("0", 0)) + take(n, "beta", n.attr_int("0", 0))
    return _affine(n, y, n.attr_int("0", 0), axes[0])


@ncnn_layer("RMSNorm")
def rms_norm(n: LayerNode) -> Result:
    x = n.input()
    axes = _row_axes(n, x)
    y = x / fn.sqrt((x * x).mean(axes, keepdims=True) + n.attr_float("1", 1e-3))
    if x.type.rank == 1 and n.attr_int("2", 1):
        return y * take(n, "gamma", n.attr_int("0", 0))
    return _affine(n, y, n.attr_int("0", 0), axes[0])


@ncnn_layer("InstanceNorm")
def instance_norm(n: LayerNode) -> Result:
    x = n.input()
    y = _normalized(n, x, tuple(range(1, x.type.rank)), n.attr_float("1", 1e-3))
    return _affine(n, y, n.attr_int("0", 0), 0)


@ncnn_layer("GroupNorm")
def group_norm(n: LayerNode) -> Result:
    x, groups, count = n.input(), n.attr_int("0", 1, 1), n.attr_int("1", 0)
    each = n.builder.divided("GroupNorm", x.type.shape[0], groups, "the channels", n.loc)
    split = n.reshape(x, (groups, each, *x.type.shape[1:]))
    y = _normalized(n, split, tuple(range(1, split.type.rank)), n.attr_float("2", 1e-3))
    return _affine(n, n.reshape(y, x.type.shape), count, 0)


@ncnn_layer("MVN")
def mvn(n: LayerNode) -> Result:
    x = n.input()
    axes = tuple(range(0 if n.attr_int("1", 0) else 1, x.type.rank))
    centred = x - x.mean(axes, keepdims=True)
    if not n.attr_int("0", 0):
        return centred
    deviation = fn.sqrt((centred * centred).mean(axes, keepdims=True))
    return centred / (deviation + n.attr_float("2", 1e-4))


@ncnn_layer("Normalize")
def normalize(n: LayerNode) -> Result:
    x, eps, mode = n.input(), n.attr_float("2", 1e-4), n.attr_int("9", 0)
    spatial = tuple(range(1, x.type.rank)) if n.attr_int("0", 0) else ()
    axes = (*((0,) if n.attr_int("4", 1) else ()), *spatial)
    squares = (x * x).sum(axes, keepdims=True)
    if mode == 1:
        length = fn.maximum(fn.sqrt(squares), eps)
    else:
        length = fn.sqrt(fn.maximum(squares, eps) if mode == 2 else squares + eps)
    return x / length * _outer(n, take(n, "scale", n.attr_int("3", 0)), x)


@ncnn_layer("LRN")
def lrn(n: LayerNode) -> Result:
    x, size, alpha = _batch(n, n.input()), n.attr_int("1", 5, 1), n.attr_float("2", 1)
    beta, addend = n.attr_float("3", 0.75), n.attr_float("4", 1)
    if n.attr_int("0", 0) == 0:
        return _single(n, n.add(norm.Lrn(size, alpha, beta, addend), x))
    window = pool.AvgPool((size, size), (1, 1), (size // 2,) * 4, count_include_pad=True)
    return _single(n, x * (n.add(window, x * x) * alpha + addend) ** -beta)


@ncnn_layer("Softmax")
def softmax(n: LayerNode) -> Result:
    return n.add(norm.Softmax(n.axis(n.attr_int("0", 0), n.input().type.rank)), n.input())
