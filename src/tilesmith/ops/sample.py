"""Operators that read images between pixels, at positions from data: grids, regions of interest.

Images have axes N, C and one to three spatial axes.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any

import numpy as np

from tilesmith.ir import expr as ir
from tilesmith.ir import extents
from tilesmith.ir.dtypes import DType, i64
from tilesmith.ir.expr import Expr, as_expr, cast, const, maximum, select
from tilesmith.ir.intrinsics import call
from tilesmith.ir.types import Dim, TensorType, same_dim, same_shape
from tilesmith.loop.builder import Array, LoopBuilder
from tilesmith.loop.nodes import Func
from tilesmith.te import tensor as te

from . import rules
from .base import Op

_CUBIC = -0.75
"""The coefficient a of cubic convolution (Keys 1981), as in PyTorch and ONNX."""

_FAR = 2.0**40
"""A position in pixels that is outside of any image."""


@dataclass(frozen=True)
class GridSample(Op):
    """The image x at the positions given by `grid`: x [N,C,spatial], grid
    [N,places,coordinates].

    Coordinates run from -1 to 1 over the image.  The coordinate of the innermost axis comes first.

    mode: "nearest", "linear" or "cubic".
    padding: continuation of the image past its borders: "zeros", "border" (the outermost pixel) or
        "reflection".
    align_corners: whether -1 and 1 are the centres of the outermost pixels, not their outer edges.
    """

    heavy_reference = True

    mode: str = "linear"
    padding: str = "zeros"
    align_corners: bool = False

    def compute(self, *inputs: te.Tensor) -> te.Tensor:
        rules.check_count(self.name, inputs, 2)
        x, grid = inputs
        rules.check_kind(self.name, grid, rules.FLOATS, "a grid")
        rank = x.rank - 2
        fits = 1 <= rank <= 3 and grid.rank == x.rank
        if not fits or not rules.equal(self.name, grid.shape[-1], rank):
            rules.reject(
                self.name, "an image [N,C,spatial] and a grid [N,places,coordinates]",
                f"{rules.shape_text(x.shape)} and {rules.shape_text(grid.shape)}",
            )  # fmt: skip
        if not rules.equal(self.name, x.shape[0], grid.shape[0]):
            rules.reject(self.name, f"grids for {x.shape[0]} images", grid.shape[0])
        if self.mode != "nearest":
            rules.check_kind(self.name, x, rules.FLOATS, "an image to interpolate")

        has_pixels = all(extents.is_at_most(1, d) for d in x.shape[2:])

        def body(n: Expr, c: Expr, *place: Expr) -> Expr:
            axes = []
            for a, extent in enumerate(x.shape[2:]):
                g = rules.widen(grid[(n, *place, rank - 1 - a)])
                axes.append(self._taps(self._pixel(g, extent), extent))
            terms = []
            for taps in itertools.product(*axes):
                corner = tuple(t.at for t in taps)
                value = x[(n, c, *corner)]
                if self.mode != "nearest":
                    value = rules.widen(value)
                inside = [t.inside for t in taps if t.inside is not None]
                if inside:
                    # Each index is clamped, so the load needs no predicate.  Only its result is
                    # selected.
                    pixel = ir.Var("pixel", value.dtype) if has_pixels else value
                    kept = te.if_then_else(ir.all_of(*inside), pixel, const(0, value.dtype))
                    value = ir.Let(pixel, value, kept) if isinstance(pixel, ir.Var) else kept
                weights = [cast(t.weight, value.dtype) for t in taps if t.weight is not None]
                terms.append(reduce(lambda a, b: a * b, weights, value))
            return cast(reduce(lambda a, b: a + b, terms), x.dtype)

        return te.compute((*x.shape[:2], *grid.shape[1:-1]), body, self.name)

    def _pixel(self, g: Any, extent: Any) -> Any:
        """The position in pixels of coordinate `g`, an expression or array."""
        if isinstance(extent, Expr):
            extent = cast(extent, g.dtype)
        if self.align_corners:
            return (g + 1) * ((extent - 1) / 2)
        return (g + 1) * (extent / 2) - 0.5

    def _taps(self, position: Expr, extent: Dim) -> list[_Tap]:
        """The pixels along one axis that contribute to the sample at `position`, with weights."""
        if self.mode == "nearest":
            return [self._tap(cast(call("round", position), i64), None, extent)]
        position = ir.minimum(ir.maximum(position, -_FAR), _FAR)  # infinity has no fractional part
        low = call("floor", position)
        first, t = cast(low, i64), position - low
        weights = _linear_weights(t) if self.mode == "linear" else _cubic_weights(t)
        begin = 1 - len(weights) // 2
        return [self._tap(first + (begin + k), w, extent) for k, w in enumerate(weights)]

    def _tap(self, i: Expr, weight: Expr | None, extent: Dim) -> _Tap:
        inside = None
        if self.padding == "zeros":
            inside = ir.all_of(i >= 0, i < extent)
        elif self.padding == "reflection":
            i = _reflected(i, extent, self.align_corners)
        return _Tap(ir.minimum(ir.maximum(i, 0), extent - 1), weight, inside)

    def reference(self, *inputs: np.ndarray) -> np.ndarray:
        x, grid = inputs
        sizes = x.shape[2:]
        n = np.arange(x.shape[0]).reshape(-1, *[1] * (grid.ndim - 2))
        axes = []
        for a, extent in enumerate(sizes):
            g = rules.widen_array(grid[..., len(sizes) - 1 - a])
            axes.append(self._reference_taps(self._pixel(g, extent), extent))
        result: Any = 0
        pixels = x if self.mode == "nearest" else rules.widen_array(x)
        for taps in itertools.product(*axes):
            values = pixels[(n, slice(None), *(pixel for pixel, _, _ in taps))]  # N, places, C
            weight: Any = math.prod(w for _, w, _ in taps)
            inside = np.logical_and.reduce([i for _, _, i in taps])
            values = np.where(inside[..., None], values, values.dtype.type(0))
            result = result + (values if self.mode == "nearest" else values * weight[..., None])
        return np.moveaxis(np.asarray(result), -1, 1).astype(x.dtype)

    def _reference_taps(self, position: np.ndarray, extent: int) -> list[tuple[Any, Any, Any]]:
        limited = np.clip(np.nan_to_num(position), -_FAR, _FAR)
        if self.mode == "nearest":
            pixels, weights = [np.rint(limited).astype(np.int64)], [1]
        else:
            low = np.floor(limited)
            t = limited - low
            weights = _linear_weights(t) if self.mode == "linear" else _cubic_weights(t)
            begin = 1 - len(weights) // 2
            pixels = [low.astype(np.int64) + begin + k for k in range(len(weights))]
        taps = []
        for i, w in zip(pixels, weights, strict=True):
            inside = (i >= 0) & (i < extent) if self.padding == "zeros" else np.full(i.shape, True)
            if self.padding == "reflection":
                period = max(2 * (extent - 1 if self.align_corners else extent), 1)
                m = i % period
                i = np.minimum(m, period - (0 if self.align_corners else 1) - m)
            taps.append((np.clip(i, 0, extent - 1), w, inside))
        return taps


@dataclass(frozen=True)
class _Tap:
    """A pixel that contributes to a sample.

    at: its position.
    weight: its weight; None: 1.
    inside: whether it contributes; None: always.
    """

    at: Expr
    weight: Expr | None
    inside: Expr | None


def _linear_weights(t: Any) -> list[Any]:
    return [1 - t, t]


def _cubic_weights(t: Any) -> list[Any]:
    """The weights of the pixels at -1, 0, 1 and 2 for a position t in 0..1."""

    def near(d: Any) -> Any:
        return ((_CUBIC + 2) * d - (_CUBIC + 3)) * d * d + 1

    def far(d: Any) -> Any:
        return ((d - 5) * d + 8) * d * _CUBIC - 4 * _CUBIC

    return [far(t + 1), near(t), near(1 - t), far(2 - t)]


def _reflected(i: Expr, extent: Dim, at_centres: bool) -> Expr:
    """Pixel `i` of the image mirrored repeatedly at the outermost pixels' centres, or edges."""
    period = extents.larger(2 * (extent - 1 if at_centres else extent), 1)
    m = i % period
    return ir.minimum(m, (period if at_centres else period - 1) - m)


