"""Paddle's layers of networks: convolutions, pools, normalisations, products and resizes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

import numpy as np

from tilesmith.frontend.common import pools
from tilesmith.frontend.common.networks import LayerNode
from tilesmith.frontend.common.scaled import scaled
from tilesmith.frontend.common.slots import Result
from tilesmith.frontend.common.windows import Geometry, add_bias, convolve, geometry
from tilesmith.frontend.paddle.registry import paddle_op, sizes, tensors, whole
from tilesmith.graph.nodes import Value
from tilesmith.ir import extents
from tilesmith.ir.dtypes import i32
from tilesmith.ir.types import Dim
from tilesmith.ops import conv as cv
from tilesmith.ops import matmul as mm
from tilesmith.ops import norm, reduce, sample
from tilesmith.ops import pool as ops
from tilesmith.ops import resize as rs
from tilesmith.ops.base import Op
from tilesmith.ops.einsum import Einsum


def _check_layout(n: LayerNode) -> None:
    layout = n.attr_string("data_format", "NCHW")
    if layout not in ("NCHW", "NCDHW", "NCL", "AnyLayout"):
        n.unsupported(f"layout {layout}; channels must be the second axis")


def _geometry(n: LayerNode, x: Value, kernel: Sequence[int]) -> Geometry:
    """The windows of a layer.  The file has one or two pads for each axis."""
    _check_layout(n)
    pads = n.attr_ints("paddings", (0,))
    if len(pads) == 2 * len(kernel):
        pads = (*pads[::2], *pads[1::2])
    how = n.attr_string("padding_algorithm", "EXPLICIT", among=("EXPLICIT", "SAME", "VALID"))
    dilations = n.attr_ints("dilations", (1,)) if how != "SAME" else 1
    strides = n.attr_ints("strides", (1,))
    g = geometry(n, x, kernel, strides, pads if how == "EXPLICIT" else 0, dilations)
    if how == "SAME":
        g.pads = g.same_pads()
    return g


@paddle_op("conv2d", "conv3d", "depthwise_conv2d")
def convolution(n: LayerNode) -> Result:
    x, w = n.input(0), n.input(1)
    g = _geometry(n, x, n.shape(w)[2:])
    return add_bias(n, convolve(n, x, w, g, n.attr_int("groups", 1)), n.optional(2))


@paddle_op("conv2d_transpose", "depthwise_conv2d_transpose")
def transposed(n: LayerNode) -> Result:
    x, w = n.input(0), n.input(1)
    g = _geometry(n, x, n.shape(w)[2:])
    pads, extra = g.numbers(), n.attr_ints("output_padding", ())
    if pads is None:
        n.unsupported("padding SAME of open extents")
    if wanted := whole(n, 2, "output_size"):
        rank = len(g.kernel)
        around = [b + a for b, a in zip(pads[:rank], pads[rank:], strict=True)]
        parts = zip(n.shape(x)[2:], g.strides, g.reach, around, wanted, strict=True)
        extra = tuple(t - ((e - 1) * s + r - p) for e, s, r, p, t in parts)
    op = cv.ConvTranspose(g.strides, pads, g.dilations, n.attr_int("groups", 1), extra)
    return add_bias(n, n.add(op, x, w), n.optional(3))


@paddle_op("max_pool2d_with_index")
def pool_with_places(n: LayerNode) -> Result:
    """Maxima of windows, and their indices in the flattened image."""
    x, kernel = n.input(), n.attr_ints("kernel_size")
    if n.attr_flag("adaptive", False):
        y, places = pools.adaptive_maxima(n, x, kernel)
        return y, places.cast(i32)
    if n.attr_flag("global_pooling", False):
        kernel = n.shape(x)[2:]
    g = _geometry(n, x, kernel)
    ceil = n.attr_flag("ceil_mode", False)
    y, places = n.add(ops.MaxPoolIndices(g.kernel, g.strides, g.pads, g.dilations, ceil), x)
    area = extents.product(x.type.shape[2:])
    return y, (places % n.of_dims((area,), ())).cast(i32)


@paddle_op("pool2d")
def pool(n: LayerNode) -> Result:
    x, kernel = n.input(), whole(n, 1, "kernel_size")
    _check_layout(n)
    kind = n.attr_string("pooling_type", among=("avg", "max"))
    if n.attr_flag("adaptive", False):
        if kind == "avg":
            return pools.adaptive_averages(n, x, kernel)
        return pools.adaptive_maxima(n, x, kernel)[0]
    if n.attr_flag("global_pooling", False):
        return pools.global_pool(n, x, "max" if kind == "max" else "average")
    g = _geometry(n, x, kernel)
    rounding = "full" if n.attr_flag("ceil_mode", False) else "floor"
    if kind == "max":
        return pools.pooled(n, x, "max", g, rounding)
    return pools.pooled(n, x, "average", g, rounding, not n.attr_flag("exclusive", True))


# Normalisation


@paddle_op("batch_norm_", "batch_norm", "sync_batch_norm_")
def batch_norm(n: LayerNode) -> Result:
    _check_layout(n)
    x, mean, variance, scale, bias = (n.input(i) for i in range(5))
    return n.add(norm.BatchNorm(n.attr_float("epsilon", 1e-5)), x, scale, bias, mean, variance)


def _affine(n: LayerNode, y: Value, first: int, last: int) -> Value:
    """`y` times the scale plus the bias.  These inputs have axes `first` to `last` - 1 of `y`."""
    dims = (*y.type.shape[first:last], *[1] * (y.type.rank - last))
    scale, bias = n.optional(1), n.optional(2)
    y = y if scale is None else y * n.reshape(scale, dims)
    return y if bias is None else y + n.reshape(bias, dims)


@paddle_op("layer_norm")
def layer_norm(n: LayerNode) -> Result:
    x = n.input()
    first = n.axis(n.attr_int("begin_norm_axis", 1), x.type.rank)
    _, centred, variance = norm.moments(x, tuple(range(first, x.type.rank)))
    y = centred * _inverse(n, variance)
    return _affine(n, y, first, x.type.rank)


def _inverse(n: LayerNode, variance: Value) -> Value:
    return (variance + n.attr_float("epsilon", 1e-5)) ** -0.5


@paddle_op("instance_norm", "group_norm")
def group_norm(n: LayerNode) -> Result:
    _check_layout(n)
    x = n.input()
    dims = x.type.shape
    groups = n.attr_int("groups", 1, low=1) if n.layer.kind == "group_norm" else n.extent(x, 1)
    each = n.builder.divided("group_norm", dims[1], groups, "a number of channels", n.loc)
    grouped = n.reshape(x, (dims[0], groups, each, *dims[2:]))
    _, centred, variance = norm.moments(grouped, tuple(range(2, len(dims) + 1)))
    return _affine(n, n.reshape(centred * _inverse(n, variance), dims), 1, 2)


def _along(n: LayerNode, make: Callable[[int], Op]) -> Result:
    x = n.input()
    return n.add(make(n.axis(n.attr_int("axis", -1), x.type.rank)), x)


for _name, _make in {"softmax": norm.Softmax, "log_softmax": norm.LogSoftmax}.items():
    paddle_op(_name)(partial(_along, make=_make))


@paddle_op("affine_channel")
def affine_channel(n: LayerNode) -> Result:
    _check_layout(n)
    return _affine(n, n.input(), 1, 2)


@paddle_op("p_norm")
def p_norm(n: LayerNode) -> Result:
    x = n.input()
    if n.attr_flag("asvector", False):
        x = n.reshape(x, (extents.product(x.type.shape),))
    kinds = {1.0: reduce.ReduceL1, 2.0: reduce.ReduceL2}
    make = kinds.get(n.attr_float("porder", 2.0))
    if make is None:
        n.unsupported(f"order {n.attr_float('porder')}")
    axis = n.axis(n.attr_int("axis", -1), x.type.rank)
    return n.add(make((axis,), n.attr_flag("keepdim", False)), x)


# Products


@paddle_op("matmul", "bmm")
def matmul(n: LayerNode) -> Result:
    op = mm.MatMul(n.attr_flag("transpose_x", False), n.attr_flag("transpose_y", False))
    y, alpha = n.add(op, n.input(0), n.input(1)), n.attr_float("alpha", 1.0)
    return y if alpha == 1 else y * alpha


@paddle_op("matmul_with_flatten")
def matmul_with_flatten(n: LayerNode) -> Result:
    """A product of tensors as matrices.  In each operand, an attribute divides the axes into two
    groups, which are joined to the rows and the columns.
    """
    x, y = n.input(0), n.input(1)
    split, before = n.attr_int("x_num_col_dims", 1), n.attr_int("y_num_col_dims", 1)
    product = extents.product
    rows, columns = x.type.shape[:split], y.type.shape[before:]
    a = n.reshape(x, (product(rows), product(x.type.shape[split:])))
    b = n.reshape(y, (product(y.type.shape[:before]), product(columns)))
    return n.reshape(n.add(mm.MatMul(), a, b), (*rows, *columns))


@paddle_op("einsum")
def einsum(n: LayerNode) -> Result:
    return n.add(Einsum(n.attr_string("equation")), *tensors(n))


@paddle_op("dot")
def dot(n: LayerNode) -> Result:
    return (n.input(0) * n.input(1)).sum((-1,))


# Images of other sizes


def _resize(n: LayerNode, mode: str) -> Result:
    _check_layout(n)
    x = n.input()
    rank = x.type.rank - 2
    aligned = n.attr_flag("align_corners", True)
    scales: tuple[float, ...] = ()
    if n.optional(1) is not None or n.slots[2] is not None:
        wanted: Sequence[Dim] = sizes(n, 1 if n.optional(1) is not None else 2, "the new size")
    elif n.optional(3) is not None or any(s > 0 for s in n.attr_floats("scale", ())):
        scales = n.attr_floats("scale", ())
        if n.optional(3) is not None:
            scales = tuple(n.array(n.input(3), "scale").reshape(-1).tolist())
        scales = scales * rank if len(scales) == 1 else scales
        pairs = zip(x.type.shape[2:], scales, strict=True)
        wanted = [scaled(d, s, np.float32, "the new size") for d, s in pairs]
    else:
        wanted = [n.attr_int(f"out_{a}", low=1) for a in "dhw"[3 - rank :]]
    how = "align_corners" if aligned else "half_pixel"
    is_plain = mode == "nearest" or (mode == "linear" and n.attr_int("align_mode", 1) != 0)
    if is_plain and not aligned:
        how = "asymmetric"
    rounding = "floor" if not aligned else "round_prefer_ceil"
    factors = (1.0, 1.0, *scales) if scales and not aligned else ()
    return n.add(rs.Resize((*x.type.shape[:2], *wanted), factors, mode, how, rounding), x)


for _name, _mode in {
    "bicubic_interp": "cubic",
    "bilinear_interp": "linear",
    "linear_interp": "linear",
    "nearest_interp": "nearest",
    "trilinear_interp": "linear",
}.items():
    paddle_op(_name)(partial(_resize, mode=_mode))


@paddle_op("grid_sample")
def grid_sample(n: LayerNode) -> Result:
    mode = n.attr_string("mode", "bilinear", among=("bilinear", "nearest"))
    padding = n.attr_string("padding_mode", "zeros", among=("zeros", "border", "reflection"))
    kind = "linear" if mode == "bilinear" else mode
    op = sample.GridSample(kind, padding, n.attr_flag("align_corners", True))
    return n.add(op, n.input(0), n.input(1))
