"""Halide's reduction domains."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from tilesmith.ir import expr as ir
from tilesmith.ir.dtypes import i64
from tilesmith.support.errors import UsageError

from .buffers import Buffer, ImageParam
from .expressions import Expr, Operators, as_expr, index_of

_NUMBERS = itertools.count()


class RVar(Expr):
    """One dimension of a reduction domain, or a loop that a schedule makes of one."""

    def __init__(self, name: str = "", var: ir.Var | None = None) -> None:
        self._name = name or f"rv{next(_NUMBERS)}"
        super().__init__(var or ir.Var(self._name, i64), is_coordinate=True)

    def name(self) -> str:
        return self._name

    def __repr__(self) -> str:
        return f"<RVar {self._name}>"


@dataclass(eq=False)
class Domain:
    """The values over which an update runs.

    axes: for each variable, innermost first, its first value and the number of values.
    where: the condition under which the update is made.
    """

    axes: dict[ir.Var, tuple[ir.Expr, ir.Expr]]
    where: list[ir.Expr] = field(default_factory=list)

    def __post_init__(self) -> None:
        DOMAINS.update(dict.fromkeys(self.axes, self))


DOMAINS: dict[ir.Var, Domain] = {}
"""The domain of each reduction variable."""


class RDom(Operators):
    """A reduction domain: `RDom([(min, extent), ...])` or `RDom(min, extent, ...)`, innermost
    first, or the coordinates of a Buffer or an ImageParam.
    """

    def __init__(self, ranges: Any, *more: Any, name: str = "") -> None:
        if more and isinstance(more[-1], str):
            more, name = more[:-1], more[-1]
        label = name or f"r{next(_NUMBERS)}"
        parts: Sequence[Any]
        if isinstance(ranges, (Buffer, ImageParam)):
            dims = [ranges.dim(n) for n in range(ranges.dimensions())]
            parts = [(d.min(), d.extent()) for d in dims]
        else:
            flat = (ranges, *more)
            parts = [flat[n : n + 2] for n in range(0, len(flat), 2)] if more else ranges
        if not isinstance(parts, (list, tuple)) or any(
            not isinstance(p, (list, tuple)) or len(p) != 2 for p in parts
        ):
            raise UsageError(f"RDom: expected (min, extent) of each dimension, found {parts!r}")
        names = "xyzw" if len(parts) <= 4 else [f"_{n}" for n in range(len(parts))]
        self.vars = [RVar(f"{label}_{n}") for n, _ in zip(names, parts)]
        if len(self.vars) == 1:
            self.vars = [RVar(label)]
        axes = {}
        for var, (low, size) in zip(self.vars, parts, strict=True):
            assert isinstance(var.ir, ir.Var)
            axes[var.ir] = (index_of(low), index_of(size))
        self.domain = Domain(axes)

    def where(self, condition: Any) -> None:
        """Make updates only where `condition` holds."""
        self.domain.where.append(as_expr(condition).ir)

    def dimensions(self) -> int:
        return len(self.vars)

    def _number(self, n: int) -> RVar:
        if n >= len(self.vars):
            raise UsageError(f"an RDom of {len(self.vars)} dimensions has no number {n}")
        return self.vars[n]

    x = property(lambda self: self._number(0))
    y = property(lambda self: self._number(1))
    z = property(lambda self: self._number(2))
    w = property(lambda self: self._number(3))

    def __getitem__(self, n: int) -> RVar:
        return self._number(n)

    def __iter__(self) -> Iterator[RVar]:
        return iter(self.vars)

    def name(self) -> str:
        return self.vars[0].name()

    def __as_halide__(self) -> Expr:
        if len(self.vars) != 1:
            raise UsageError(f"an RDom of {len(self.vars)} dimensions is no coordinate; use r.x")
        return self.vars[0]


def domain_of(exprs: Sequence[ir.Expr]) -> Domain | None:
    """The reduction domain whose variables `exprs` use; None for none.  Raises UsageError for
    several domains.
    """
    found = {
        DOMAINS[v]: None for v in sorted(ir.vars_of(exprs), key=lambda v: v.name) if v in DOMAINS
    }
    if len(found) > 1:
        raise UsageError("an update uses variables of two RDoms: make one RDom of all dimensions")
    return next(iter(found), None)
