"""ONNX's Resize and Upsample: attributes and inputs are converted to exact sizes and scales."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

import numpy as np

from tilesmith.frontend.common.limits import checked_dims
from tilesmith.frontend.common.lists import listed
from tilesmith.frontend.common.scaled import scaled
from tilesmith.frontend.common.slots import Result
from tilesmith.frontend.onnx.computed_resize import by_scales, by_sizes
from tilesmith.frontend.onnx.constants import filled
from tilesmith.frontend.onnx.node import OnnxNode
from tilesmith.frontend.onnx.registry import onnx_op
from tilesmith.graph.nodes import Value
from tilesmith.ir.dtypes import f32, f64
from tilesmith.ir.types import Dim, same_dim, same_shape
from tilesmith.ops import resize as rs
from tilesmith.ops.functions import clip, rint

_MODES = {"nearest": "nearest", "linear": "linear", "bilinear": "linear", "cubic": "cubic"}
_COORDINATES = (
    "half_pixel",
    "half_pixel_symmetric",
    "pytorch_half_pixel",
    "align_corners",
    "asymmetric",
    "tf_half_pixel_for_nn",
    "tf_crop_and_resize",
)


def _mode(n: OnnxNode) -> str:
    return _MODES[n.attr_string("mode", "nearest", among=tuple(_MODES))]


def _scaled(n: OnnxNode, extent: Dim, scale: float) -> Dim:
    return scaled(extent, scale, np.float32, n.op_type)


def _scales(n: OnnxNode, value: Value, count: int) -> tuple[float, ...]:
    factors = tuple(float(s) for s in n.array(value, "scales").reshape(-1))
    if len(factors) != count or not all(math.isfinite(s) and s > 0 for s in factors):
        n.bad(f"scales: expected {count} numbers above 0, found {list(factors)}")
    return factors


def _asymmetric(n: OnnxNode, scales: tuple[float, ...]) -> Result:
    """Nearest samples of Upsample and the first Resize: floor(destination / scale)."""
    x = n.input(0)
    sizes = checked_dims(
        [_scaled(n, d, s) for d, s in zip(x.type.shape, scales, strict=True)], "the result"
    )
    return n.add(rs.Resize(sizes, scales, _mode(n), "asymmetric", "floor"), x)


@onnx_op("Upsample", since=7, until=8)
def upsample_attribute(n: OnnxNode) -> Result:
    return upsampled(n, n.attr_floats("scales") or ())


def upsampled(n: OnnxNode, scales: tuple[float, ...]) -> Result:
    """The first input enlarged by `scales`."""
    rank = n.input(0).type.rank
    if len(scales) != rank or not all(math.isfinite(s) and s >= 1 for s in scales):
        n.bad(f"scales: expected {rank} numbers of at least 1, found {list(scales)}")
    return _asymmetric(n, scales)


@onnx_op("Upsample", since=9, until=9)
@onnx_op("Resize", since=10, until=10)
def upsample_input(n: OnnxNode) -> Result:
    x, scales = n.input(0), n.input(1)
    if not n.is_known(scales):
        _check_count(n, scales, x.type.rank, "scales")
        op = rs.Resize((), (), _mode(n), "asymmetric", "floor")
        return _on_floats(n, op, x, lambda v: by_scales(n, v, range(x.type.rank), scales, op))
    return _asymmetric(n, _scales(n, scales, x.type.rank))


def _check_count(n: OnnxNode, value: Value, count: int, what: str) -> None:
    if value.type.rank != 1 or not same_dim(value.type.shape[0], count):
        n.bad(f"{what}: expected {count} numbers, found {value.type}")


def _on_floats(n: OnnxNode, op: rs.Resize, x: Value, resized: Callable[[Value], Value]) -> Value:
    """Integers interpolated as floats, then rounded and clamped to their type's range."""
    if op.mode == "nearest" or x.dtype.is_float:
        return resized(x)
    y = resized(x.cast(f64 if x.dtype.bits > 16 else f32))
    low, high = float(x.dtype.min), float(x.dtype.max)
    return clip(rint(y), low, high).cast(x.dtype)


