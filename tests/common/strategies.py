"""Random expressions for the property tests: index arithmetic as lowering makes it, conditions,
floats, vectors.

Each strategy draws one small choice at a time, so that Hypothesis can shrink what it finds.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

from hypothesis import strategies as st

from tilesmith.ir.dtypes import DType, f32, i32, i64, u8
from tilesmith.ir.expr import (
    Binary,
    Broadcast,
    Cast,
    Compare,
    Expr,
    Load,
    Ramp,
    Select,
    Unary,
    Var,
    VectorReduce,
    const,
)
from tilesmith.loop.nodes import Buffer

T = TypeVar("T")
Draw = Callable[[st.SearchStrategy[T]], T]

VI, J, K, N = VARS = [Var(n) for n in "ijkn"]
RANGES = {VI: (0, 3), J: (0, 15), K: (-8, 8), N: (1, 40)}
"""Inclusive ranges of the Vars in the tests."""
DATA = Buffer("D", i64, (16,))
BYTES = Buffer("B", u8, (16,))
FLOATS = [Var(n, f32) for n in "xy"]
SIZES = [1, 2, 3, 4, 6, 7, 8, 12, 16, 32, 64]
FLOAT_VALUES = [
    0.0,
    -0.0,
    1.0,
    -1.0,
    0.5,
    3.0,
    float("inf"),
    float("-inf"),
    float("nan"),
    1e-45,
    3e38,
]
LANES = 4


class Maker:
    """Draws expressions of at most a given depth."""

    def __init__(self, draw: Draw) -> None:
        self.draw = draw

    def pick(self, options: Sequence[T]) -> T:
        return options[self.draw(st.integers(0, len(options) - 1))]

    def leaf(self) -> Expr:
        kind = self.pick("vvvvccdb")
        if kind == "v":
            return self.pick(VARS)
        if kind == "c":
            return const(self.draw(st.integers(-40, 40)))
        index = self.pick([VI, J])
        return Load(DATA, (index,)) if kind == "d" else Cast(Load(BYTES, (index,)), i64)

    def index(self, depth: int) -> Expr:
        kind = self.pick(range(12)) if depth else 0
        if kind <= 1:
            return self.leaf()
        a = self.index(depth - 1)
        c = self.pick(SIZES)
        if kind == 2:
            return Binary(self.pick(["truncdiv", "truncmod", "mul"]), a, const(c))
        if kind == 3:
            return a // c
        if kind == 4:
            return a % c
        if kind == 5:
            return Unary("neg", a)
        if kind == 6:
            d = self.pick(SIZES)
            return (a // c) * d + a % c if self.pick([0, 1]) else (a // c) % d * c + a % c
        b = self.index(depth - 1)
        if kind == 7:
            return a * c + b
        if kind == 8:
            return Binary(self.pick(["floordiv", "floormod", "mul"]), a, b)
        if kind == 9:
            return Select(self.condition(1), a, b)
        return Binary(self.pick(["add", "sub", "min", "max"]), a, b)

    def condition(self, depth: int) -> Expr:
        kind = self.pick(range(6)) if depth else 0
        if kind <= 2:
            inner = min(depth, 2)
            return Compare(
                self.pick(["eq", "ne", "lt", "le", "lt", "le"]),
                self.index(inner),
                self.index(inner),
            )
        if kind == 3:
            return Unary("not", self.condition(depth - 1))
        a, b = self.condition(depth - 1), self.condition(depth - 1)
        if kind == 4:
            return Binary(self.pick(["and", "or", "xor"]), a, b)
        return Select(self.condition(depth - 1), a, b)

    def floats(self, depth: int) -> Expr:
        kind = self.pick(range(6)) if depth else 0
        if kind == 0:
            return self.pick([*FLOATS, *(const(v, f32) for v in FLOAT_VALUES)])
        a = self.floats(depth - 1)
        if kind == 1:
            return Unary("neg", a)
        b = self.floats(depth - 1)
        if kind == 2:
            cond = Compare(self.pick(["eq", "ne", "lt", "le"]), self.floats(1), self.floats(1))
            return Select(Unary("not", cond) if self.pick([0, 1]) else cond, a, b)
        return Binary(self.pick(["add", "sub", "mul", "div", "min", "max"]), a, b)

    def narrow(self, depth: int, dtype: DType, leaves: Sequence[Expr]) -> Expr:
        """Expressions of an integer type that wraps around."""
        kind = self.pick(range(7)) if depth else 0
        if kind == 0:
            constants = [const(v, dtype) for v in (0, 1, 2, 3, -1, 100, 127, 128, 255)]
            return self.pick([*leaves, *leaves, *constants])
        a = self.narrow(depth - 1, dtype, leaves)
        if kind == 1:
            return Unary(self.pick(["neg", "not"]), a)
        if kind == 2:
            return Cast(Cast(a, self.pick([i64, i32, u8])), dtype)
        b = self.narrow(depth - 1, dtype, leaves)
        if kind == 3:
            cond = Compare(self.pick(["eq", "ne", "lt", "le"]), a, b)
            return Select(cond, self.narrow(depth - 1, dtype, leaves), a)
        ops = [
            "add",
            "sub",
            "mul",
            "floordiv",
            "floormod",
            "truncdiv",
            "truncmod",
            "min",
            "max",
            "and",
            "or",
            "xor",
        ]
        return Binary(self.pick(ops), a, b)

    def vector(self, depth: int) -> Expr:
        kind = self.pick(range(7)) if depth else 0
        if kind == 0:
            stride = const(self.pick([1, 1, 1, 2, 3, 4, 16, -1, 0]))
            base = self.index(2)
            return (
                Broadcast(base, LANES) if self.pick([0, 1, 2]) == 0 else Ramp(base, stride, LANES)
            )
        a = self.vector(depth - 1)
        if kind == 1:
            return Unary("neg", a)
        if kind == 2:
            op = self.pick(["floordiv", "floormod", "mul"])
            return Binary(op, a, Broadcast(const(self.pick(SIZES)), LANES))
        if kind == 3:
            index = Binary("floormod", a, Broadcast(const(16), LANES))
            mask = (
                Compare("lt", self.vector(depth - 1), self.vector(0)) if self.pick([0, 1]) else None
            )
            return Load(DATA, (index,), mask)
        b = self.vector(depth - 1)
        if kind == 4:
            cond = Compare(self.pick(["eq", "ne", "lt", "le"]), self.vector(0), b)
            if self.pick([0, 1]):
                cond = Binary(self.pick(["and", "or"]), cond, Broadcast(self.condition(1), LANES))
            return Select(cond, a, b)
        return Binary(self.pick(["add", "sub", "mul", "min", "max"]), a, b)


def _strategy(make: Callable[[Maker], Expr]) -> st.SearchStrategy[Expr]:
    @st.composite
    def build(draw: Draw) -> Expr:
        return make(Maker(draw))

    return build()


INDICES = _strategy(lambda m: m.index(m.draw(st.integers(0, 4))))
CONDITIONS = _strategy(lambda m: m.condition(m.draw(st.integers(0, 3))))
FLOAT_EXPRESSIONS = _strategy(lambda m: m.floats(m.draw(st.integers(0, 4))))


def narrow(dtype: DType, leaves: Sequence[Expr]) -> st.SearchStrategy[Expr]:
    """Arithmetic of a type that wraps around."""
    return _strategy(lambda m: m.narrow(m.draw(st.integers(0, 4)), dtype, leaves))


def _vector(m: Maker) -> Expr:
    v = m.vector(m.draw(st.integers(0, 3)))
    size = m.pick([0, 0, 0, 1, 2])
    return VectorReduce(m.pick(["add", "mul", "min", "max"]), v, size) if size else v


VECTORS = _strategy(_vector)