@dataclass(frozen=True)
class AffineGrid(Op):
    """The grid of an affine map for `grid_sample`: [N,`shape`,r] from theta [N,r,r+1].

    shape: spatial extents of the result.
    align_corners: as in `grid_sample`.
    """

    shape: tuple[Dim, ...]
    align_corners: bool = False

    def compute(self, *inputs: te.Tensor) -> te.Tensor:
        rules.check_count(self.name, inputs, 1)
        theta, rank = inputs[0], len(self.shape)
        rules.check_kind(self.name, theta, rules.FLOATS, "theta")
        if theta.rank != 3 or not same_shape(theta.shape[1:], (rank, rank + 1)):
            rules.reject(
                self.name, f"theta of shape [N,{rank},{rank + 1}]", rules.shape_text(theta.shape)
            )

        def body(n: Expr, *i: Expr) -> Expr:
            *place, row = i
            wide = rules.accumulator(theta.dtype)
            total = rules.widen(theta[n, row, rank])
            for a, extent in enumerate(self.shape):
                if isinstance(extent, int):
                    scale, shift = (const(v, wide) for v in self._line(extent))
                else:
                    scale, shift = self._symbolic_line(cast(extent, wide), wide)
                coordinate = cast(place[a], wide) * scale + shift
                total = total + rules.widen(theta[n, row, rank - 1 - a]) * coordinate
            return cast(total, theta.dtype)

        return te.compute((theta.shape[0], *self.shape, rank), body, self.name)

    def _symbolic_line(self, extent: Expr, wide: DType) -> tuple[Expr, Expr]:
        one, two = const(1, wide), const(2, wide)
        if self.align_corners:
            some = two / maximum(extent - one, one)
            return select(extent > one, some, const(0, wide)), const(-1, wide)
        return two / extent, one / extent - one

    def _line(self, extent: int) -> tuple[float, float]:
        """(scale, shift) such that pixel n has the coordinate scale * n + shift."""
        if self.align_corners:
            return (2 / (extent - 1) if extent > 1 else 0.0), -1.0
        return 2 / extent, 1 / extent - 1

    def reference(self, *inputs: np.ndarray) -> np.ndarray:
        theta = rules.widen_array(inputs[0])
        extents = [rules.static(self.name, n, "an extent") for n in self.shape]
        lines = [np.arange(n) * self._line(n)[0] + self._line(n)[1] for n in extents]
        axes = np.meshgrid(*lines, indexing="ij")
        places = np.stack([*axes[::-1], np.ones(extents)], -1)
        result = np.einsum("...k,njk->n...j", places, theta)
        return result.astype(inputs[0].dtype)


