"""Searches for elements, and for runs of elements, in sorted tables."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tilesmith.ir import expr as ir
from tilesmith.ir.dtypes import f32, i64
from tilesmith.ir.expr import Expr, Unary, const, select
from tilesmith.ir.intrinsics import call
from tilesmith.ir.types import TensorType, same_dim
from tilesmith.loop.builder import Array, LoopBuilder
from tilesmith.loop.nodes import Func

from . import rules
from .base import Op


@dataclass(frozen=True)
class Position(Op):
    """The position of each element among ascending keys; the number of keys for an element that is
    not a key.

    Inputs: x T[...], and keys T[n] without duplicates.  NaN equals NaN here, and comes last.
    Output: i64[...].
    """

    heavy_reference = True

    def infer(self, *types: TensorType) -> tuple[TensorType, ...]:
        rules.check_count(self.name, types, 2)
        x, keys = types
        rules.check_kind(self.name, x, rules.NUMBERS)
        if keys.rank != 1 or x.dtype is not keys.dtype:
            rules.reject(self.name, "numbers and a list of keys of their type", f"{x} and {keys}")
        return (TensorType(i64, x.shape),)

    def loops(self, *types: TensorType) -> Func:
        count = types[1].static_shape[0]
        b = LoopBuilder(self.name)
        x, keys = b.input("x", types[0]), b.input("keys", types[1])
        y = b.output("y", self.infer(*types)[0])
        with b.independent_nest(types[0].shape) as point:
            value = b.let("value", x[point])
            # Keys before `start` are less than the value; keys from `start + size` on are not.
            start, size = b.variable("start", const(0)), b.variable("size", const(count))
            with b.loop(count.bit_length()), b.when(size.value > 0):
                half = b.let("half", size.value // 2)
                middle = b.let("middle", start.value + half)
                is_less = b.let("is_less", _precedes(keys[middle], value))
                start.value = select(is_less, middle + 1, start.value)
                size.value = select(is_less, size.value - half - 1, half)
            position = b.let("found", start.value)
            y[point] = const(count)
            if count:
                key = b.let("key", keys[ir.minimum(position, count - 1)])
                is_there = Unary("not", _precedes(value, key)) & (position < count)
                with b.when(is_there):
                    y[point] = position
        return b.finish()

    def reference(self, *inputs: np.ndarray) -> np.ndarray:
        x, keys = inputs
        positions = np.searchsorted(keys, x).astype(np.int64)
        near = keys[np.minimum(positions, max(len(keys) - 1, 0))] if len(keys) else x
        is_there = (positions < len(keys)) & ((near == x) | ((near != near) & (x != x)))
        return np.where(is_there, positions, len(keys))


def _precedes(a: Expr, b: Expr) -> Expr:
    """Whether a comes before b in ascending order, where NaN comes last."""
    if not a.dtype.is_float:
        return a < b
    return ir.any_of(a < b, ir.all_of(call("isnan", b), Unary("not", call("isnan", a))))


@dataclass(frozen=True)
class CountRuns(Op):
    """The number of occurrences of given runs of integers in each line, with gaps or without.

    Inputs: x i64[lines, n]; for each length of `lengths`, the runs i64[m, length] in lexicographic
    order and the numbers i64[m] of their outputs.  Output: f32[lines, outputs].

    lengths: lengths of the runs.
    largest_skip: upper bound on the elements skipped between two neighbours of a run.  Each number
        from 0 to this one is tried, the same between all neighbours.
    outputs: number of outputs.
    """

    lengths: tuple[int, ...]
    largest_skip: int
    outputs: int
    heavy_reference = True

    def infer(self, *types: TensorType) -> tuple[TensorType, ...]:
        rules.check_count(self.name, types, 1 + 2 * len(self.lengths))
        x, *tables = types
        fits = all(t.dtype is i64 for t in types) and x.rank == 2
        for length, runs, to in zip(self.lengths, tables[::2], tables[1::2], strict=True):
            fits &= runs.rank == 2 and same_dim(runs.shape[1], length) and to.rank == 1
            fits &= same_dim(runs.shape[0], to.shape[0])
        if not fits:
            rules.reject(self.name, "lines and tables of runs", ", ".join(map(str, types)))
        return (TensorType(f32, (x.shape[0], self.outputs)),)

    def loops(self, *types: TensorType) -> Func:
        b = LoopBuilder(self.name)
        x, *tables = (b.input(f"in{i}", t) for i, t in enumerate(types))
        y = b.output("y", self.infer(*types)[0])
        lines, extent = types[0].shape
        with b.independent(lines, "line") as line:
            with b.loop(self.outputs, "k") as k:
                y[line, k] = const(0.0, f32)
            for i, length in enumerate(self.lengths):
                runs, to = tables[2 * i], tables[2 * i + 1]
                count = types[1 + 2 * i].static_shape[0]
                skips = self.largest_skip + 1 if length > 1 else 1
                if not count:
                    continue
                with b.loop(skips, "skip") as skip:
                    span = b.let("span", skip * (length - 1) + length)
                    starts = ir.maximum(ir.as_expr(extent, const(0)) - span + 1, 0)
                    with b.loop(starts, "start") as start:
                        line_at = (line, start, skip + 1)
                        run = self._found(b, x, runs, line_at, (count, length))
                        with b.when(run < count):
                            column = b.let("column", to[run])
                            y[line, column] = y[line, column] + 1.0
        return b.finish()

    def _found(
        self, b: LoopBuilder, x: Array, runs: Array, walk: Sequence[Expr], shape: tuple[int, int]
    ) -> Expr:
        """The number in the table of the run that begins at a position of a line; `count` if the
        table does not contain this run.

        walk: the line, the position of the run's first element, and the distance between elements.
        shape: `count`, which is the number of runs in the table, and the length of a run.
        """
        (line, start, step), (count, length) = walk, shape

        def order(run: Expr) -> Expr:
            """-1, 0 or 1 if the line's run comes before run number `run` of the table, equals it,
            or comes after it.
            """
            sign = b.variable("sign", const(0))
            with b.loop(length, "j") as j, b.when(sign.value == 0):
                here = b.let("here", x[line, start + j * step])
                there = b.let("there", runs[run, j])
                sign.value = select(
                    here < there, const(-1), select(here > there, const(1), const(0))
                )
            return b.let("order", sign.value)

        low, size = b.variable("low", const(0)), b.variable("size", const(count))
        with b.loop(count.bit_length()), b.when(size.value > 0):
            half = b.let("half", size.value // 2)
            middle = b.let("middle", low.value + half)
            is_after = b.let("is_after", order(middle) > 0)
            low.value = select(is_after, middle + 1, low.value)
            size.value = select(is_after, size.value - half - 1, half)
        place = b.let("place", low.value)
        result = b.variable("result", const(count))
        with b.when(place < count):
            differs = order(ir.minimum(place, count - 1))
            with b.when(differs == 0):
                result.value = place
        return b.let("found", result.value)

    def reference(self, *inputs: np.ndarray) -> np.ndarray:
        x, *tables = inputs
        y = np.zeros((len(x), self.outputs), np.float32)
        for length, runs, to in zip(self.lengths, tables[::2], tables[1::2], strict=True):
            known = {tuple(r): c for r, c in zip(runs.tolist(), to.tolist(), strict=True)}
            for step in range(1, (self.largest_skip + 1 if length > 1 else 1) + 1):
                span = step * (length - 1) + 1
                for start in range(max(x.shape[1] - span + 1, 0)):
                    for line, run in enumerate(x[:, start : start + span : step].tolist()):
                        if tuple(run) in known:
                            y[line, known[tuple(run)]] += 1
        return y
