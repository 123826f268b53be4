"""Images resampled to other sizes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial

from tilesmith.frontend.aten.node import AtenNode
from tilesmith.frontend.aten.registry import aten_op
from tilesmith.graph.nodes import Value
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
    antialias: bool = False,
) -> Value:
    """[N, C, spatial...] with spatial axes of `output_size`, or scaled by `factors`, which then
    decide where the samples lie.
    """
    rank = x.type.rank - 2
    if output_size is None:
        assert factors is not None
        extents = [n.extent(x, 2 + a) for a in range(rank)]
        sizes = tuple(math.floor(e * f) for e, f in zip(extents, factors, strict=True))
    else:
        sizes, factors = tuple(output_size), None
    scales = (1.0, 1.0, *factors) if factors and not align_corners else ()
    coordinates = "align_corners" if align_corners else "half_pixel"
    if mode == "nearest" and not exact:
        coordinates = "asymmetric"
    rounding = "round_prefer_ceil" if exact else "floor"
    cubic_a = -0.5 if antialias else -0.75
    op = Resize(
        (*x.type.shape[:2], *sizes), scales, mode, coordinates, rounding, cubic_a, antialias,
        antialias=antialias,
    )  # fmt: skip
    return n.add(op, x)


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
    antialias: bool = False,
) -> Value:
    return _resized(n, input, output_size, scale_factors, mode, align_corners, antialias=antialias)


for _rank, _linear in ((1, "linear1d"), (2, "bilinear2d"), (3, "trilinear3d")):
    aten_op(f"aten.upsample_nearest{_rank}d.vec")(_nearest)
    aten_op(f"aten._upsample_nearest_exact{_rank}d.vec")(partial(_nearest, exact=True))
    aten_op(f"aten.upsample_{_linear}.vec")(partial(_interpolated, mode="linear"))
aten_op("aten.upsample_bicubic2d.vec")(partial(_interpolated, mode="cubic"))
aten_op("aten._upsample_bilinear2d_aa.vec")(partial(_interpolated, mode="linear", antialias=True))
aten_op("aten._upsample_bicubic2d_aa.vec")(partial(_interpolated, mode="cubic", antialias=True))

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