@dataclass(frozen=True)
class RoiAlign(Op):
    """Regions of an image resampled to `size` bins each (He et al., "Mask R-CNN"): [R,C,`size`].

    Inputs: x [N,C,H,W]; regions [R,4] as x1, y1, x2, y2; integers [R], the image of each region.

    samples: samples per bin along each axis; 0: the number of pixels that the bin touches.
    scale: factor from the regions' units to pixels.
    mode: "avg" or "max" of the samples of a bin.
    half_pixel: whether pixel centres are at n + 0.5.  Otherwise they are at integers, and regions
        are at least one pixel large.
    """

    heavy_reference = True

    size: tuple[int, int]
    samples: int = 0
    scale: float = 1.0
    mode: str = "avg"
    half_pixel: bool = True

    def infer(self, *types: TensorType) -> tuple[TensorType, ...]:
        rules.check_count(self.name, types, 3)
        x, regions, images = types
        if x.rank != 4 or regions.rank != 2 or not same_dim(regions.shape[1], 4):
            rules.reject(self.name, "x [N,C,H,W] and regions [R,4]", f"{x} and {regions}")
        counted = same_shape(images.shape, regions.shape[:1])
        if not counted or images.dtype.kind not in rules.INTEGERS:
            rules.reject(self.name, "an integer for each region", images)
        if not x.dtype.is_float or regions.dtype is not x.dtype:
            rules.reject(self.name, "floats of one type", f"{x} and {regions}")
        return (TensorType(x.dtype, (regions.shape[0], x.shape[1], *self.size)),)

    def loops(self, *types: TensorType) -> Func:
        b = LoopBuilder(self.name)
        x, regions, images = (b.input(f"x{i}", t) for i, t in enumerate(types))
        (result,) = self.infer(*types)
        y = b.output("y", result)
        count, channels, height, width = map(as_expr, result.shape)
        images_of = as_expr(types[0].shape[0])
        wide = rules.accumulator(result.dtype)
        with b.independent_nest((count, channels, height), "r") as (r, c, row):
            image = b.let("image", cast(images[r], i64))
            b.check(
                ir.all_of(image >= 0, image < images_of),
                f"{self.name}: a region is of an image that is not there",
            )
            axes = [
                _Bins(self, b, rules.widen(regions[r, 1 - a]), rules.widen(regions[r, 3 - a]), n)
                for a, n in enumerate(self.size)
            ]
            with b.independent(width, "column") as column:
                start = 0 if self.mode == "avg" else wide.min
                total = b.variable("total", const(start, wide))
                with b.loop(axes[0].samples) as i, b.loop(axes[1].samples) as j:
                    places = (axes[0].place(row, i), axes[1].place(column, j))
                    parts = self._sample(b, x, (image, c), places, types[0].shape[2:])
                    if self.mode == "avg":
                        total.value = total.value + reduce(lambda p, q: p + q, parts)
                    else:
                        total.value = reduce(ir.maximum, parts, total.value)
                number = b.let("number", axes[0].samples * axes[1].samples)
                sampled = total.value
                if self.mode == "avg":
                    sampled = sampled / cast(ir.maximum(number, 1), wide)
                else:
                    sampled = select(number > 0, sampled, const(0, wide))
                y[r, c, row, column] = cast(sampled, result.dtype)
        return b.finish()

    def _sample(
        self,
        b: LoopBuilder,
        x: Array,
        lead: tuple[Expr, Expr],
        places: Sequence[Expr],
        extents: Sequence[Dim],
    ) -> list[Expr]:
        """The four pixels around a position, times their weights.  They are zeros if the position
        is more than one pixel outside the image.
        """
        inside, taps = [], []
        for place, dim in zip(places, extents, strict=True):
            extent = as_expr(dim)
            inside += [place >= -1.0, place <= cast(extent, place.dtype)]
            kept = ir.minimum(ir.maximum(place, 0.0), cast(extent - 1, place.dtype))
            low = b.let("low", cast(call("floor", kept), i64))
            t = kept - cast(low, place.dtype)
            taps.append([(low, 1 - t), (ir.minimum(low + 1, extent - 1), t)])
        kept = b.let("inside", ir.all_of(*inside))
        return [
            select(
                kept,
                rules.widen(x[(*lead, i, j)]) * (u * v),
                const(0, places[0].dtype),
            )
            for (i, u), (j, v) in itertools.product(*taps)
        ]

    def reference(self, *inputs: np.ndarray) -> np.ndarray:
        x, regions, images = inputs
        result = np.zeros((len(regions), x.shape[1], *self.size), rules.widen_array(x).dtype)
        for r, (region, image) in enumerate(zip(rules.widen_array(regions), images, strict=True)):
            if not 0 <= image < len(x):
                rules.reject(self.name, f"images in 0..{len(x) - 1}", int(image))
            pixels = rules.widen_array(x[image])
            axes = [
                self._reference_places(region[1 - a], region[3 - a], n)
                for a, n in enumerate(self.size)
            ]
            for row, column in itertools.product(*map(range, self.size)):
                parts = [
                    part
                    for i, j in itertools.product(axes[0][row], axes[1][column])
                    for part in _reference_sample(pixels, (i, j))
                ]
                if parts:
                    average = sum(parts) / (len(parts) // 4)
                    sampled = average if self.mode == "avg" else np.max(parts, 0)
                    result[r, :, row, column] = sampled
        return result.astype(x.dtype)

    def _reference_places(self, begin: Any, end: Any, bins: int) -> list[list[Any]]:
        shift = 0.5 if self.half_pixel else 0.0
        low, length = begin * self.scale - shift, (end - begin) * self.scale
        if not self.half_pixel:
            length = max(length, type(length)(1))
        step = length / bins
        samples = self.samples or max(math.ceil(step), 0)
        return [
            [low + step * (k + (i + 0.5) / samples) for i in range(samples)] for k in range(bins)
        ]


class _Bins:
    """The bins of a region along one axis: the number of samples in each, and their positions."""

    def __init__(self, op: RoiAlign, b: LoopBuilder, begin: Expr, end: Expr, bins: int) -> None:
        low = begin * op.scale
        length = (end - begin) * op.scale
        if op.half_pixel:
            low = low - 0.5
        else:
            length = ir.maximum(length, 1.0)
        self.low, self.step = b.let("low", low), b.let("step", length / float(bins))
        counted = const(op.samples) if op.samples else cast(call("ceil", self.step), i64)
        self.samples = b.let("samples", ir.maximum(counted, 0))

    def place(self, bin: Expr, sample: Expr) -> Expr:
        dtype = self.step.dtype
        part = (cast(sample, dtype) + 0.5) / cast(self.samples, dtype)
        return self.low + self.step * (cast(bin, dtype) + part)


def _reference_sample(pixels: np.ndarray, place: tuple[Any, Any]) -> list[np.ndarray]:
    taps = []
    for p, n in zip(place, pixels.shape[1:], strict=True):
        if p < -1 or p > n:
            return [np.zeros(pixels.shape[0], pixels.dtype)] * 4
        kept = min(max(p, 0), n - 1)
        low = math.floor(kept)
        taps.append([(low, 1 - (kept - low)), (min(low + 1, n - 1), kept - low)])
    return [pixels[:, i, j] * (u * v) for (i, u), (j, v) in itertools.product(*taps)]
