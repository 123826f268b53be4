"""Operators that join, cut, pad and repeat tensors."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from tilesmith.ir import expr as ir
from tilesmith.ir import extents
from tilesmith.ir.expr import Expr, ExprLike, as_expr, const
from tilesmith.ir.sizes import LARGEST
from tilesmith.ir.symbols import as_dim
from tilesmith.ir.types import Dim, TensorType, same_dim
from tilesmith.loop.builder import LoopBuilder
from tilesmith.loop.nodes import Func
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
            if x.rank != first.rank or not rules.equal_shapes(
                self.name, others, [d for i, d in enumerate(first.shape) if i != axis]
            ):
                rules.reject(
                    self.name,
                    f"shapes equal but for axis {axis}",
                    ", ".join(rules.shape_text(x.shape) for x in inputs),
                )
        starts = _starts(x.shape[axis] for x in inputs)
        parts = [
            (x, s) for x, s in zip(inputs, starts, strict=False) if not same_dim(x.shape[axis], 0)
        ]
        shape = (*first.shape[:axis], starts[-1], *first.shape[axis + 1 :])

        def choose(parts: Sequence[tuple[te.Tensor, Dim]], index: tuple[Expr, ...]) -> Expr:
            """The element at `index` of the result, as a balanced tree of selects, whose depth is
            log2 of the number of `parts`.  Each part is an input and its start along the axis.
            """
            if len(parts) == 1:
                x, start = parts[0]
                position = index[axis] if same_dim(start, 0) else index[axis] - start
                return x[(*index[:axis], position, *index[axis + 1 :])]
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
class Append(Op):
    """The first input followed by the second one along `axis`, as in `Concat`.

    The extents before `axis` are 1, so the result begins with the bytes of the first input.

    in_place: whether the result occupies the memory of the first input, which must be large enough.
        Then compiled code writes only the second input.
    """

    axis: int = 0
    in_place: bool = False

    def infer(self, *types: TensorType) -> tuple[TensorType, ...]:
        rules.check_count(self.name, types, 2)
        types_ = Concat(self.axis).infer(*types)
        first = types_[0].shape[: rules.normalize_axis(self.name, self.axis, types_[0].rank)]
        if not all(same_dim(d, 1) for d in first):
            rules.reject(
                self.name, f"extents of 1 in front of axis {self.axis}", rules.shape_text(first)
            )
        return types_

    def loops(self, *types: TensorType) -> Func:
        b = LoopBuilder(self.name)
        data, rows = b.input("data", types[0]), b.input("rows", types[1])
        result = b.output("result", self.infer(*types)[0])
        axis = self.axis % types[0].rank
        if not self.in_place:
            with b.independent_nest(types[0].shape) as i:
                result[i] = data[i]
        with b.independent_nest(types[1].shape) as i:
            position = as_expr(types[0].shape[axis]) + i[axis]
            result[(*i[:axis], position, *i[axis + 1 :])] = rows[i]
        return b.finish()

    def reference(self, *inputs: np.ndarray) -> np.ndarray:
        return np.concatenate(inputs, self.axis)


def _starts(sizes: Iterable[Dim]) -> list[Dim]:
    """The start of each of consecutive parts of the given sizes, and the end of the last part."""
    starts: list[Dim] = [0]
    for n in sizes:
        starts.append(extents.total((starts[-1], n)))
    return starts


@dataclass(frozen=True)
class Split(Op):
    """The input cut along `axis` into parts of `sizes`."""

    axis: int
    sizes: tuple[Dim, ...]

    def compute(self, *inputs: te.Tensor) -> tuple[te.Tensor, ...]:
        x = rules.only(self.name, inputs)
        axis = rules.normalize_axis(self.name, self.axis, x.rank)
        extent, starts = x.shape[axis], _starts(self.sizes)
        if not rules.equal(self.name, starts[-1], extent) or any(
            isinstance(n, int) and n < 0 for n in self.sizes
        ):
            rules.reject(self.name, f"sizes that add up to {extent}", rules.shape_text(self.sizes))

        def part(start: Dim, size: Dim) -> te.Tensor:
            shape = (*x.shape[:axis], size, *x.shape[axis + 1 :])
            at_front = same_dim(start, 0)
            return te.compute(
                shape,
                lambda *i: x[(*i[:axis], i[axis] if at_front else i[axis] + start, *i[axis + 1 :])],
                self.name,
            )

        return tuple(part(start, size) for start, size in zip(starts, self.sizes, strict=False))

    def reference(self, *inputs: np.ndarray) -> tuple[np.ndarray, ...]:
        return tuple(np.split(inputs[0], _starts(self.sizes)[1:-1], self.axis))  # type: ignore[arg-type]  # numbers


@dataclass(frozen=True)
class Slice(Op):
    """`x[start:end:step]` along each of `axes`, by Python's rules: negative indices count from the
    end, and indices out of range are clipped.

    starts: first index, for each of `axes`.
    ends: one past the last index.  With a negative step an end below `-extent` means "before the
        first element".
    steps: distance between indices.
    """

    starts: tuple[Dim, ...]
    ends: tuple[Dim, ...]
    axes: tuple[int, ...]
    steps: tuple[int, ...]

    def cuts(self, shape: Sequence[Dim]) -> dict[int, Cut]:
        """The cut along each axis that is sliced, by axis number."""
        if not len(self.starts) == len(self.ends) == len(self.axes) == len(self.steps):
            rules.reject(self.name, "as many starts, ends and steps as axes", str(self))
        if 0 in self.steps:
            rules.reject(self.name, "steps other than 0", self.steps)
        rules.normalize_axes(self.name, self.axes, len(shape))
        result: dict[int, Cut] = {}
        for start, end, a, step in zip(self.starts, self.ends, self.axes, self.steps, strict=True):
            axis = rules.normalize_axis(self.name, a, len(shape))
            result[axis] = _cut(shape[axis], start, end, step)
        return result

    def compute(self, *inputs: te.Tensor) -> te.Tensor:
        x = rules.only(self.name, inputs)
        cuts = self.cuts(x.shape)
        shape = tuple(cuts[a].count if a in cuts else d for a, d in enumerate(x.shape))

        def at(a: int, i: Expr) -> Expr:
            if a not in cuts:
                return i
            start, step = cuts[a].start, cuts[a].step
            scaled = i if step == 1 else i * step
            return scaled if same_dim(start, 0) else scaled + start

        return te.compute(shape, lambda *i: x[tuple(at(a, e) for a, e in enumerate(i))], self.name)

    def reference(self, *inputs: np.ndarray) -> np.ndarray:
        x = inputs[0]
        parts = [slice(None)] * x.ndim
        for start, end, a, step in zip(self.starts, self.ends, self.axes, self.steps, strict=True):
            parts[a] = slice(start, end, step)
        return x[tuple(parts)]


@dataclass(frozen=True, slots=True)
class Cut:
    """`count` indices from `start` on, at distances of `step`."""

    start: Dim
    count: Dim
    step: int


LONGEST_STEP = 1 << 62
"""Upper bound on steps.  Longer steps select the same elements.  The sum of this bound and an
extent fits into i64.
"""


def _cut(extent: Dim, start: Dim, end: Dim, step: int) -> Cut:
    """The elements that `start:end:step` selects along an axis, by Python's rules."""
    if isinstance(extent, int) and isinstance(start, int) and isinstance(end, int):
        taken = range(extent)[slice(start, end, step)]
        return Cut(taken.start, len(taken), step)
    step = max(-LONGEST_STEP, min(step, LONGEST_STEP))
    lowest, highest = (0, extent) if step > 0 else (-1, extents.difference(extent, 1))
    first, last = (
        extents.smaller(extents.larger(_from_front(i, extent), lowest), highest)
        for i in (start, end)
    )
    length = extents.difference(last, first) if step > 0 else extents.difference(first, last)
    steps = as_dim(as_expr(extents.total((length, abs(step) - 1))) // abs(step))
    return Cut(first, extents.larger(steps, 0), step)


def _from_front(index: Dim, extent: Dim) -> Dim:
    """`index` counted from the front.  A negative `index` counts from the end."""
    if isinstance(index, int):
        if abs(index) > LARGEST:  # past the end of every axis
            return -1 if index < 0 else extent
        return extents.total((index, extent)) if index < 0 else index
    is_negative = extents.larger(extents.smaller(extents.product((index, -1)), 1), 0)
    return extents.total((index, extents.product((is_negative, extent))))


@dataclass(frozen=True)
class Pad(Op):
    """The input with elements added before and after each axis, or removed where a pad is negative.

    pads: elements to add before each axis, then after each axis.
    mode: "constant", "reflect" (without repeating the border), "edge" or "wrap".
    value: value of the elements added in mode "constant".
    """

    pads: tuple[Dim, ...]
    mode: str = "constant"
    value: float | int | bool = 0.0

    def compute(self, *inputs: te.Tensor) -> te.Tensor:
        x = rules.only(self.name, inputs)
        if len(self.pads) != 2 * x.rank:
            rules.reject(self.name, f"{2 * x.rank} pads for rank {x.rank}", len(self.pads))
        begins, ends = self.pads[: x.rank], self.pads[x.rank :]
        if all(same_dim(p, 0) for p in self.pads):
            return te.compute(x.shape, lambda *i: x[i], self.name)
        if self.mode == "constant":
            return pad(x, begins, ends, self.value)
        if self.mode not in BORDERS:
            rules.reject(self.name, f"mode constant, {', '.join(BORDERS)}", repr(self.mode))
        shape = padded_shape(self.name, x.shape, begins, ends)
        for a, (b, e, d) in enumerate(zip(begins, ends, x.shape, strict=True)):
            if same_dim(d, 0) and not (same_dim(b, 0) and same_dim(e, 0)):
                rules.reject(self.name, f"elements along padded axis {a}", "none")
        borders = [None if same_dim(b, 0) and same_dim(e, 0) else (_may_add(b), _may_add(e))
                   for b, e in zip(begins, ends, strict=True)]  # fmt: skip

        reach = [
            (-as_expr(b), as_expr(extents.total((d, e, -1))))
            for b, d, e in zip(begins, x.shape, ends, strict=True)
        ]

        def body(*index: Expr) -> Expr:
            position = [i if same_dim(b, 0) else i - b for i, b in zip(index, begins, strict=True)]
            return bordered(x, position, self.mode, borders, reach)

        return te.compute(shape, body, self.name)

    def reference(self, *inputs: np.ndarray) -> np.ndarray:
        x = inputs[0]
        pads: tuple[int, ...] = self.pads  # type: ignore[assignment]  # numbers, like the extents
        begins, ends = pads[: x.ndim], pads[x.ndim :]
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
    op: str, shape: Sequence[Dim], begins: Sequence[Dim], ends: Sequence[Dim]
) -> tuple[Dim, ...]:
    result: list[Dim] = []
    for d, b, e in zip(shape, begins, ends, strict=True):
        n = extents.total((d, b, e))
        if isinstance(n, int) and n < 0:
            rules.reject(op, "pads that leave no negative extent", f"{b} and {e} around {d}")
        result.append(n)
    return tuple(result)


