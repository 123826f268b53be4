"""Images resampled to other sizes."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import numpy as np

from tilesmith.frontend.aten.node import AtenNode
from tilesmith.frontend.aten.pool_gradients import along_axis
from tilesmith.frontend.aten.registry import aten_op
from tilesmith.frontend.common.scaled import scaled
from tilesmith.graph.nodes import Value
from tilesmith.ir.types import Dim
from tilesmith.ops import sample
from tilesmith.ops.resize import Resize


def _resized(
    n: AtenNode,
    x: Value,
    output_size: Sequence[int] | None,
    factors: Sequence[float] | None,
    mode: str,
    align_corners: bool = False,
    exact: bool = False,
) -> Value:
    """Images [N, C, spatial...] resampled to the spatial sizes `output_size`, or scaled by
    `factors`.  `factors`, if used, also determine the positions of the samples.
    """
    sizes, factors = _sizes(n, x, output_size, factors)
    scales = (1.0, 1.0, *factors) if factors and not align_corners else ()
    coordinates = "align_corners" if align_corners else "half_pixel"
    if mode == "nearest" and not exact:
        coordinates = "asymmetric"
    rounding = "round_prefer_ceil" if exact else "floor"
    op = Resize((*x.type.shape[:2], *sizes), scales, mode, coordinates, rounding, -0.75)
    return n.add(op, x)


def _sizes(
    n: AtenNode, x: Value, output_size: Sequence[Dim] | None, factors: Sequence[float] | None
) -> tuple[tuple[Dim, ...], Sequence[float] | None]:
    """The sizes of the spatial axes, and the scale factors.  The factors are None if `output_size`
    is given.  Otherwise they determine the sizes, and later the positions of the samples.
    """
    if output_size is not None:
        return tuple(output_size), None
    assert factors is not None
    pairs = zip(x.type.shape[2:], factors, strict=True)
    return tuple(scaled(e, f, np.float64, "scale_factor") for e, f in pairs), factors


def _nearest(
    n: AtenNode,
    input: Value,
    output_size: Sequence[int] | None = None,
    scale_factors: Sequence[float] | None = None,
    *,
    exact: bool = False,
) -> Value:
    return _resized(n, input, output_size, scale_factors, "nearest", exact=exact)


def _interpolated(
    n: AtenNode,
    input: Value,
    output_size: Sequence[int] | None,
    align_corners: bool,
    scale_factors: Sequence[float] | None = None,
    *,
    mode: str,
) -> Value:
    return _resized(n, input, output_size, scale_factors, mode, align_corners)


for _rank, _linear in ((1, "linear1d"), (2, "bilinear2d"), (3, "trilinear3d")):
    aten_op(f"aten.upsample_nearest{_rank}d.vec")(_nearest)
    aten_op(f"aten._upsample_nearest_exact{_rank}d.vec")(partial(_nearest, exact=True))
    aten_op(f"aten.upsample_{_linear}.vec")(partial(_interpolated, mode="linear"))
aten_op("aten.upsample_bicubic2d.vec")(partial(_interpolated, mode="cubic"))


# Downsampling: each pixel is a weighted mean, and the kernel widens as the image shrinks


def _antialiased_to(
    n: AtenNode, input: Value, output_size: Sequence[int] | None, align_corners: bool,
    scale_factors: Sequence[float] | None = None, *, mode: str,
) -> Value:  # fmt: skip
    sizes, factors = _sizes(n, input, output_size, scale_factors)
    return _antialiased(n, input, sizes, align_corners, *(factors or ()), mode=mode)


def _antialiased(
    n: AtenNode, self: Value, output_size: Sequence[Dim], align_corners: bool,
    scales_h: float | None = None, scales_w: float | None = None, *, mode: str,
) -> Value:  # fmt: skip
    if not self.dtype.is_float:
        n.unsupported(f"expected floats, found {self.dtype}, which PyTorch rounds its own way")
    x = self
    for axis, factor in ((2, scales_h), (3, scales_w)):
        dims = [d if a != axis else output_size[axis - 2] for a, d in enumerate(x.type.shape)]
        x = n.add(_antialiasing(n, x.type.shape, dims, axis, factor, align_corners, mode), x)
    return x


def _antialiasing(
    n: AtenNode, given: Sequence[Dim], wanted: Sequence[Dim], axis: int, factor: float | None,
    align_corners: bool, mode: str,
) -> Resize:  # fmt: skip
    """An operator that resamples one axis.  `align_corners` changes only the samples' spacing."""
    if align_corners:
        before, after = given[axis], wanted[axis]
        if not isinstance(before, int) or not isinstance(after, int) or min(before, after) < 2:
            n.unsupported(
                "align_corners with sizes that are open or below 2; give fixed sizes of at least 2"
            )
        factor = (after - 1) / (before - 1)
    scales = () if factor is None else tuple(factor if a == axis else 1.0 for a in range(4))
    return Resize(tuple(wanted), scales, mode, "half_pixel", "floor", -0.5, True, antialias=True)


def _antialiased_backward(
    n: AtenNode, grad_output: Value, output_size: Sequence[int], input_size: Sequence[int],
    align_corners: bool, scales_h: float | None = None, scales_w: float | None = None, *, mode: str,
) -> Value:  # fmt: skip
    """The gradient of an antialiased resampling: along each axis, the product with the transposed
    matrix of the resampling.
    """
    x = grad_output
    for axis, factor in ((2, scales_h), (3, scales_w)):
        lines = np.eye(input_size[axis])[:, None, :, None]
        dims = (len(lines), 1, output_size[axis - 2], 1)
        op = _antialiasing(n, lines.shape, dims, 2, factor, align_corners, mode)
        x = along_axis(n, x, axis, op.reference(lines)[:, 0, :, 0])
    return x


for _name, _mode in (("bilinear", "linear"), ("bicubic", "cubic")):
    aten_op(f"aten._upsample_{_name}2d_aa.vec")(partial(_antialiased_to, mode=_mode))
    aten_op(f"aten._upsample_{_name}2d_aa.default")(partial(_antialiased, mode=_mode))
    aten_op(f"aten._upsample_{_name}2d_aa_backward.default")(
        partial(_antialiased_backward, mode=_mode)
    )

_MODES, _PADDINGS = ("linear", "nearest", "cubic"), ("zeros", "border", "reflection")


@aten_op("aten.grid_sampler_2d.default", "aten.grid_sampler_3d.default")
def grid_sampler(
    n: AtenNode,
    input: Value,
    grid: Value,
    interpolation_mode: int,
    padding_mode: int,
    align_corners: bool,
) -> Value:
    op = sample.GridSample(_MODES[interpolation_mode], _PADDINGS[padding_mode], align_corners)
    return n.add(op, input, grid)
