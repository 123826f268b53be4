"""Functions of coordinates as data: their definitions, and their place.

`func.Func` is the interface with which programs make them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from tilesmith.ir import expr as ir
from tilesmith.ir.dtypes import DType
from tilesmith.ir.expr import Expr as Value
from tilesmith.support.errors import ExpressionError
from tilesmith.te.rewrite import loads

from .buffers import Image, Source
from .domains import DOMAINS, Domain, domain_of
from .expressions import PURE, Expr, Var, as_expr, index_of, matched, value_of
from .schedules import Placement, Steps


@dataclass(eq=False)
class Definition:
    """`f[args] = values`, for all points of `domain` where its conditions hold.

    args: the coordinates.  Those of a pure definition are variables.
    values: one for each value of the Func.
    domain: the reduction domain; None for none.
    steps: the schedule of its loops.
    """

    args: tuple[Value, ...]
    values: tuple[Value, ...]
    domain: Domain | None = None
    steps: Steps = field(default_factory=Steps)

    def is_pure_at(self, number: int) -> bool:
        """Whether argument `number` is a variable of all coordinates."""
        return self.args[number] in PURE


class Function:
    """A function of coordinates.  Its dimensions go from the innermost one outwards.

    definitions: the pure definition, then the updates.
    sources: its values.
    placement: where it is computed and stored.
    wrappers: for a reader, the copy of this function that it reads; None stands for all readers.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self.definitions: list[Definition] = []
        self.sources: tuple[Source, ...] = ()
        self.placement = Placement()
        self.wrappers: dict[Function | None, Function] = {}
        self._output: Image | None = None

    def name(self) -> str:
        return self._name

    def __repr__(self) -> str:
        return f"<Func {self._name}>"

    def defined(self) -> bool:
        return bool(self.definitions)

    def has_update_definitions(self) -> bool:
        return len(self.definitions) > 1

    def num_update_definitions(self) -> int:
        return max(len(self.definitions) - 1, 0)

    def dimensions(self) -> int:
        return len(self.pure.args)

    @property
    def arg_names(self) -> list[str]:
        return [a.name for a in self.pure.args if isinstance(a, ir.Var)]

    @property
    def pure(self) -> Definition:
        if not self.definitions:
            raise ExpressionError(f"{self._name} has no definition yet: write {self._name}[x] = e")
        return self.definitions[0]

    def output_buffer(self) -> Image:
        """The image that a run makes of this Func."""
        if self._output is None:
            self._output = Image(self._name, self.dimensions())
        return self._output

    def _define(self, places: tuple[Any, ...], values: Sequence[Any]) -> None:
        args = tuple(as_expr(p).ir for p in places)
        if any(a not in PURE for a in args) or len(set(args)) < len(args):
            raise ExpressionError(
                f"{self._name}: the first definition has a different Var for each coordinate, "
                f"found {', '.join(map(str, args))}"
            )
        given = tuple(value_of(as_expr(v)) for v in values)
        self._check(args, given)
        if domain_of(given):
            raise ExpressionError(
                f"{self._name}: the first definition uses a variable of an RDom; define a start, "
                "then an update, or use hl.sum"
            )
        self.sources = tuple(
            Source(self, n, self._name if len(given) == 1 else f"{self._name}.{n}", v.dtype)
            for n, v in enumerate(given)
        )
        self.definitions.append(Definition(args, given))

    def _add_update(self, places: tuple[Any, ...], values: Sequence[Any]) -> None:
        pure = self.pure
        if (len(places), len(values)) != (len(pure.args), len(pure.values)):
            raise ExpressionError(
                f"{self._name}: expected {len(pure.args)} coordinates and {len(pure.values)} "
                f"values, as in its first definition, found {len(places)} and {len(values)}"
            )
        args = tuple(as_expr(p).ir if isinstance(as_expr(p), Var) else index_of(p) for p in places)
        given = tuple(self._fitting(v, s.dtype) for v, s in zip(values, self.sources, strict=True))
        kept = [own for arg, own in zip(args, pure.args, strict=True) if arg is own]
        for v in coordinates_in(args):
            if v not in set(kept):
                raise ExpressionError(
                    f"{self._name}: an update uses {v}, which must be a coordinate in its own "
                    f"dimension; found {', '.join(map(str, args))}, expected "
                    f"{', '.join(map(str, pure.args))}, numbers or variables of an RDom"
                )
        self._check(args, given)
        made = Definition(args, given, domain_of((*args, *given)))
        for load in loads(given):
            if load.buffer in self.sources:
                self._check_self(made, load)
        self.definitions.append(made)

    def _fitting(self, value: Any, dtype: DType) -> Value:
        if type(value) in (int, float):
            return matched(value, Expr(ir.const(0, dtype)))[0]
        e = as_expr(value)
        if e.dtype is not dtype:
            raise ExpressionError(
                f"{self._name}: expected values of type {dtype}, as in its first definition, found "
                f"{e.dtype}; use hl.cast"
            )
        return value_of(e)

    def _check(self, args: Sequence[Value], values: Sequence[Value]) -> None:
        """Raises ExpressionError for a variable that is no coordinate."""
        known = ir.vars_of(args)
        for v in coordinates_in(values):
            if v not in known:
                raise ExpressionError(
                    f"{self._name}: expected {', '.join(map(str, args)) or 'no Var'} on the right "
                    f"side, found {v.name}, which is no coordinate of the definition"
                )

    def _check_self(self, made: Definition, load: ir.Load) -> None:
        """Raises ExpressionError if an update reads this Func at another place of a variable."""
        for n, (arg, index) in enumerate(zip(made.args, load.indices, strict=True)):
            if made.is_pure_at(n) and index is not arg:
                raise ExpressionError(
                    f"{self._name}: an update for all {arg} reads {load}; expected {arg} in "
                    f"dimension {n}, or an RDom, whose points have an order"
                )


def coordinates_in(exprs: Iterable[Value]) -> list[ir.Var]:
    """The coordinates that `exprs` use, in order of first use."""
    found: dict[ir.Var, None] = {}
    for e in exprs:
        for node in ir.post_order(e):
            if isinstance(node, ir.Var) and node in PURE and node not in DOMAINS:
                found[node] = None
    return list(found)