@onnx_op("Resize", since=11)
def resize(n: OnnxNode) -> Result:
    x, rank = n.input(0), n.input(0).type.rank
    roi, scales, sizes = n.optional(1), n.optional(2), n.optional(3)
    mode = _mode(n)
    coordinates = n.attr_string("coordinate_transformation_mode", "half_pixel", among=_COORDINATES)
    rounding = n.attr_string("nearest_mode", "round_prefer_floor", among=rs.NEAREST)
    axes_attribute = n.attr_ints("axes") if n.version >= 18 else None
    axes = tuple(range(rank)) if axes_attribute is None else n.axes(axes_attribute, rank)
    policies = ("stretch", "not_larger", "not_smaller")
    policy = (
        n.attr_string("keep_aspect_ratio_policy", "stretch", among=policies)
        if n.version >= 18
        else "stretch"
    )
    antialias = n.attr_flag("antialias") if n.version >= 18 else False
    # In opset 11 empty tensors stand for omitted inputs.
    scales, sizes = (
        None if v is None or same_shape(v.type.shape, (0,)) else v for v in (scales, sizes)
    )
    if (scales is None) == (sizes is None):
        n.bad("expected either scales or sizes")
    if coordinates != "tf_crop_and_resize":
        roi = None
    elif roi is None:
        n.bad("roi: expected it for tf_crop_and_resize, found none")
    op = rs.Resize(
        x.type.shape,
        (),
        mode,
        coordinates,
        rounding,
        n.attr_float("cubic_coeff_a", -0.75),
        n.attr_flag("exclude_outside"),
        n.attr_float("extrapolation_value", 0.0),
        antialias,
    )
    if all(n.is_known(v) for v in (roi, scales, sizes) if v is not None):
        op = _known(n, op, axes, policy, (roi, scales, sizes))
        if x.type.is_empty or any(same_dim(s, 0) for s in op.sizes):
            return filled(n, op.sizes, 0, x.dtype)
        return _on_floats(n, op, x, lambda v: n.add(op, v))
    if roi is not None:
        _check_count(n, roi, 2 * len(axes), "roi")
        roi = listed(roi, f32)
    if scales is not None:
        _check_count(n, scales, len(axes), "scales")
        return _on_floats(n, op, x, lambda v: by_scales(n, v, axes, scales, op, roi))
    assert sizes is not None
    _check_count(n, sizes, len(axes), "sizes")
    return _on_floats(n, op, x, lambda v: by_sizes(n, v, axes, sizes, op, policy, roi))


def _known(
    n: OnnxNode,
    op: rs.Resize,
    axes: tuple[int, ...],
    policy: str,
    operands: tuple[Value | None, Value | None, Value | None],
) -> rs.Resize:
    """The operator `op` with the region, scales or sizes in `operands`, which are known."""
    roi, scales_input, sizes_input = operands
    dims, rank = op.sizes, len(op.sizes)
    starts, ends = [0.0] * rank, [1.0] * rank
    if roi is not None:
        part = [float(v) for v in n.array(roi, "roi").reshape(-1)]
        if len(part) != 2 * len(axes) or not all(map(math.isfinite, part)):
            n.bad(f"roi: expected {2 * len(axes)} finite numbers, found {part}")
        for i, a in enumerate(axes):
            starts[a], ends[a] = part[i], part[len(axes) + i]
    sizes, scales = list(dims), [1.0] * rank
    if scales_input is not None:
        for a, s in zip(axes, _scales(n, scales_input, len(axes)), strict=True):
            scales[a] = s
            sizes[a] = _scaled(n, dims[a], s if roi is None else s * (ends[a] - starts[a]))
    elif sizes_input is not None:
        wanted = n.dims(sizes_input, "sizes")
        if len(wanted) != len(axes) or any(isinstance(w, int) and w < 1 for w in wanted):
            n.bad(f"sizes: expected {len(axes)} numbers above 0, found {list(wanted)}")
        if policy != "stretch" and axes:
            wanted = n.int_list(sizes_input, "sizes")
            own = n.shape(n.input(0))
            ratios = [w / own[a] if own[a] else 1.0 for w, a in zip(wanted, axes, strict=True)]
            ratio = min(ratios) if policy == "not_larger" else max(ratios)
            for a in axes:
                sizes[a], scales[a] = math.floor(ratio * own[a] + 0.5), ratio
        else:
            for a, w in zip(axes, wanted, strict=True):
                sizes[a] = w
    return replace(
        op,
        sizes=checked_dims(sizes, "the result"),
        scales=tuple(scales) if scales_input is not None or policy != "stretch" else (),
        roi=() if roi is None else (*starts, *ends),
    )