def pad(
    x: te.Tensor,
    begins: Sequence[Dim],
    ends: Sequence[Dim],
    value: float | int | bool,
    name: str = "pad",
    axis_names: Sequence[str] | None = None,
) -> te.Tensor:
    """A stage that surrounds `x` with `value`; `x` itself if nothing is padded.  The condition of
    the stage tests only the sides that are padded.
    """
    if all(same_dim(n, 0) for n in (*begins, *ends)):
        return x
    shape = padded_shape(name, x.shape, begins, ends)

    def body(*index: Expr) -> Expr:
        inside: list[Expr] = []
        source: list[Expr] = []
        for i, d, b, e in zip(index, x.shape, begins, ends, strict=True):
            if _may_add(b) > 0:
                inside.append(i >= b)
            if _may_add(e) > 0:
                inside.append(i < as_expr(extents.total((d, b))))
            source.append(i if same_dim(b, 0) else i - b)
        load = x[tuple(source)]
        if not inside:
            return load
        return te.if_then_else(ir.all_of(*inside), load, const(value, x.dtype))

    return te.compute(shape, body, name, axis_names)


def _may_add(pad: Dim) -> int:
    """Upper bound on the elements that a pad adds."""
    most = extents.values_of(pad).hi
    return LARGEST if most is None else most


