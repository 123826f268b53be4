"""Random expressions and schedules, many of them wrong in one of the ways in which people err."""

from __future__ import annotations

import random
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from tilesmith import te
from tilesmith.ir.dtypes import f32, i64
from tilesmith.ir.expr import Expr, Var
from tilesmith.support.errors import ScheduleError

SIZES: list[Any] = [1, 2, 3, 5, 8]
WRONG_SIZES: list[Any] = [0, -1, -4, 4.0, 2.5, True, "n", None, Var("m", f32)]


class Program:
    """Two stages over random arguments; constructing it raises what is wrong with it."""

    def __init__(self, seed: int) -> None:
        self.r = random.Random(seed)
        self.inputs = [
            te.placeholder(self.shape(2), "f32", "A"),
            te.placeholder(self.shape(1), "i64", "I"),
            te.placeholder(self.shape(1), "i32", "J"),
            te.placeholder(self.shape(2), "bool", "B"),
        ]
        first = self.compute("P", self.inputs)
        self.output = self.compute("Q", [*self.inputs, first])

    def maybe(self, share: float) -> bool:
        return self.r.random() < share

    def size(self) -> Any:
        return self.r.choice(WRONG_SIZES if self.maybe(0.01) else SIZES)

    def shape(self, rank: int) -> tuple[Any, ...]:
        return tuple(self.size() for _ in range(rank))

    def compute(self, name: str, tensors: list[te.Tensor]) -> te.Tensor:
        axis = te.reduce_axis(self.size(), "k")
        is_reduced = self.maybe(0.3)

        def body(*i: Expr) -> Any:
            names = [*i, axis.var] if is_reduced or self.maybe(0.02) else list(i)
            value = self.value(3, names, tensors)
            if not is_reduced:
                return value
            reduce = self.r.choice([te.sum, te.max, te.min, te.prod])
            listed = [axis] * (2 if self.maybe(0.03) else 1)
            return reduce(value, axis=listed if self.maybe(0.97) else i[0])

        return te.compute(self.shape(self.r.choice([1, 2])), lambda *i: body(*i), name)

    def value(self, depth: int, names: list[Expr], tensors: list[te.Tensor]) -> Any:
        """A float, mostly."""
        r = self.r
        if depth == 0 or self.maybe(0.2):
            return self.load(names, tensors) if self.maybe(0.8) else r.choice([0.5, -2.0, 1])

        def some() -> Any:
            return self.value(depth - 1, names, tensors)

        kind = r.randrange(8)
        a, b = some(), some()
        if kind < 3:
            operations: list[Callable[[Any, Any], Any]] = [
                lambda x, y: x + y, lambda x, y: x - y, lambda x, y: x * y, te.minimum, te.maximum,
                lambda x, y: x / y if self.maybe(0.2) else x + y,
            ]  # fmt: skip
            return r.choice(operations)(a, b)
        if kind == 3:
            return te.if_then_else(self.condition(names), a, b)
        if kind == 4:
            return te.abs(a) if self.maybe(0.8) else te.call(r.choice(["tanh", "frob", "pow"]), a)
        if kind == 5:
            return -te.cast(a, f32)
        if kind == 6:
            return te.cast(self.index(2, names, tensors), f32)
        return te.select(a > b, a, b)

    def load(self, names: list[Expr], tensors: list[te.Tensor]) -> Any:
        t = self.r.choice(tensors)
        rank = t.rank + (self.r.choice([-1, 1]) if self.maybe(0.01) else 0)
        indices = [self.index(2, names, tensors) for _ in range(rank)]
        guards = []
        for n in range(min(rank, t.rank)):
            size = t.shape[n]
            way = self.r.randrange(20)
            if way < 7:
                indices[n] = te.minimum(te.maximum(indices[n], 0), size - 1)
            elif way < 13:
                indices[n] = indices[n] % size
            elif way < 19:
                guards += [indices[n] >= 0, indices[n] < size]
        read: Any = t[tuple(indices)]
        if guards:
            read = te.if_then_else(te.all(*guards), read, te.const(0, t.dtype))
        return te.cast(read, f32) if self.maybe(0.97) else read

    def index(self, depth: int, names: list[Expr], tensors: list[te.Tensor]) -> Any:
        r = self.r
        if depth == 0 or self.maybe(0.3):
            if self.maybe(0.1):
                return te.cast(self.load([r.choice(names)], self.inputs[1:3]), i64)
            return r.choice(names) if self.maybe(0.8) else te.const(r.randrange(-2, 9))
        a, b = (self.index(depth - 1, names, tensors) for _ in range(2))
        n = r.choice([2, 3, 5])
        if self.maybe(0.01):
            return a / n
        results: list[Callable[[], Any]] = [
            lambda: a + b, lambda: a - b, lambda: a * n, lambda: a // n, lambda: a % n,
            lambda: te.minimum(a, b), lambda: te.maximum(a, b),
        ]  # fmt: skip
        return r.choice(results)()

    def condition(self, names: list[Expr]) -> Any:
        a, b = (self.index(1, names, self.inputs) for _ in range(2))
        cond = self.r.choice([lambda: a < b, lambda: a >= b, lambda: te.all(a < b, b < 3)])()
        return cond if self.maybe(0.97) else a

    def schedule(self) -> te.Schedule:
        """Up to six steps; illegal ones are refused and left out."""
        s = te.create_schedule(self.output.op)
        for _ in range(self.r.randrange(7)):
            with suppress(ScheduleError):
                self.step(s)
        return s

    def step(self, s: te.Schedule) -> object:
        r = self.r
        stage, other = r.choice(s.stages), r.choice(s.stages)
        axes = stage.leaf_axes
        axis = r.choice(axes) if axes else "i"
        there = r.choice(other.leaf_axes) if other.leaf_axes else "i"
        tensor = r.choice(stage.op.outputs)
        size = r.choice([1, 2, 3, 4, 7, 16, 0])
        scope: Any = r.choice(["heap", "stack", "register", "moon"])
        steps: list[Callable[[], object]] = [
            lambda: stage.split(axis, size, tail=r.choice(["peel", "guard", "roundup"])),
            lambda: stage.fuse(*axes[:2]),
            lambda: stage.reorder(*r.sample(axes, len(axes))),
            lambda: stage.vectorize(axis),
            lambda: stage.unroll(axis),
            lambda: stage.parallel(axis),
            lambda: stage.compute_at(other, there),
            lambda: stage.compute_inline(),
            lambda: stage.set_scope(scope),
            lambda: stage.double_buffer(),
            lambda: stage.storage_align(axis, size),
            lambda: stage.prefetch(tensor, axis, size),
            lambda: stage.skew(axis, there, size, 4),
            lambda: s.cache_read(tensor, scope, [other]),
            lambda: s.cache_write(tensor, scope),
            lambda: s.rfactor(tensor, axis),
            lambda: s.flatten_axes(tensor, *axes),
            lambda: s.transform_layout(tensor, r.choice(["1 0", "0 1", "0/4 1 0%4", "0"])),
        ]
        return r.choice(steps)()
