"""Halide's Func: pure and update definitions of values at coordinates."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

from tilesmith.ir import expr as ir
from tilesmith.ir.expr import Load
from tilesmith.support.arguments import checked_methods
from tilesmith.support.errors import ExpressionError, ScheduleError, UsageError
from tilesmith.te.rewrite import map_loads

from .buffers import Buffer, ImageParam, Source, expanded, one_each, read
from .definitions import Function, coordinates_in
from .element_types import Type
from .expressions import Expr, Operators, Var, as_expr, index_of, of_type, value_of
from .pipeline import Pipeline
from .rfactor import factored
from .schedules import Loops, MemoryType, Stage, Steps, from_1, name_of

_NUMBERS = itertools.count()

PIPELINE = frozenset(n for n in vars(Pipeline) if not n.startswith("_"))
"""The methods of `Pipeline`, which a Func has, too."""

NEUTRAL = {"add": 0, "sub": 0, "mul": 1, "div": 1}
"""Where an update begins if the Func had no value before."""


class FuncRef(Operators):
    """An element of a Func, which an expression reads or a definition gives."""

    def __init__(self, func: Func, args: tuple[Any, ...]) -> None:
        self.func, self.args = func, args

    def __as_halide__(self) -> Expr:
        sources = self.func.sources
        if len(sources) != 1:
            raise ExpressionError(
                f"{self.func.name()} has {len(sources)} values: expected one of them, such as "
                f"{self.func.name()}[...][0]"
            )
        return read(sources[0], self.func.dimensions(), self.args)

    def __getitem__(self, number: int) -> Expr:
        if not 0 <= number < len(self):
            raise ExpressionError(
                f"{self.func.name()}[...][{number}]: expected the number of one of its {len(self)} "
                "values"
            )
        return read(self.func.sources[number], self.func.dimensions(), self.args)

    def __len__(self) -> int:
        return len(self.func.sources)

    def __iter__(self) -> Any:
        return (self[n] for n in range(len(self)))

    def type(self) -> Type:
        return as_expr(self).type()

    def _updated(self, op: str, value: Any) -> Any:
        """The new value after `op`, in the type of the Func."""
        given = value if isinstance(value, tuple) else (value,)
        if not self.func.defined():
            self.func._start(self.args, [_typed(v, NEUTRAL[op]) for v in given])
        if len(given) != len(self):
            raise ExpressionError(
                f"{self.func.name()}: expected {len(self)} values, found {len(given)}"
            )
        made = []
        for old, v in zip(self, given, strict=True):
            new = of_type(as_expr(v), old.dtype)
            made.append(old / new if op == "div" else Expr(ir.binary(op, old.ir, value_of(new))))
        return tuple(made) if isinstance(value, tuple) else made[0]

    def __iadd__(self, value: Any) -> Any:
        return self._updated("add", value)

    def __isub__(self, value: Any) -> Any:
        return self._updated("sub", value)

    def __imul__(self, value: Any) -> Any:
        return self._updated("mul", value)

    def __itruediv__(self, value: Any) -> Any:
        return self._updated("div", value)


def _typed(value: Any, number: int) -> Expr:
    return Expr(ir.const(number, as_expr(value).dtype))


@checked_methods(UsageError)
class Func(Function, Loops):
    """A function of coordinates.  Its dimensions go from the innermost one outwards."""

    def __init__(self, first: Any = None, *more: Any) -> None:
        named = [a for a in (first, *more) if isinstance(a, str)]
        super().__init__(named[0] if named else f"f{next(_NUMBERS)}")
        self._pipeline: Pipeline | None = None
        if isinstance(first, (Buffer, ImageParam)):
            axes = tuple(Var(f"_{n}") for n in range(first.dimensions()))
            self[axes] = read(first.source, len(axes), axes)
        elif isinstance(first, Operators):
            e = as_expr(first)
            axes = tuple(Var(v.name) for v in coordinates_in([e.ir]))
            self[axes] = e

    def args(self) -> list[Var]:
        return [Var(n) for n in self.arg_names]

    def value(self) -> Expr:
        return Expr(self.pure.values[0])

    def values(self) -> tuple[Expr, ...]:
        return tuple(map(Expr, self.pure.values))

    def type(self) -> Type:
        return Type(self.pure.values[0].dtype)

    def types(self) -> list[Type]:
        return [Type(v.dtype) for v in self.pure.values]

    # definitions

    def __getitem__(self, where: Any) -> FuncRef:
        return FuncRef(self, where if isinstance(where, tuple) else (where,))

    def __call__(self, *where: Any) -> FuncRef:
        return self[where]

    def __setitem__(self, where: Any, value: Any) -> None:
        places = tuple(where) if isinstance(where, (tuple, list)) else (where,)
        if isinstance(value, FuncRef) and len(value) > 1:
            value = tuple(value)
        values = value if isinstance(value, (tuple, list)) else (value,)
        used = {v.name for v in coordinates_in(as_expr(e).ir for e in values)}
        places = expanded(places, [Var(n) for n in sorted(used) if n[0] == "_" and n[1:].isdigit()])
        if not self.definitions:
            self._define(places, values)
        else:
            self._add_update(places, values)

    def _start(self, places: Sequence[Any], values: Sequence[Any]) -> None:
        """Define the values that the first update begins with; coordinates that are no variables
        get one.
        """
        axes = [
            p if isinstance(p, Var) else Var(f"_{n}") for n, p in enumerate(map(as_expr, places))
        ]
        self._define(tuple(axes), values)

    def _factored(self, number: int, pairs: Iterable[tuple[Any, Any]]) -> Func:
        """`Stage.rfactor` of update `number`."""
        partial = Func(f"{self._name}_intm")
        factored(self, number, list(pairs), partial)
        return partial

    # schedules

    @property
    def _steps(self) -> Steps:
        return self.pure.steps

    def update(self, number: int = 0) -> Stage:
        """The loops of update `number`."""
        if not 0 <= number < self.num_update_definitions():
            raise UsageError(
                f"{self._name} has {self.num_update_definitions()} updates, found number {number}"
            )
        return Stage(self.definitions[number + 1].steps, self, number)

    def compute_root(self) -> Func:
        self.placement.compute, self.placement.store = "root", None
        return self

    def compute_inline(self) -> Func:
        self.placement.compute, self.placement.store = "inline", None
        return self

    def compute_at(self, func: Any, axis: Any = None) -> Func:
        self.placement.compute = (func, name_of(axis))
        return self

    def store_at(self, func: Any, axis: Any = None) -> Func:
        self.placement.store = (func, name_of(axis))
        return self

    def store_root(self) -> Func:
        self.placement.store = "root"
        return self

    def store_in(self, memory: MemoryType) -> Func:
        self.placement.scope = None if memory is MemoryType.Auto else memory.value
        return self

    def reorder_storage(self, *axes: Any) -> Func:
        given = axes[0] if len(axes) == 1 and isinstance(axes[0], (list, tuple)) else axes
        names = [self._dimension(a) for a in given]
        if len({*names}) < len(names):
            raise ScheduleError(f"{self._name}.reorder_storage: expected different dimensions")
        self.placement.order = names
        return self

    def fold_storage(self, axis: Any, factor: int, fold_forward: bool = True) -> Func:
        self.placement.folds[self._dimension(axis)] = from_1(factor, "fold_storage")
        return self

    def align_storage(self, axis: Any, factor: int) -> Func:
        self.placement.aligns[self._dimension(axis)] = from_1(factor, "align_storage")
        return self

    def bound(self, axis: Any, min: Any, extent: Any) -> Func:
        """Compute these coordinates.  A run that needs others raises UsageError."""
        self.placement.bounds[self._dimension(axis)] = (index_of(min), index_of(extent))
        return self

    def bound_extent(self, axis: Any, extent: Any) -> Func:
        self.placement.bounds[self._dimension(axis)] = (None, index_of(extent))
        return self

    def align_bounds(self, axis: Any, modulus: int, remainder: int = 0) -> Func:
        """This Func: its bounds follow from its readers, and splits have tails."""
        self._dimension(axis)
        return self

    def set_estimate(self, axis: Any, min: int, extent: int) -> Func:
        self.placement.estimates[self._dimension(axis)] = (min, extent)
        return self

    def set_estimates(self, bounds: Sequence[tuple[int, int]]) -> Func:
        pairs = one_each(bounds, self.dimensions(), f"{self._name}.set_estimates")
        self.placement.estimates |= dict(zip(self.arg_names, pairs, strict=True))
        return self

    def _dimension(self, axis: Any) -> str:
        """The name of a dimension.  Raises ScheduleError for another loop."""
        name = name_of(axis)
        if name not in self.arg_names:
            raise ScheduleError(
                f"{self._name} has no dimension {name}; its dimensions are "
                f"{', '.join(self.arg_names) or 'none'}"
            )
        return name

    def clone_in(self, reader: Any) -> Func:
        """A Func with the definitions of this one, which one reader, or several, read instead."""
        readers = reader if isinstance(reader, (list, tuple)) else [reader]
        made = Func(f"{self._name}_clone")
        made.sources = tuple(replace(s, owner=made) for s in self.sources)
        own: dict[Any, Source] = dict(zip(self.sources, made.sources, strict=True))

        def moved(es: Iterable[Any]) -> tuple[Any, ...]:
            return map_loads(
                tuple(es), lambda at: Load(own[at.buffer], at.indices) if at.buffer in own else at
            )

        for d in self.definitions:
            made.definitions.append(type(d)(moved(d.args), moved(d.values), d.domain))
        self.wrappers |= dict.fromkeys(readers, made)
        return made

    def in_(self, reader: Any = None) -> Function:
        """A copy of this Func for one reader, for several, or for all."""
        readers = reader if isinstance(reader, (list, tuple)) else [reader]
        if readers[0] not in self.wrappers:
            made = Func(f"{self._name}_in" + (f"_{readers[0].name()}" if readers[0] else ""))
            axes = tuple(self.args())
            made[axes] = self[axes]
            self.wrappers |= dict.fromkeys(readers, made)
        return self.wrappers[readers[0]]

    # runs

    def _of_this(self) -> Pipeline:
        if self._pipeline is None:
            self._pipeline = Pipeline(self)
        return self._pipeline

    def __getattr__(self, name: str) -> Any:
        """A method of `Pipeline`, such as `realize`, for this Func alone."""
        if name in PIPELINE:
            return getattr(self._of_this(), name)
        return super().__getattr__(name)