def _reflect(i: Expr, extent: Dim, before: int, after: int) -> Expr:
    if same_dim(extent, 1):
        return const(0)
    last = extents.difference(extent, 1)
    least = extents.values_of(last).lo
    # the border may be wider than the axis, or the axis may have one element
    if least is None or max(before, after) > least:
        i = i % extents.larger(extents.product((2, last)), 1)
    elif before > 0:
        i = ir.maximum(i, -i)
    return ir.minimum(i, extents.product((2, last)) - i)


def _edge(i: Expr, extent: Dim, before: int, after: int) -> Expr:
    i = ir.maximum(i, 0) if before > 0 else i
    return ir.minimum(i, extents.difference(extent, 1)) if after > 0 else i


def _wrap(i: Expr, extent: Dim, before: int, after: int) -> Expr:
    return i % extents.larger(extent, 1)


BORDERS: dict[str, Callable[[Expr, Dim, int, int], Expr]] = {
    "reflect": _reflect,
    "edge": _edge,
    "wrap": _wrap,
}


def _mirrored_once(i: Expr, extent: Expr, first: Expr, final: Expr) -> tuple[Expr, Expr]:
    """The index into a mirrored axis, and the condition under which it is valid: the borders are
    narrower than the axis.

    first, final: the first and the last index over all elements.
    """
    last = extent - 1
    i = ir.maximum(i, -i)
    return ir.minimum(i, 2 * last - i), ir.all_of(first >= -last, final <= 2 * last)


