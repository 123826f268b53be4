"""Applications of the operators that scatter, sort, sample images and transform signals."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from common.op_case import SPECIAL, Case, In, case
from tilesmith.ir.dtypes import BY_NAME
from tilesmith.ops.columns import Col2Im, Im2Col
from tilesmith.ops.fourier import Dft, Stft
from tilesmith.ops.linalg import Det, Solve
from tilesmith.ops.sample import AffineGrid, GridSample, RoiAlign
from tilesmith.ops.scatter import (
    ElementPlaces,
    ScatterElements,
    ScatterNd,
    ScatterSorted,
    SlicePlaces,
)
from tilesmith.ops.select import NonZero, RowRanks
from tilesmith.ops.slicing import Append
from tilesmith.ops.sort import MergeSorted, TopK
from tilesmith.ops.suppression import CountAbove, NonMaxSuppression


def irregular_cases() -> Iterator[Case]:
    yield from _scatters()
    yield from _appends()
    yield from _sorts()
    yield from _selections()
    yield from _samples()
    yield from _matrices()


def _scatters() -> Iterator[Case]:
    rng = np.random.default_rng(0)
    for reduction in ("none", "add", "mul", "min", "max"):
        lines = np.asarray([[2, 0, -1], [1, -3, 0]], np.int64)  # no place twice along axis 0
        yield case(ScatterElements(0, reduction), (3, 4), lines, (2, 3))
        tuples = np.asarray([[[0, 1]], [[-1, 0]]], np.int32)
        yield case(ScatterNd(reduction), (3, 2, 5), tuples, (2, 1, 5))
        yield case(ScatterNd(reduction), (3, 2, 5), tuples[..., :1].copy(), (2, 1, 2, 5))
    for reduction in ("add", "max"):  # places that several updates share
        yield case(
            ScatterElements(-1, reduction), (2, 3, 5), rng.integers(-5, 5, (2, 2, 20)), (2, 2, 20)
        )
        yield case(ScatterNd(reduction), (4,), rng.integers(0, 4, (9, 1)), (9,))
    yield case(ScatterNd(), In((4, 3), "bool"), np.asarray([[2]]), In((1, 3), "bool"))
    yield case(ScatterNd("add"), In((3, 2), "f16"), np.asarray([[2], [0]]), In((2, 2), "f16"))
    order = np.argsort(rng.integers(0, 6, 9), kind="stable")
    for reduction in ("none", "add", "mul", "min", "max"):
        places = np.sort(rng.integers(0, 6, 9))  # some that several updates share
        yield case(ScatterSorted(1, reduction), (6,), (9,), places, order)
        yield case(ScatterSorted(2, reduction), (3, 2, 5), (3, 3, 5), places, order)
    yield case(ScatterSorted(1), In((4, 3), "bool"), In((1, 3), "bool"), *np.asarray([[2], [0]]))
    lines = np.asarray([[2, 0, -1], [1, -3, 0]], np.int32)
    yield case(ElementPlaces((3, 4)), lines)
    yield case(ElementPlaces((2, 5, 3), 1), lines[None])
    yield case(SlicePlaces((3, 4)), np.asarray([[0, 1], [-1, -4]], np.int64))
    yield case(SlicePlaces((3,)), np.asarray([2], np.uint8))


def _appends() -> Iterator[Case]:
    yield case(Append(0), (3, 4), (2, 4))
    yield case(Append(-1), (1, 5), (1, 17))
    yield case(Append(1), In((1, 3, 2), "i8"), In((1, 1, 2), "i8"))


def _sorts() -> Iterator[Case]:
    for largest in (True, False):
        for k in (0, 1, 3, 12):
            yield case(TopK(k, -1, largest), (2, 12))
            yield case(TopK(k, -1, largest), SPECIAL)
        yield case(TopK(4, 1, largest), (2, 7, 3))
        yield case(TopK(9, 0, largest), In((9,), "i32", -3, 3))
        long = np.random.default_rng(5).integers(-30, 31, (3, 203)).astype(np.float32)
        long[0, 150:], long[1, 7] = np.nan, np.nan  # vectors with and without better elements
        for k in (1, 5, 70):
            yield case(TopK(k, -1, largest), long)
            yield case(TopK(k, 0, largest), long.T.copy())
        yield case(TopK(2, 0, largest), In((5, 2), "u8", 0, 9))
        # Zeros of both signs are equal, and so are all NaNs; the first of equal elements is first.
        ties = np.tile(np.float32([0, -0.0, 1, -np.inf, np.inf, -1]), 40).reshape(2, 120)
        ties.view(np.uint32)[:, 7::31] = 0x7FC00000, 0xFFC00000, 0xFFC00001, 0x7FC00001
        for dtype in ("f32", "f64", "f16"):
            yield case(TopK(17, -1, largest), ties.astype(BY_NAME[dtype].numpy))
        for dtype in ("i8", "u8", "i16", "i32", "u32", "i64", "u64"):
            ends = np.iinfo(BY_NAME[dtype].numpy)
            line = np.array([0, ends.max, ends.min, ends.max // 2, 1] * 30, ends.dtype)
            yield case(TopK(33, -1, largest), line)
        for shape, k in (((2, 12), 24), ((2, 12), 5), ((4, 1), 2), ((2, 12), 0)):
            yield case(MergeSorted(k, shape[1], -1, largest), *_sorted(shape, largest))
        columns = (x[..., None].repeat(2, -1) for x in _sorted((4, 6), largest))
        yield case(MergeSorted(9, 10, 1, largest), *columns)


def _sorted(shape: tuple[int, int], largest: bool) -> tuple[np.ndarray, np.ndarray]:
    """Sorted lines with ties, an infinity and NaN, and the positions in what was sorted."""
    values = np.random.default_rng(7).integers(-3, 4, shape).astype(np.float32)
    values[:, ::5], values[0, ::7] = np.nan, np.inf
    return TopK(shape[1], -1, largest).reference(values)


def _matrices() -> Iterator[Case]:
    for dtype in ("f32", "f64", "f16"):
        yield case(Det(), In((2, 3, 4, 4), dtype))
    for rows in (0, 1, 2, 9):
        yield case(Det(), (rows, rows))
    yield case(Det(), np.asarray([[0, 2, 1], [3, 0, 0], [0, 0, 4]], np.float32))  # pivots
    yield case(Det(), np.ones((3, 3), np.float32))
    rng = np.random.default_rng(6)
    for dtype, rows, columns in (("f32", 5, 3), ("f64", 9, 1), ("f16", 3, 4), ("f32", 1, 2)):
        a = rng.permutation(np.eye(rows)) * 4 + rng.uniform(-0.5, 0.5, (2, rows, rows))
        a = a.astype(np.dtype({"f16": "f2", "f32": "f4", "f64": "f8"}[dtype]))
        yield case(Solve(), a, In((2, rows, columns), dtype))
    yield case(Solve(), (0, 0), (0, 2))
    yield case(Solve(), (2, 2), (2, 0))


def _selections() -> Iterator[Case]:
    rng = np.random.default_rng(5)
    yield case(NonZero(), In((3, 4), "bool"))
    yield case(NonZero(), np.asarray([0.0, -0.0, 2.5, np.nan], np.float32))
    yield case(NonZero(), In((2, 0, 3), "i32"))
    yield case(NonZero(), In((3, 5), "int4", -2.0, 2.0))
    yield case(NonZero(), In((3, 5), "f8e4m3fn", -2.0, 2.0))
    yield case(RowRanks(), rng.integers(0, 2, (9, 3)).astype(np.int32))
    yield case(RowRanks(), np.asarray([[2.5], [-1.0], [2.5]], np.float32))
    yield case(CountAbove(), In((2, 3, 7)), np.zeros(1, np.float32))
    yield case(CountAbove(), rng.normal(size=1100).astype(np.float32), np.ones(1, np.float32))
    for centred in (False, True):
        boxes = rng.uniform(0, 1, (2, 40, 4)).astype(np.float32)
        scores = rng.uniform(0, 1, (2, 3, 40)).astype(np.float32).round(1)  # many are equal
        scores[0, 0, ::3] = np.nan
        scores[1, 2] = 0
        for most, overlap, least in ((2, 0.1, 0.0), (40, 0.0, 0.5), (40, 0.5, -1.0), (0, 0.5, 0.0)):
            limits = [np.asarray([v], np.float32) for v in (overlap, least)]
            counts = CountAbove().reference(scores, limits[1])
            ends = counts.sum((-2, -1), dtype=np.int64).ravel().cumsum()
            op = NonMaxSuppression(int(ends[-1]), centred)
            yield case(op, boxes, scores, limits[1], counts, ends, np.asarray([most]), limits[0])


def _samples() -> Iterator[Case]:
    grid = In((2, 3, 4, 2), low=-1.6, high=1.6)
    for mode in ("nearest", "linear", "cubic"):
        for padding in ("zeros", "border", "reflection"):
            for align in (False, True):
                yield case(GridSample(mode, padding, align), (2, 3, 5, 4), grid)
    volume = In((1, 2, 2, 2, 3), low=-1.2, high=1.2)
    yield case(GridSample("linear", "border"), (1, 2, 3, 4, 5), volume)
    yield case(GridSample(), (1, 2, 7), In((1, 5, 1), low=-1.2, high=1.2))
    for align in (False, True):
        yield case(AffineGrid((4, 3), align), (2, 2, 3))
        yield case(AffineGrid((2, 1, 3), align), (1, 3, 4))
    regions = np.asarray([[1, 2, 7.5, 6], [0, 0, 0.4, 9], [-3, 2, 20, 5]], np.float32)
    images = np.asarray([1, 0, 1], np.int64)
    for mode in ("avg", "max"):
        for half in (False, True):
            yield case(RoiAlign((3, 2), 0, 0.8, mode, half), (2, 3, 8, 9), regions, images)
            yield case(RoiAlign((2, 2), 2, 1.0, mode, half), (2, 3, 8, 9), regions, images)
    yield case(Im2Col((2, 3)), (2, 3, 4, 5))
    yield case(Im2Col((3, 2), (2, 1), (1, 0, 0, 1), (1, 2)), (2, 3, 6, 5))
    yield case(Im2Col((3,), (), (2, -1)), (2, 1, 6))
    yield case(Col2Im((4, 4), (3, 3), (1, 1), (2, 1, -1, 0)), (1, 9, 9))
    yield case(Col2Im((5, 5), (2, 3)), (1, 12, 12))
    yield case(Col2Im((6, 5), (3, 2), (2, 1), (1, 0, 0, 1), (1, 2)), (2, 12, 12))
    for n in (0, 5, 9):
        yield case(Dft(1, n), (2, 7, 1))
        yield case(Dft(1, n, onesided=True), (2, 7, 1))
        yield case(Dft(0, n, inverse=True), (7, 3, 2))
        yield case(Dft(0, n, inverse=True, onesided=True), (4, 3, 2))
    yield case(Stft(3), (2, 20, 1), (8,))
    yield case(Stft(4, False), (1, 20, 2), (6,))
