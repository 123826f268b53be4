"""Operators that join, cut, pad and repeat tensors."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import accumulate

import numpy as np

from tilesmith.ir import expr as ir
from tilesmith.ir.expr import Expr, ExprLike, as_expr, const
from tilesmith.ir.types import Dim, same_shape
from tilesmith.te import tensor as te

from . import rules
from .base import Op


@dataclass(frozen=True)
class Concat(Op):
    """The inputs one after the other along `axis`."""

    axis: int

    def compute(self, *inputs: te.Tensor) -> te.Tensor:
        rules.check_count(self.name, inputs, 1, len(inputs) or 1)
        rules.check_same_dtype(self.name, inputs)
        first = inputs[0]
        axis = rules.normalize_axis(self.name, self.axis, first.rank)
        for x in inputs[1:]:
            others = [d for i, d in enumerate(x.shape) if i != axis]
            if x.rank != first.rank or not same_shape(
                others, [d for i, d in enumerate(first.shape) if i != axis]
            ):
                rules.reject(
                    self.name,
                    f"shapes equal but for axis {axis}",
                    ", ".join(rules.shape_text(x.shape) for x in inputs),
                )
        extents = [rules.static(self.name, x.shape[axis], f"axis {axis}") for x in inputs]
        starts = [0, *accumulate(extents)]
        parts = [(x, s) for x, s, e in zip(inputs, starts, extents, strict=False) if e]
        shape = (*first.shape[:axis], starts[-1], *first.shape[axis + 1 :])

        def choose(parts: Sequence[tuple[te.Tensor, int]], index: tuple[Expr, ...]) -> Expr:
            """A balanced tree of selects: its depth is the logarithm of the number of inputs."""
            if len(parts) == 1:
                x, start = parts[0]
                at = index[axis] - start if start else index[axis]
                return x[(*index[:axis], at, *index[axis + 1 :])]
            half = len(parts) // 2
            return te.if_then_else(
                index[axis] < parts[half][1],
                choose(parts[:half], index),
                choose(parts[half:], index),
            )

        return te.compute(shape, lambda *i: choose(parts or [(first, 0)], i), self.name)

    def reference(self, *inputs: np.ndarray) -> np.ndarray:
        return np.concatenate(inputs, self.axis)


@dataclass(frozen=True)
class Split(Op):
    """The input cut along `axis` into parts of `sizes`."""

    axis: int
    sizes: tuple[int, ...]

    def compute(self, *inputs: te.Tensor) -> tuple[te.Tensor, ...]:
        x = rules.only(self.name, inputs)
        axis = rules.normalize_axis(self.name, self.axis, x.rank)
        extent = rules.static(self.name, x.shape[axis], f"axis {axis}")
        if sum(self.sizes) != extent or min(self.sizes, default=-1) < 0:
            rules.reject(self.name, f"sizes that add up to {extent}", self.sizes)

        def part(start: int, size: int) -> te.Tensor:
            shape = (*x.shape[:axis], size, *x.shape[axis + 1 :])
            return te.compute(
                shape,
                lambda *i: x[(*i[:axis], i[axis] + start if start else i[axis], *i[axis + 1 :])],
                self.name,
            )

        starts = [0, *accumulate(self.sizes)]
        return tuple(part(start, size) for start, size in zip(starts, self.sizes, strict=False))

    def reference(self, *inputs: np.ndarray) -> tuple[np.ndarray, ...]:
        return tuple(np.split(inputs[0], list(accumulate(self.sizes))[:-1], self.axis))


@dataclass(frozen=True)
class Slice(Op):
    """`x[start:end:step]` along each of `axes`, by Python's rules (negative counts from the end,
    out of range clips).

    starts: first index, per axis of `axes`.
    ends: one past the last index.  With a negative step an end below `-extent` stands for "before
        the first element".
    steps: distance between indices.
    """

    starts: tuple[int, ...]
    ends: tuple[int, ...]
    axes: tuple[int, ...]
    steps: tuple[int, ...]

    def ranges(self, shape: Sequence[Dim]) -> dict[int, range]:
        """The indices taken along each axis that is cut."""
        if not len(self.starts) == len(self.ends) == len(self.axes) == len(self.steps):
            rules.reject(self.name, "as many starts, ends and steps as axes", str(self))
        if 0 in self.steps:
            rules.reject(self.name, "steps other than 0", self.steps)
        rules.normalize_axes(self.name, self.axes, len(shape))
        result: dict[int, range] = {}
        for start, end, a, step in zip(self.starts, self.ends, self.axes, self.steps, strict=True):
            axis = rules.normalize_axis(self.name, a, len(shape))
            extent = rules.static(self.name, shape[axis], f"axis {axis}")
            result[axis] = range(extent)[slice(start, end, step)]
        return result

    def compute(self, *inputs: te.Tensor) -> te.Tensor:
        x = rules.only(self.name, inputs)
        ranges = self.ranges(x.shape)
        shape = tuple(len(ranges[a]) if a in ranges else d for a, d in enumerate(x.shape))

        def at(a: int, i: Expr) -> Expr:
            if a not in ranges:
                return i
            scaled = i if ranges[a].step == 1 else i * ranges[a].step
            return scaled + ranges[a].start if ranges[a].start else scaled

        return te.compute(shape, lambda *i: x[tuple(at(a, e) for a, e in enumerate(i))], self.name)

    def reference(self, *inputs: np.ndarray) -> np.ndarray:
        x = inputs[0]
        parts = [slice(None)] * x.ndim
        for start, end, a, step in zip(self.starts, self.ends, self.axes, self.steps, strict=True):
            parts[a] = slice(start, end, step)
        return x[tuple(parts)]


@dataclass(frozen=True)
class Pad(Op):
    """Elements added before and after each axis (removed where a pad is negative).

    pads: before every axis, then after every axis.
    mode: "constant", "reflect" (without repeating the border), "edge" or "wrap".
    value: of the elements added in mode "constant".
    """

    pads: tuple[int, ...]
    mode: str = "constant"
    value: float | int | bool = 0.0

    def compute(self, *inputs: te.Tensor) -> te.Tensor:
        x = rules.only(self.name, inputs)
        if len(self.pads) != 2 * x.rank:
            rules.reject(self.name, f"{2 * x.rank} pads for rank {x.rank}", len(self.pads))
        begins, ends = self.pads[: x.rank], self.pads[x.rank :]
        if not any(self.pads):
            return te.compute(x.shape, lambda *i: x[i], self.name)
        if self.mode == "constant":
            return pad(x, begins, ends, self.value)
        if self.mode not in _BORDERS:
            rules.reject(self.name, f"mode constant, {', '.join(_BORDERS)}", repr(self.mode))
        border = _BORDERS[self.mode]
        shape = padded_shape(self.name, x.shape, begins, ends)

        def at(a: int, i: Expr) -> ExprLike:
            if begins[a] == 0 and ends[a] == 0:
                return i
            extent = rules.static(self.name, x.shape[a], f"axis {a}")
            if extent == 0:
                rules.reject(self.name, f"elements along padded axis {a}", "none")
            return border(i - begins[a] if begins[a] else i, extent, begins[a], ends[a])

        return te.compute(shape, lambda *i: x[tuple(at(a, e) for a, e in enumerate(i))], self.name)

    def reference(self, *inputs: np.ndarray) -> np.ndarray:
        x = inputs[0]
        begins, ends = self.pads[: x.ndim], self.pads[x.ndim :]
        shape = padded_shape(self.name, x.shape, begins, ends)
        if self.mode == "constant":
            result = np.full(shape, np.asarray(self.value).astype(x.dtype), x.dtype)  # type: ignore[arg-type]
            inner = tuple(
                slice(max(b, 0), b + d + min(e, 0))
                for b, d, e in zip(begins, x.shape, ends, strict=True)
            )
            outer = tuple(
                slice(max(-b, 0), d + min(e, 0))
                for b, d, e in zip(begins, x.shape, ends, strict=True)
            )
            result[inner] = x[outer]
            return result
        for a, (b, e) in enumerate(zip(begins, ends, strict=True)):
            d = x.shape[a]
            places = np.arange(-b, d + e)
            if self.mode == "edge":
                places = np.clip(places, 0, d - 1)
            elif self.mode == "wrap":
                places = places % d
            elif d == 1:
                places = np.zeros_like(places)
            else:
                places = (d - 1) - np.abs((d - 1) - places % (2 * (d - 1)))
            x = np.take(x, places, a)
        return x


def padded_shape(
    op: str, shape: Sequence[Dim], begins: Sequence[int], ends: Sequence[int]
) -> tuple[Dim, ...]:
    result: list[Dim] = []
    for d, b, e in zip(shape, begins, ends, strict=True):
        n = d + (b + e) if b + e else d
        if isinstance(n, int) and n < 0:
            rules.reject(op, "pads that leave no negative extent", f"{b} and {e} around {d}")
        result.append(n)
    return tuple(result)


def pad(
    x: te.Tensor,
    begins: Sequence[int],
    ends: Sequence[int],
    value: float | int | bool,
    name: str = "pad",
    axis_names: Sequence[str] | None = None,
) -> te.Tensor:
    """A stage with `value` around `x`, which tests only the sides that are padded.

    `x` itself if nothing is padded.
    """
    if not any(begins) and not any(ends):
        return x
    shape = padded_shape(name, x.shape, begins, ends)

    def body(*index: Expr) -> Expr:
        inside: list[Expr] = []
        source: list[Expr] = []
        for i, d, b, e in zip(index, x.shape, begins, ends, strict=True):
            if b > 0:
                inside.append(i >= b)
            if e > 0:
                inside.append(i < as_expr(d + b if b else d))
            source.append(i - b if b else i)
        load = x[tuple(source)]
        if not inside:
            return load
        return te.if_then_else(ir.all_of(*inside), load, const(value, x.dtype))

    return te.compute(shape, body, name, axis_names)


def _reflect(i: Expr, extent: int, before: int, after: int) -> ExprLike:
    if extent == 1:
        return const(0)
    last = extent - 1
    if max(before, after) > last:  # several times
        i = i % (2 * last)
    elif before > 0:
        i = ir.maximum(i, -i)
    return ir.minimum(i, 2 * last - i)


def _edge(i: Expr, extent: int, before: int, after: int) -> ExprLike:
    i = ir.maximum(i, 0) if before > 0 else i
    return ir.minimum(i, extent - 1) if after > 0 else i


def _wrap(i: Expr, extent: int, before: int, after: int) -> ExprLike:
    return i % extent


_BORDERS: dict[str, Callable[[Expr, int, int, int], ExprLike]] = {
    "reflect": _reflect,
    "edge": _edge,
    "wrap": _wrap,
}


@dataclass(frozen=True)
class Tile(Op):
    """The input repeated `repeats[a]` times along each axis a."""

    repeats: tuple[int, ...]

    def compute(self, *inputs: te.Tensor) -> te.Tensor:
        x = rules.only(self.name, inputs)
        if len(self.repeats) != x.rank or min(self.repeats, default=0) < 0:
            rules.reject(self.name, f"{x.rank} repeats of 0 or more", self.repeats)
        shape = tuple(rules.product((d, r)) for d, r in zip(x.shape, self.repeats, strict=True))

        def at(i: Expr, d: Dim, r: int) -> ExprLike:
            if r == 1:
                return i
            return const(0) if isinstance(d, int) and d == 1 else i % d

        return te.compute(shape, lambda *i: x[tuple(map(at, i, x.shape, self.repeats))], self.name)

    def reference(self, *inputs: np.ndarray) -> np.ndarray:
        return np.tile(inputs[0], self.repeats)


@dataclass(frozen=True)
class Flip(Op):
    """The input with the order along `axes` reversed."""

    axes: tuple[int, ...]

    def compute(self, *inputs: te.Tensor) -> te.Tensor:
        x = rules.only(self.name, inputs)
        axes = rules.normalize_axes(self.name, self.axes, x.rank)
        last = [d - 1 for d in x.shape]
        return te.compute(
            x.shape,
            lambda *i: x[tuple(last[a] - e if a in axes else e for a, e in enumerate(i))],
            self.name,
        )

    def reference(self, *inputs: np.ndarray) -> np.ndarray:
        return np.flip(inputs[0], self.axes)