def bordered(
    x: te.Tensor,
    at: Sequence[Expr],
    mode: str,
    borders: Sequence[tuple[int, int] | None],
    reach: Sequence[tuple[Expr, Expr]],
) -> Expr:
    """The element of `x` at the index `at`.  Outside, borders continue `x` by `mode`.

    borders: upper bounds on the distance of the index from each axis, before its start and after
        its end; None: the index is inside.
    reach: the first and the last index of all elements along each axis.

    Along the last axis with a border, remainders are computed only for indices outside of the axis.
    So neighbours inside are read as one vector.  For mirrored borders a test at run time avoids
    remainders if the borders are narrower than the axis.
    """
    source = list(at)
    last = None
    for a, (i, extent, border) in enumerate(zip(at, x.shape, borders, strict=True)):
        if border is not None:
            source[a] = BORDERS[mode](i, extent, *border)
            last = a
    if last is None or not _takes_remainder(source[last]):
        return x[tuple(source)]
    inside = ir.all_of(at[last] >= 0, at[last] < as_expr(x.shape[last]))
    near = (*source[:last], at[last], *source[last + 1 :])
    outside = x[tuple(source)]
    if mode == "reflect":
        once, fits = _mirrored_once(at[last], as_expr(x.shape[last]), *reach[last])
        outside = te.if_then_else(fits, x[(*source[:last], once, *source[last + 1 :])], outside)
    return te.if_then_else(inside, x[near], outside)


def _takes_remainder(e: Expr) -> bool:
    return any(isinstance(n, ir.Binary) and n.op == "floormod" for n in ir.post_order(e))


@dataclass(frozen=True)
class Tile(Op):
    """The input repeated `repeats[a]` times along each axis a."""

    repeats: tuple[Dim, ...]

    def compute(self, *inputs: te.Tensor) -> te.Tensor:
        x = rules.only(self.name, inputs)
        if len(self.repeats) != x.rank or any(isinstance(r, int) and r < 0 for r in self.repeats):
            rules.reject(
                self.name, f"{x.rank} repeats of 0 or more", rules.shape_text(self.repeats)
            )
        shape = tuple(rules.product((d, r)) for d, r in zip(x.shape, self.repeats, strict=True))

        def at(i: Expr, d: Dim, r: Dim) -> ExprLike:
            if same_dim(r, 1):
                return i
            return const(0) if same_dim(d, 1) else i % d

        return te.compute(shape, lambda *i: x[tuple(map(at, i, x.shape, self.repeats))], self.name)

    def reference(self, *inputs: np.ndarray) -> np.ndarray:
        return np.tile(inputs[0], self.repeats)  # type: ignore[arg-type]  # numbers


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
