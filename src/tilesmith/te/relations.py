"""Relations between the axes of a stage: one class for each kind of relation, with all its
arithmetic.

A relation replaces some axes (`parents`) by others (`made`).  The extents of made axes follow from
those of the parents.  Values follow in the other direction, from the loops to the root axes.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from tilesmith.ir.expr import Const, Expr, as_expr, const
from tilesmith.ir.types import Dim, same_dim

Tail = Literal["peel", "guard", "roundup"]
"""Treatment of a split whose factor does not divide the extent: "peel" inserts a guard that peeling
removes, "guard" inserts a guard that stays, "roundup" computes past the end into padded memory.
"""


def dim(value: Dim) -> Dim:
    """`value`, as an int if it is constant."""
    return int(value.value) if isinstance(value, Const) else value


def ceil_div(n: Dim, d: Dim) -> Dim:
    if isinstance(n, int) and isinstance(d, int):
        return -(-n // d)
    return (n + (d - 1)) // d


def dim_expr(n: Dim) -> Expr:
    return const(n) if isinstance(n, int) else as_expr(n)


def add(a: Expr, b: Expr) -> Expr:
    """`a + b`, simplified if `a` or `b` is zero."""
    if isinstance(a, Const) and a.value == 0:
        return b
    return a if isinstance(b, Const) and b.value == 0 else a + b


def mul(a: Expr, n: Dim) -> Expr:
    """`a * n`, simplified if `n` is 1, or if `n` is a number and `a` is constant."""
    if isinstance(n, int):
        if n == 1 or (isinstance(a, Const) and a.value == 0):
            return a
        if isinstance(a, Const):
            return const(int(a.value) * n)
    return a * n


def divide(a: Expr, n: Dim) -> tuple[Expr, Expr]:
    """`a // n` and `a % n`."""
    if isinstance(n, int) and n == 1:
        return a, const(0)
    if isinstance(a, Const) and a.value == 0:
        return a, a
    return a // n, a % n


@dataclass(frozen=True, slots=True)
class Guard:
    """A condition for the body to run.

    cond: the condition.
    tail: the tail that the schedule requested.
    """

    cond: Expr
    tail: Tail


@dataclass(slots=True)
class AxisValues:
    """The values of a stage's axes for given values of its loops; see `axis_values`.

    values: the value of each axis, as an expression of the loops.
    overhang: the axes whose value may exceed their extent, with the tail to use there.
    guards: conditions that no padding can replace.  They exclude values past the end of an inner
        axis, which would repeat an element of the outer axis's next iteration, and values before
        the start of an axis.
    """

    values: dict[str, Expr]
    overhang: dict[str, Tail] = field(default_factory=dict)
    guards: list[Guard] = field(default_factory=list)

    def guard(self, cond: Expr, tail: Tail) -> None:
        """Add a guard against values that are outside of an axis but not past the end of a tensor.
        No padding can replace such a guard.
        """
        self.guards.append(Guard(cond, "peel" if tail == "roundup" else tail))


class AxisRelation(ABC):
    """Axes derived from other axes of a stage."""

    __slots__ = ()

    @property
    @abstractmethod
    def parents(self) -> tuple[str, ...]:
        """The axes that the relation replaces; they are no longer loops."""

    @property
    @abstractmethod
    def made(self) -> tuple[str, ...]:
        """The axes that the relation makes."""

    @property
    @abstractmethod
    def said(self) -> str:
        """The phrase that completes "it was ..." in a message about a parent: it names the step
        that replaced the parents.
        """

    @abstractmethod
    def extents(self, of: Mapping[str, Dim]) -> tuple[Dim, ...]:
        """The extents of the made axes, from the extents of all earlier axes."""

    @abstractmethod
    def resolve(self, known: AxisValues, extents: Mapping[str, Dim]) -> None:
        """Add the values of the parents to `known`, which has the values of the made axes."""


class _OfOneAxis(AxisRelation):
    __slots__ = ()

    parent: str

    @property
    def parents(self) -> tuple[str, ...]:
        return (self.parent,)


@dataclass(frozen=True, slots=True)
class SplitRelation(_OfOneAxis):
    """`parent = outer * factor + inner`.

    parent: the axis that is split.
    outer, inner: the axes made.
    factor: extent of the inner axis, if given.
    nparts: extent of the outer axis, if given instead.
    tail: the treatment of a split that does not divide.
    """

    parent: str
    outer: str
    inner: str
    factor: Dim | None
    nparts: Dim | None
    tail: Tail

    @property
    def made(self) -> tuple[str, ...]:
        return self.outer, self.inner

    @property
    def said(self) -> str:
        return f"split into {self.outer} and {self.inner}"

    def extents(self, of: Mapping[str, Dim]) -> tuple[Dim, ...]:
        if self.factor is not None:
            return ceil_div(of[self.parent], self.factor), self.factor
        assert self.nparts is not None
        return self.nparts, ceil_div(of[self.parent], self.nparts)

    def resolve(self, known: AxisValues, extents: Mapping[str, Dim]) -> None:
        values, overhang = known.values, known.overhang
        outer, inner, whole = extents[self.outer], extents[self.inner], extents[self.parent]
        if self.inner in overhang:
            # an inner value past the end would be computed again as the first value of the next
            # block
            known.guard(values[self.inner] < dim_expr(inner), overhang.pop(self.inner))
        values[self.parent] = add(mul(values[self.outer], inner), values[self.inner])
        exact = (
            isinstance(whole, int)
            and isinstance(outer, int)
            and isinstance(inner, int)
            and outer * inner == whole
        )
        tail = _merge(overhang.pop(self.outer, None), None if exact else self.tail)
        if tail is not None:
            overhang[self.parent] = tail


def _merge(a: Tail | None, b: Tail | None) -> Tail | None:
    """The stricter of two tails.  "roundup" is the least strict one: it relies on padding, which
    both tails must allow.
    """
    if a is None or b is None:
        return a or b
    return a if b == "roundup" else b if a == "roundup" or b == "peel" else a


@dataclass(frozen=True, slots=True)
class FuseRelation(AxisRelation):
    """`fused` enumerates `parts` in row-major order.

    parts: the axes that are fused, the fastest last.
    fused: the axis made.
    """

    parts: tuple[str, ...]
    fused: str

    @property
    def parents(self) -> tuple[str, ...]:
        return self.parts

    @property
    def made(self) -> tuple[str, ...]:
        return (self.fused,)

    @property
    def said(self) -> str:
        return f"fused into {self.fused}"

    def extents(self, of: Mapping[str, Dim]) -> tuple[Dim, ...]:
        product: Dim = 1
        for p in self.parts:
            product = dim(product * of[p])
        return (product,)

    def resolve(self, known: AxisValues, extents: Mapping[str, Dim]) -> None:
        values = known.values
        rest = values[self.fused]
        parts = [p for p in self.parts if not same_dim(extents[p], 1)]
        values.update(dict.fromkeys(self.parts, const(0)))
        for part in reversed(parts[1:]):
            rest, values[part] = divide(rest, extents[part])
        if parts:
            values[parts[0]] = rest
        if self.fused in known.overhang:
            # as a condition on the fused value, the guard stays affine in the loop variables
            cond = values[self.fused] < dim_expr(extents[self.fused])
            known.guard(cond, known.overhang.pop(self.fused))


@dataclass(frozen=True, slots=True)
class SkewRelation(_OfOneAxis):
    """`parent = skewed - (by * factor) % modulus`.

    parent: the axis that is skewed.
    by: the axis on which the skew depends.
    factor, modulus: constants of the skew.
    skewed: the axis made.
    """

    parent: str
    by: str
    factor: int
    modulus: int
    skewed: str

    @property
    def made(self) -> tuple[str, ...]:
        return (self.skewed,)

    @property
    def said(self) -> str:
        return f"skewed to {self.skewed}"

    @property
    def most(self) -> int:
        """The largest distance between `skewed` and `parent`."""
        return self.modulus - math.gcd(self.factor, self.modulus)

    def extents(self, of: Mapping[str, Dim]) -> tuple[Dim, ...]:
        return (dim(of[self.parent] + self.most),)

    def resolve(self, known: AxisValues, extents: Mapping[str, Dim]) -> None:
        values = known.values
        values[self.parent] = values[self.skewed] - mul(values[self.by], self.factor) % self.modulus
        tail = known.overhang.pop(self.skewed, None) or "peel"
        known.guard(values[self.parent] >= 0, tail)
        known.overhang[self.parent] = tail


Relation: TypeAlias = "SplitRelation | FuseRelation | SkewRelation"


def axis_values(
    relations: Iterable[Relation], extents: Mapping[str, Dim], loops: Mapping[str, Expr]
) -> AxisValues:
    """Values of all axes of a stage with `relations`, given the values `loops` of its loops."""
    known = AxisValues(dict(loops))
    for relation in reversed(tuple(relations)):
        relation.resolve(known, extents)
    return known
