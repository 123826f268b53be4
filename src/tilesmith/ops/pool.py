"""Pools: a reduction over windows of the spatial axes of x [N, C, ...].

The expression is an optional `pad` stage with the reduction's identity, one reduce stage over the
kernel axes and, for averages, a stage that scales.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from tilesmith.ir import expr as ir
from tilesmith.ir import extents
from tilesmith.ir.dtypes import dtype as to_dtype
from tilesmith.ir.dtypes import i32, i64
from tilesmith.ir.expr import Expr, cast, const, select
from tilesmith.ir.intrinsics import call
from tilesmith.ir.types import Dim, same_dim, same_shape
from tilesmith.te import tensor as te

from . import rules
from .base import GraphBuilder, Op
from .reduce import ReduceL1, ReduceL2
from .slicing import pad
from .window import Window, spatial_names


@dataclass(frozen=True)
class _Pool(Op, abstract=True):
    """Base of the pools.  `pads` has the padding before each spatial axis, then the padding after
    each.  If `strides` or `dilations` is empty, all are 1; if `pads` is empty, all are 0.

    With `ceil_mode` the last window may extend past the end of the padded input.
    """

    heavy_reference = True

    kernel: tuple[int, ...]
    strides: tuple[int, ...] = ()
    pads: tuple[Dim, ...] = ()
    dilations: tuple[int, ...] = ()
    ceil_mode: bool = False

    kinds: ClassVar[tuple[str, ...]] = rules.FLOATS

    def window(self) -> Window:
        return Window.of(self.name, self.kernel, self.strides, self.pads, self.dilations)

    def _extents(self, win: Window, spatial: tuple[Dim, ...]) -> list[Dim]:
        return [win.out_extent(self.name, d, a, self.ceil_mode) for a, d in enumerate(spatial)]

    def _check(self, inputs: tuple[te.Tensor, ...]) -> tuple[te.Tensor, Window, list[Dim]]:
        x = rules.only(self.name, inputs)
        rules.check_kind(self.name, x, self.kinds)
        win = self.window()
        if x.rank != 2 + len(win.kernel):
            rules.reject(
                self.name, f"rank {2 + len(win.kernel)} (N, C, spatial)", rules.shape_text(x.shape)
            )
        return x, win, self._extents(win, x.shape[2:])

    def _ends(self, win: Window, spatial: tuple[Dim, ...], outs: list[Dim]) -> list[Dim]:
        """The padding after each axis.  In ceil mode it extends to the end of the last window."""
        ends: list[Dim] = []
        for a, (d, o) in enumerate(zip(spatial, outs, strict=True)):
            end = win.ends[a]
            if self.ceil_mode:
                over = extents.difference(win.end(a, o), extents.total((win.begins[a], d)))
                end = extents.larger(over, 0)
            ends.append(end)
        return ends

    def _reduce(
        self,
        x: te.Tensor,
        win: Window,
        outs: list[Dim],
        identity: float | int,
        reduce: Callable[..., Any],
        value: Callable[..., Any] = lambda e, at: e,
        of: te.Tensor | None = None,
    ) -> Any:
        """Pad x with `identity`, and reduce `value(element, padded position)` over each window.

        of: a tensor of the result's shape, or None.  The element of the window in this tensor is
            the third argument of `value`.
        """
        n = len(win.kernel)
        ends = self._ends(win, x.shape[2:], outs)
        names = ["n", "c", *spatial_names("i", n)]
        padded = pad(x, (0, 0, *win.begins), (0, 0, *ends), identity, axis_names=names)
        taps = win.taps()

        def body(batch: Expr, c: Expr, *out: Expr) -> Any:
            position = win.position(out, taps)
            own = () if of is None else (of[(batch, c, *out)],)
            return reduce(value(padded[(batch, c, *position)], position, *own), axis=taps)

        names = ["n", "c", *spatial_names("o", n)]
        return te.compute((*x.shape[:2], *outs), lambda *i: body(*i), self.name, names)

    def _views(self, x: np.ndarray, identity: Any) -> tuple[np.ndarray, Window]:
        """All windows of the padded array, [N, C, out..., kernel...], and their geometry."""
        win = self.window()
        outs = self._extents(win, x.shape[2:])
        ends = self._ends(win, x.shape[2:], outs)
        x = win.padded(x, np.asarray(identity).astype(x.dtype), ends)
        return win.views(x, outs), win


class MaxPool(_Pool):
    """Maxima of windows; padding is never the maximum."""

    kinds: ClassVar[tuple[str, ...]] = rules.NUMBERS

    def compute(self, *inputs: te.Tensor) -> te.Tensor:
        x, win, outs = self._check(inputs)
        return self._reduce(x, win, outs, x.dtype.min, te.max)

    def reference(self, *inputs: np.ndarray) -> np.ndarray:
        x = inputs[0]
        views, win = self._views(x, to_dtype(x.dtype).min)
        result = views[(..., *[0] * len(win.kernel))].copy()
        for k in np.ndindex(*win.kernel):
            np.maximum(result, views[(..., *k)], out=result)
        return result


@dataclass(frozen=True)
class MaxPoolIndices(_Pool):
    """Maxima and their flat indices (i64) in the whole input.  The first of equal maxima counts,
    and NaN counts as the largest.

    column_major: whether indices count the first spatial axis fastest (ONNX storage_order=1).
    """

    column_major: bool = False
    kinds: ClassVar[tuple[str, ...]] = rules.NUMBERS

    def decompose(self, b: GraphBuilder, *inputs: Any) -> Any:
        x = rules.only(self.name, inputs)
        window = (self.kernel, self.strides, self.pads, self.dilations, self.ceil_mode)
        best = b.add(MaxPool(*window), x)
        return best, b.add(MaxPlaces(*window, self.column_major), x, best)

    def reference(self, *inputs: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        x = inputs[0]
        low = to_dtype(x.dtype).min
        views, win = self._views(rules.widen_array(x), low)
        order = "F" if self.column_major else "C"
        numbers = np.arange(int(np.prod(x.shape[2:]))).reshape(x.shape[2:], order=order)
        none = np.iinfo(np.int64).max
        positions = MaxPool(self.kernel, self.strides, self.pads, self.dilations, self.ceil_mode)
        marks, _ = positions._views(numbers[None, None] - none, -none - 1)
        n = len(win.kernel)
        out = views.shape[:-n]
        values = views.reshape(*out, -1)
        where = np.broadcast_to(marks, views.shape).reshape(*out, -1)
        where = np.where(where == -none - 1, none, where + none)
        best = values.max(-1)
        is_best = (values == best[..., None]) | np.isnan(values)  # NaN counts as the largest
        first = np.where(is_best, where, none).min(-1)
        planes = np.arange(x.shape[0] * x.shape[1]).reshape(*x.shape[:2], *[1] * n)
        return best.astype(x.dtype), first + planes * numbers.size


@dataclass(frozen=True)
class MaxPlaces(_Pool):
    """The flat index (i64) of the maximum of each window, for inputs (x, maxima): the index of the
    first element that equals the maximum, or is NaN.  If a plane of x is small enough, indices are
    computed in i32, which has as many lanes as f32.

    column_major: as in `MaxPoolIndices`.
    in_plane: whether indices count only the spatial axes, not the whole input.
    """

    column_major: bool = False
    in_plane: bool = False
    kinds: ClassVar[tuple[str, ...]] = rules.NUMBERS

    def compute(self, *inputs: te.Tensor) -> te.Tensor:
        rules.check_count(self.name, inputs, 2)
        x, best = inputs
        _, win, outs = self._check((x,))
        if best.dtype is not x.dtype or not same_shape(best.shape, (*x.shape[:2], *outs)):
            wanted = f"maxima {x.dtype}{rules.shape_text((*x.shape[:2], *outs))}"
            rules.reject(self.name, wanted, f"{best.dtype}{rules.shape_text(best.shape)}")
        spatial = x.shape[2:]
        strides = rules.strides_of(spatial)
        if self.column_major:
            strides = rules.strides_of(spatial[::-1])[::-1]
        size = rules.product(spatial)
        number = i32 if isinstance(size, int) and size <= i32.max else i64

        def place(element: Expr, at: list[Expr], highest: Expr) -> Expr:
            flat: Expr = const(0)
            tests: list[Expr] = [element == highest]
            if x.dtype.is_float:  # NaN is not equal to itself, and counts as the largest
                tests = [ir.any_of(tests[0], element != element)]
            for p, begin, extent, stride in zip(at, win.begins, spatial, strides, strict=True):
                i = p if same_dim(begin, 0) else p - begin
                if not same_dim(begin, 0):
                    tests.append(i >= 0)
                tests.append(i < extent)
                flat = flat + i * stride
            return select(ir.all_of(*tests), cast(flat, number), const(number.max, number))

        first = self._reduce(x, win, outs, x.dtype.min, te.min, place, best)
        channels = x.shape[1]

        def wide(*i: Expr) -> Expr:
            flat = cast(first[i], i64)
            if number is not i64:  # the largest i32 stands for a window without elements
                flat = select(first[i] == number.max, const(i64.max, i64), flat)
            return flat if self.in_plane else (i[0] * channels + i[1]) * size + flat

        return te.compute(first.shape, wide, "indices", rules.axis_names_of(first))

    def reference(self, *inputs: np.ndarray) -> np.ndarray:
        x, _ = inputs
        window = (self.kernel, self.strides, self.pads, self.dilations, self.ceil_mode)
        _, indices = MaxPoolIndices(*window, self.column_major).reference(x)
        size = int(np.prod(x.shape[2:]))
        planes = np.arange(x.shape[0] * x.shape[1]).reshape(*x.shape[:2], *[1] * (x.ndim - 2))
        return indices - planes * size if self.in_plane else indices


@dataclass(frozen=True)
class AvgPool(_Pool):
    """Averages.  With `count_include_pad` padding counts as zeros; without, it does not count.

    In ceil mode the part of a window past the end never counts.
    """

    count_include_pad: bool = False

    def compute(self, *inputs: te.Tensor) -> te.Tensor:
        x, win, outs = self._check(inputs)
        total = self._reduce(x, win, outs, 0, lambda e, axis: te.sum(rules.widen(e), axis=axis))
        names = rules.axis_names_of(total)
        counts = [
            self._count(win, a, d, o)
            for a, (d, o) in enumerate(zip(x.shape[2:], outs, strict=True))
        ]

        def scale(*i: Expr) -> Expr:
            fixed = 1
            varying: Expr | None = None
            for count, o in zip(counts, i[2:], strict=True):
                if isinstance(count, int):
                    fixed *= count
                else:
                    e = count(o)
                    varying = e if varying is None else varying * e
            if varying is None:
                by: Expr = const(float(fixed), total.dtype)
            else:
                by = cast(varying * fixed if fixed != 1 else varying, total.dtype)
            return cast(total[i] / by, x.dtype)

        return te.compute(total.shape, scale, "scale", names)

    def _count(self, win: Window, a: int, extent: Dim, out: Dim) -> int | Callable[[Expr], Expr]:
        """The number of taps of a window that count along axis `a`.  It is a number if all windows
        agree, else a function of the window's position.
        """
        low = extents.product((win.begins[a], -1)) if self.count_include_pad else 0
        high = extents.total((extent, win.ends[a])) if self.count_include_pad else extent
        k, stride, d, begin = win.kernel[a], win.strides[a], win.dilations[a], win.begins[a]
        beyond = extents.difference(win.end(a, out), extents.total((high, begin)))
        if extents.is_at_most(extents.total((low, begin)), 0) and extents.is_at_most(beyond, 0):
            return k

        def count(o: Expr) -> Expr:
            start = (o * stride if stride != 1 else o) - begin
            if d == 1:
                taps = ir.minimum(start + k, high) - ir.maximum(start, low)
            else:  # the taps j with low <= start + j * d < high, from divisions that round up
                first = ir.maximum((low - start + (d - 1)) // d, 0)
                end = ir.minimum((high - start + (d - 1)) // d, k)
                taps = end - first
            return ir.maximum(taps, 1)

        return count

    def reference(self, *inputs: np.ndarray) -> np.ndarray:
        x = inputs[0]
        views, win = self._views(rules.widen_array(x), 0)
        n = len(win.kernel)
        total = np.zeros(views.shape[:-n], np.float64)
        begins, ends = win.static_pads(self.name)
        for k in np.ndindex(*win.kernel):
            total += views[(..., *k)]
        for a in range(n):
            low = -begins[a] if self.count_include_pad else 0
            high = x.shape[a + 2] + (ends[a] if self.count_include_pad else 0)
            starts = np.arange(total.shape[a + 2]) * win.strides[a] - begins[a]
            taps = starts[:, None] + np.arange(win.kernel[a]) * win.dilations[a]
            count = np.maximum(((taps >= low) & (taps < high)).sum(1), 1)
            total /= count.reshape(-1, *[1] * (n - 1 - a))
        return total.astype(x.dtype)


@dataclass(frozen=True)
class LpPool(_Pool):
    """(sum of |x|^p over the window)^(1/p)."""

    p: int = 2

    def compute(self, *inputs: te.Tensor) -> te.Tensor:
        x, win, outs = self._check(inputs)
        if self.p < 1:
            rules.reject(self.name, "p of at least 1", self.p)

        def power(e: Expr, at: list[Expr]) -> Expr:
            e = rules.widen(e)
            if self.p == 2:
                return e * e
            size = call("abs", e)
            return size if self.p == 1 else call("pow", size, const(self.p, e.dtype))

        total = self._reduce(x, win, outs, 0, te.sum, power)

        def root(e: Expr) -> Expr:
            if self.p == 2:
                return call("sqrt", e)
            return e if self.p == 1 else call("pow", e, const(1 / self.p, e.dtype))

        names = rules.axis_names_of(total)
        return te.compute(total.shape, lambda *i: cast(root(total[i]), x.dtype), "root", names)

    def reference(self, *inputs: np.ndarray) -> np.ndarray:
        x = inputs[0]
        powers = np.abs(x.astype(np.float64)) ** self.p
        views, win = self._views(powers, 0)
        total = np.zeros(views.shape[: -len(win.kernel)], np.float64)
        for k in np.ndindex(*win.kernel):
            total += views[(..., *k)]
        return (total ** (1 / self.p)).astype(x.dtype)


def _spatial(op: str, x: Any) -> tuple[int, ...]:
    if x.type.rank < 3:
        rules.reject(op, "an input of rank 3 or more (N, C, spatial)", x.type)
    return tuple(range(2, x.type.rank))


class GlobalAvgPool(Op):
    """The mean over all spatial axes, kept with extent 1."""

    def decompose(self, b: GraphBuilder, *inputs: Any) -> Any:
        rules.check_count(self.name, inputs, 1)
        return inputs[0].mean(_spatial(self.name, inputs[0]), keepdims=True)

    def reference(self, *inputs: np.ndarray) -> np.ndarray:
        x = rules.exact(inputs[0])
        return x.mean(tuple(range(2, x.ndim)), keepdims=True).astype(inputs[0].dtype)


class GlobalMaxPool(Op):
    """The maximum over all spatial axes, kept with extent 1."""

    def decompose(self, b: GraphBuilder, *inputs: Any) -> Any:
        rules.check_count(self.name, inputs, 1)
        return inputs[0].max(_spatial(self.name, inputs[0]), keepdims=True)

    def reference(self, *inputs: np.ndarray) -> np.ndarray:
        return inputs[0].max(tuple(range(2, inputs[0].ndim)), keepdims=True)


@dataclass(frozen=True)
class GlobalLpPool(Op):
    """(sum of |x|^p)^(1/p) over all spatial axes, kept with extent 1."""

    p: int = 2

    def decompose(self, b: GraphBuilder, *inputs: Any) -> Any:
        rules.check_count(self.name, inputs, 1)
        x, axes = inputs[0], _spatial(self.name, inputs[0])
        if self.p == 1:
            return b.add(ReduceL1(axes), x)
        if self.p == 2:
            return b.add(ReduceL2(axes), x)
        if self.p < 1:
            rules.reject(self.name, "p of at least 1", self.p)
        return (abs(x) ** self.p).sum(axes, keepdims=True) ** (1 / self.p)

    def reference(self, *inputs: np.ndarray) -> np.ndarray:
        x = rules.exact(inputs[0])
        norm = np.linalg.norm(x.reshape(*x.shape[:2], -1), self.p, -1)
        return norm.reshape(*x.shape[:2], *[1] * (x.ndim - 2)).astype(inputs[0].dtype)
