"""The arithmetic between a stage's loops and its root axes: what split, fuse and skew mean."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from tilesmith.ir.expr import Const, Expr, const
from tilesmith.ir.types import Dim

from .stage import FuseRelation, SkewRelation, SplitRelation, StageState, dim_expr
from .steps import Tail


@dataclass(frozen=True, slots=True)
class Guard:
    """`cond` must hold for the body to run; `tail` says what the schedule asked for."""

    cond: Expr
    tail: Tail


@dataclass(frozen=True, slots=True)
class AxisValues:
    """`values`: every axis in terms of the leaves.  `overhang`: root axes whose value may pass
    their extent. `guards`: conditions needed inside, where a value that passes its extent would run
    into its neighbour, or that begins before its axis does."""

    values: dict[str, Expr]
    overhang: dict[str, Tail]
    guards: tuple[Guard, ...]


def add(a: Expr, b: Expr) -> Expr:
    """`a + b`, without the zeros."""
    if isinstance(a, Const) and a.value == 0:
        return b
    return a if isinstance(b, Const) and b.value == 0 else a + b


def mul(a: Expr, n: Dim) -> Expr:
    """`a * n`, without the zeros and ones."""
    if isinstance(n, int):
        if n == 1 or (isinstance(a, Const) and a.value == 0):
            return a
        if isinstance(a, Const):
            return const(int(a.value) * n)
    return a * n


def _is_one(n: Dim) -> bool:
    return isinstance(n, int) and n == 1


def divide(a: Expr, n: Dim) -> tuple[Expr, Expr]:
    """`a // n` and `a % n`."""
    if _is_one(n):
        return a, const(0)
    if isinstance(a, Const) and a.value == 0:
        return a, a
    return a // n, a % n


def _merge(a: Tail | None, b: Tail | None) -> Tail | None:
    """The stricter of two wishes: memory may be padded only if both say so."""
    if a is None or b is None:
        return a or b
    return a if b == "roundup" else b if a == "roundup" or b == "peel" else a


def _inner_guard(cond: Expr, tail: Tail) -> Guard:
    """A guard that no padding can replace: what overhangs is not the end of a tensor."""
    return Guard(cond, "peel" if tail == "roundup" else tail)


def axis_values(
    stage: StageState, extents: Mapping[str, Dim], leaves: Mapping[str, Expr]
) -> AxisValues:
    """Values of all axes of `stage` when its leaves have the values `leaves`."""
    values = dict(leaves)
    overhang: dict[str, Tail] = {}
    guards: list[Guard] = []
    for rel in reversed(stage.relations):
        if isinstance(rel, FuseRelation):
            rest = values[rel.fused]
            for part in reversed(rel.parts[1:]):
                rest, values[part] = divide(rest, extents[part])
            values[rel.parts[0]] = rest
            if rel.fused in overhang:
                # said of the fused value, the guard stays affine in the loop variables
                cond = values[rel.fused] < dim_expr(extents[rel.fused])
                guards.append(_inner_guard(cond, overhang.pop(rel.fused)))
            continue
        if isinstance(rel, SkewRelation):
            start = mul(values[rel.by], rel.factor) % rel.modulus
            values[rel.parent] = values[rel.skewed] - start
            tail = overhang.pop(rel.skewed, None) or "peel"
            guards.append(_inner_guard(values[rel.parent] >= 0, tail))
            overhang[rel.parent] = tail
            continue
        assert isinstance(rel, SplitRelation)
        outer, inner, whole = extents[rel.outer], extents[rel.inner], extents[rel.parent]
        if rel.inner in overhang:
            # past its end the inner value would be the next block's first: computed twice
            cond = values[rel.inner] < dim_expr(inner)
            guards.append(_inner_guard(cond, overhang.pop(rel.inner)))
        values[rel.parent] = add(mul(values[rel.outer], inner), values[rel.inner])
        exact = (
            isinstance(whole, int)
            and isinstance(outer, int)
            and isinstance(inner, int)
            and outer * inner == whole
        )
        tail = _merge(overhang.pop(rel.outer, None), None if exact else rel.tail)
        if tail is not None:
            overhang[rel.parent] = tail
    return AxisValues(values, overhang, tuple(guards))
