"""Relay's convolutions, matrix products, pools and resizing, in every layout."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

import numpy as np

from tilesmith.frontend.common.pools import adaptive_averages, adaptive_maxima, global_pool, pooled
from tilesmith.frontend.common.scaled import scaled
from tilesmith.frontend.common.slots import Result
from tilesmith.frontend.common.windows import Geometry, convolve, geometry
from tilesmith.frontend.relay.node import RelayNode, relay_op
from tilesmith.graph.nodes import Value
from tilesmith.ir import extents
from tilesmith.ir.dtypes import DType, f32
from tilesmith.ir.types import Dim, same_dim
from tilesmith.ops import conv, einsum, rules, sample
from tilesmith.ops import matmul as mm
from tilesmith.ops import resize as rs

_SETTINGS = {"strides": 1, "padding": 0, "dilation": 1}
_SPACE = ("", "W", "HW", "DHW")


def layout_order(n: RelayNode, layout: str, wanted: str) -> tuple[int, ...]:
    """The permutation of axes that turns `layout` into `wanted`."""
    if sorted(layout) != sorted(wanted):
        n.unsupported(f"layout {layout!r} in the place of {wanted!r}")
    return tuple(layout.index(c) for c in wanted)


def turned(x: Value, order: Sequence[int]) -> Value:
    """`x` with its axes in another order."""
    return x if [*order] == sorted(order) else x.transpose(*order)


def channels_second(n: RelayNode, x: Value, name: str = "layout") -> tuple[Value, tuple[int, ...]]:
    """Images as [N, C, spatial...], and the permutation that restores their layout.

    name: the attribute with the layout.
    """
    space = _SPACE[min(max(x.type.rank - 2, 0), 3)]
    order = layout_order(n, n.text(name, f"NC{space}"), f"NC{space}")
    return turned(x, order), tuple(int(i) for i in np.argsort(order))


# Convolutions and products


def _windows(n: RelayNode, x: Value, kernel: Sequence[int]) -> Geometry:
    settings = ((name, n.ints(name, (v,))) for name, v in _SETTINGS.items())
    strides, pads, dilations = (v for _, v in settings)
    return geometry(n, x, kernel, strides, pads, dilations)


def operands(n: RelayNode, x: Value, w: Value, kernel: str) -> tuple[Value, Value, tuple[int, ...]]:
    """Images as [N, C, ...], weights, and the permutation that restores the layout of images.

    kernel: wanted layout of the weights without spatial axes, such as OI; these come last.
    """
    if not 3 <= x.type.rank == w.type.rank <= 5:
        n.bad(f"expected images and a kernel of 3 to 5 axes, found {x.type} and {w.type}")
    space = _SPACE[x.type.rank - 2]
    x, back = channels_second(n, x, "data_layout")
    layout = n.text("kernel_layout", f"{kernel}{space}")
    return x, turned(w, layout_order(n, layout, f"{kernel}{space}")), back


def convolved(n: RelayNode, x: Value, w: Value, to: DType | None = None) -> Value:
    """The convolution that the attributes describe."""
    groups = n.int("groups", 1)
    x, w, back = operands(n, x, w, "OI")
    icg = extents.quotient(x.type.shape[1], groups)
    if groups > 1 and icg is not None and not same_dim(w.type.shape[1], icg):
        # depthwise weights, such as HWOI: [C, multiplier] or its transpose
        w = n.reshape(w, (extents.product(w.type.shape[:2]), icg, *w.type.shape[2:]))
    g = _windows(n, x, n.shape(w)[2:])
    if to is not None:
        pads = g.numbers() or ()
        return turned(n.add(conv.Conv(g.strides, pads, g.dilations, groups, to), x, w), back)
    return turned(convolve(n, x, w, g, groups), back)


@relay_op("nn.conv1d", "nn.conv2d", "nn.conv3d")
def conv_(n: RelayNode) -> Result:
    x, w = n.inputs
    out = n.dtype("out_dtype", x.dtype)
    if out is x.dtype is w.dtype:
        return convolved(n, x, w)
    return convolved(n, x, w, out) if out.is_int else convolved(n, x.cast(out), w.cast(out))


@relay_op("nn.conv1d_transpose", "nn.conv2d_transpose", "nn.conv3d_transpose")
def conv_transpose(n: RelayNode) -> Result:
    x, w, back = operands(n, n.input(0), n.input(1), "IO")
    g = _windows(n, x, n.shape(w)[2:])
    extra = n.ints("output_padding", (0,))
    extra = extra * len(g.kernel) if len(extra) == 1 else extra
    pads = tuple(rules.static(n.operator, p, "a pad") for p in g.pads)
    op = conv.ConvTranspose(g.strides, pads, g.dilations, n.int("groups", 1), extra)
    return turned(n.add(op, x, w), back)


@relay_op("nn.dense")
def dense(n: RelayNode) -> Result:
    return product(n, mm.MatMul(transpose_b=True))


@relay_op("nn.matmul")
def matmul(n: RelayNode) -> Result:
    flips = n.get("transpose_a", False), n.get("transpose_b", False)
    return product(n, mm.MatMul(*flips))


@relay_op("nn.batch_matmul")
def batch_matmul(n: RelayNode) -> Result:
    flips = n.get("transpose_a", False), n.get("transpose_b", True)
    return product(n, mm.MatMul(*flips))


def product(n: RelayNode, op: mm.MatMul) -> Value:
    """A matrix product in the type of attribute `out_dtype`."""
    a, b = n.inputs
    out = n.dtype("out_dtype", a.dtype)
    if out.is_int:
        return n.add(replace(op, to=out), a, b)
    return n.add(op, a.cast(out), b.cast(out))


relay_op("einsum")(lambda n: n.add(einsum.Einsum(n.get("equation", "")), *n.items()))


# Pools


def _pool(n: RelayNode, kind: str) -> Result:
    x, back = channels_second(n, n.input(0))
    n.text("out_layout", "")
    g = _windows(n, x, n.ints("pool_size"))
    rounding = "ceil" if n.get("ceil_mode", False) else "floor"
    counts = n.get("count_include_pad", False)
    return turned(pooled(n, x, "max" if kind == "max" else "average", g, rounding, counts), back)


def _global(n: RelayNode, kind: str) -> Result:
    x, back = channels_second(n, n.input(0))
    return turned(global_pool(n, x, "max" if kind == "max" else "average"), back)


def _adaptive(n: RelayNode, kind: str) -> Result:
    x, back = channels_second(n, n.input(0))
    rank = x.type.rank - 2
    sizes = n.ints("output_size", ())
    wanted: Sequence[Dim] = sizes * rank if len(sizes) == 1 else sizes or x.type.shape[2:]
    if kind == "avg":
        return turned(adaptive_averages(n, x, wanted), back)
    if all(s == 1 for s in wanted):
        return turned(global_pool(n, x, "max"), back)
    numbers = [rules.static(n.operator, s, "an extent") for s in wanted]
    return turned(adaptive_maxima(n, x, numbers)[0], back)


for _kind in ("max", "avg"):
    for _rank in (1, 2, 3):
        relay_op(f"nn.{_kind}_pool{_rank}d")(partial(_pool, kind=_kind))
        relay_op(f"nn.global_{_kind}_pool{_rank}d")(partial(_global, kind=_kind))
        for _prefix in ("nn.adaptive", "nn.contrib_adaptive"):
            relay_op(f"{_prefix}_{_kind}_pool{_rank}d")(partial(_adaptive, kind=_kind))


# Resizing

_METHODS = {
    "nearest_neighbor": "nearest", "linear": "linear", "bilinear": "linear", "trilinear": "linear",
    "cubic": "cubic", "bicubic": "cubic",
}  # fmt: skip
_ROUNDINGS = {
    "": "round_prefer_floor", "round": "round_prefer_ceil", "floor": "floor", "ceil": "ceil",
    "round_prefer_floor": "round_prefer_floor", "round_prefer_ceil": "round_prefer_ceil",
}  # fmt: skip
_COORDINATES = (
    "half_pixel", "align_corners", "asymmetric", "pytorch_half_pixel", "tf_half_pixel_for_nn",
)  # fmt: skip


def _resize(n: RelayNode, sizes: Sequence[Dim]) -> Result:
    x, back = channels_second(n, n.input(0))
    method = _METHODS[n.text("method", "linear", tuple(_METHODS))]
    coordinates = n.text("coordinate_transformation_mode", "half_pixel", _COORDINATES)
    rounding = n.text("rounding_method", "", tuple(_ROUNDINGS))
    if not rounding and coordinates == "asymmetric":
        rounding = "floor"
    for unused in ("roi", "extrapolation_value"):
        n.get(unused)
    op = rs.Resize(
        (*x.type.shape[:2], *sizes), (), method, coordinates, _ROUNDINGS[rounding],
        n.get("cubic_alpha", -0.5), n.get("cubic_exclude", False),
    )  # fmt: skip
    y = n.add(op, x if method == "nearest" or x.dtype.is_float else x.cast(f32))
    return turned(y.cast(n.dtype("out_dtype", x.dtype)), back)


relay_op("image.resize1d", "image.resize2d", "image.resize3d", "image.resize")(
    lambda n: _resize(n, n.ints("size"))
)
relay_op("dyn.image.resize2d")(lambda n: _resize(n, n.extents(n.input(1), "size")))


def _upsampling(n: RelayNode, scales: Sequence[str]) -> Result:
    x, back = channels_second(n, n.input(0))
    method = _METHODS[n.text("method", "nearest_neighbor", tuple(_METHODS))]
    factors = [n.get(s, 1.0) for s in scales]
    sizes = [
        scaled(d, f, np.float64, n.operator) for d, f in zip(x.type.shape[2:], factors, strict=True)
    ]
    corners = n.get("align_corners", False)
    mode = n.text("coordinate_transformation_mode", "align_corners" if corners else "asymmetric")
    if method == "cubic" and not corners:
        mode = "half_pixel"
    op = rs.Resize((*x.type.shape[:2], *sizes), (), method, mode, "floor", -0.5)
    return turned(n.add(op, x), back)


relay_op("nn.upsampling")(partial(_upsampling, scales=("scale_h", "scale_w")))
relay_op("nn.upsampling3d")(partial(_upsampling, scales=("scale_d", "scale_h", "scale_w")))


@relay_op("image.grid_sample")
def grid_sample(n: RelayNode) -> Result:
    """Samples of images at positions that a tensor [N, 2, H, W] has."""
    n.text("layout", "NCHW", ("NCHW",))
    mode = {"bilinear": "linear", "nearest": "nearest", "bicubic": "cubic"}[
        n.text("method", "bilinear", ("bilinear", "nearest", "bicubic"))
    ]
    padding = n.text("padding_mode", "zeros", ("zeros", "border", "reflection"))
    grid = n.input(1).transpose(0, 2, 3, 1)
    return n.add(sample.GridSample(mode, padding, n.get("align_corners", True)), n.input(0), grid)
