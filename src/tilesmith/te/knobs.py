"""Decisions of a schedule as data: a rule or a template declares knobs, a config chooses their
values.

A *knob* is a decision variable: a name, its possible values, and the default, which is the analytic
model's choice.  Schedules declare knobs where they need them, as AutoTVM's templates do.  So the
value of one knob may decide whether another knob exists.  A `Config` holds the values that were
chosen; all other knobs have their default.  Values are JSON values, with tuples in place of lists.

    def gemm(cfg):
        ...
        io, ii = cfg.split("i", stage, i)
        cfg.annotate("ii", stage, ii, ("none", "unroll"))
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias, TypeVar

from tilesmith.ir.types import Dim
from tilesmith.support.arguments import checked, shown
from tilesmith.support.errors import ScheduleError
from tilesmith.te.relations import Tail
from tilesmith.te.stage import Axis, AxisLike, Stage

Value: TypeAlias = int | str | bool | tuple[Any, ...]
Decisions: TypeAlias = Mapping[str, Value]
"""Values of knobs, by name."""
V = TypeVar("V", bound="int | str | bool | tuple[Any, ...]")
Options: TypeAlias = "Iterable[V] | Callable[[], Iterable[V]]"

MAX_PARTS = 16
"""Upper bound on the loops that `split` makes of one."""

MAX_ORDERED = 5
"""Upper bound on the loops that one knob puts in any order: 5 loops have 120 orders."""


@dataclass(frozen=True, slots=True)
class Knob:
    """A decision variable.

    name: unique in its schedule.
    options: possible values, ordered so that neighbours are similar.
    default: the analytic model's choice.
    """

    name: str
    options: tuple[Value, ...]
    default: Value


@dataclass(frozen=True, slots=True)
class Config:
    """Values for knobs.  The methods raise ScheduleError if a chosen value is not among the knob's
    options.

    chosen: the values that differ from the default, by knob.
    seen: if given, collects each declared knob.
    prefix: prepended to the names of knobs.
    open_sums: whether the extents of reductions are only expected values, so that the schedule must
        be valid for reductions of any length.
    """

    chosen: Decisions = field(default_factory=dict)
    seen: dict[str, Knob] | None = None
    prefix: str = ""
    open_sums: bool = False

    @checked(ScheduleError)
    def under(self, name: str) -> Config:
        """The decisions for a part of the schedule.  The names of the part's knobs begin with
        `name.`.
        """
        if not self.chosen and self.seen is None:
            return self
        return replace(self, prefix=f"{self.prefix}{name}.")

    @checked(ScheduleError)
    def choice(self, name: str, options: Options[V], default: V) -> V:
        """The chosen element of `options`.  A function `options` is called only if needed."""
        if not self.chosen and self.seen is None:
            return default
        name = self.prefix + name
        if self.seen is None and name not in self.chosen:
            return default
        values = tuple(options() if callable(options) else options)
        if default not in values:
            values = (default, *values)
        if self.seen is not None:
            self.seen[name] = Knob(name, values, default)
        value = self.chosen.get(name, default)
        if value not in values or type(value) is not type(default):
            raise ScheduleError(f"knob {name}: {value!r} is none of {', '.join(map(repr, values))}")
        return value  # type: ignore[return-value]  # one of `values`

    @checked(ScheduleError)
    def split(
        self,
        name: str,
        stage: Stage,
        axis: AxisLike,
        parts: int = 2,
        default: Sequence[int] | None = None,
        tail: Tail = "peel",
    ) -> tuple[Axis, ...]:
        """Split a loop into `parts`, outermost first.

        The knob's value holds the extents of all loops but the outermost (default: 1 each).
        """
        if default is not None:
            parts = len(default) + 1
        if not 2 <= parts <= MAX_PARTS:
            raise ScheduleError(
                f"knob {self.prefix}{name}: expected 2 to {MAX_PARTS} parts, found {parts}"
            )
        start = tuple(default) if default is not None else (1,) * (parts - 1)
        factors = self.factors(name, stage, axis, start)
        inner_axes: list[Axis] = []
        rest: AxisLike = axis
        for factor in reversed(factors):
            rest, inner = stage.split(rest, factor=factor, tail=tail)
            inner_axes.insert(0, inner)
        assert isinstance(rest, Axis)
        return (rest, *inner_axes)

    @checked(ScheduleError)
    def factors(
        self, name: str, stage: Stage, axis: AxisLike, default: tuple[int, ...]
    ) -> tuple[Dim, ...]:
        """The extents that `split` gives to the inner loops, outermost first."""
        loop = _name(stage, axis)
        extent = next((a.extent for a in stage.leaf_axes if a.name == loop), None)
        if not isinstance(extent, int):
            raise ScheduleError(f"knob {self.prefix}{name}: {axis} has no fixed extent to split")
        return self.choice(name, lambda: split_factors(extent, len(default) + 1), default)

    @checked(ScheduleError)
    def reorder(
        self,
        name: str,
        stage: Stage,
        axes: Sequence[AxisLike],
        orders: Iterable[tuple[int, ...]] | None = None,
    ) -> tuple[AxisLike, ...]:
        """Put loops in one of `orders` (default: all), each a list of positions in `axes`."""
        if orders is None and len(axes) > MAX_ORDERED:
            raise ScheduleError(
                f"knob {self.prefix}{name}: more than {MAX_ORDERED} loops: name the orders to try"
            )
        plain = tuple(range(len(axes)))
        order = self.choice(name, lambda: orders or itertools.permutations(plain), plain)
        wanted = tuple(axes[i] for i in order)
        stage.reorder(*wanted)
        return wanted

    @checked(ScheduleError)
    def annotate(
        self,
        name: str,
        stage: Stage,
        axis: AxisLike,
        kinds: Sequence[str] = ("none", "unroll", "vectorize"),
    ) -> str:
        """Give a loop one of `kinds`: `none`, or the name of a method of `Stage`.  The default is
        the first kind.
        """
        known = ("none", "unroll", "vectorize", "parallel")
        if not kinds or not all(k in known for k in kinds):
            raise ScheduleError(
                f"knob {self.prefix}{name}: expected kinds of {', '.join(known)}, found "
                f"{shown(kinds)}"
            )
        kind = self.choice(name, kinds, kinds[0])
        if kind != "none":
            getattr(stage, kind)(axis)
        return kind


ANALYTIC = Config()
"""The defaults of all knobs, which the analytic model chooses."""


def _name(stage: Stage, axis: AxisLike) -> str:
    """The name of `axis` in its stage."""
    if isinstance(axis, (Axis, str)):
        return str(axis)
    own = (*stage.axis, *stage.reduce_axis)
    roots = stage.state.root_axes
    return next((a.name for a, r in zip(own, roots, strict=True) if r is axis), "")


def split_factors(extent: int, parts: int) -> list[tuple[int, ...]]:
    """Possible extents of the inner `parts - 1` loops of a split: divisors of `extent`, and powers
    of two, which may leave a tail.

    The innermost extent varies slowest, so that neighbours are similar.
    """
    single = sorted({d for d in range(1, extent + 1) if extent % d == 0} | set(_powers(extent)))
    factors = [
        f
        for f in itertools.product(single, repeat=parts - 1)
        if (total := _product(f)) <= extent and (extent % total == 0 or _is_power(total))
    ]
    return sorted(factors, key=lambda f: f[::-1])


def values_from_json(chosen: Mapping[str, Any]) -> Decisions:
    """Decisions read from JSON, with each list replaced by a tuple."""
    return {k: _tuples(v) for k, v in chosen.items()}


def _tuples(value: Any) -> Value:
    return tuple(map(_tuples, value)) if isinstance(value, list) else value


def _powers(limit: int) -> list[int]:
    return [1 << n for n in range(limit.bit_length()) if 1 << n <= limit]


def _is_power(n: int) -> bool:
    return n & (n - 1) == 0


def _product(numbers: Iterable[int]) -> int:
    result = 1
    for n in numbers:
        result *= n
    return result
