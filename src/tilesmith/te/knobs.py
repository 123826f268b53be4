"""Decisions of a schedule as data: a strategy or a template asks, a config answers.

A *knob* is a decision variable: a name, the values it may take, and the default, which is what the
analytic model chooses.  Schedules declare knobs where they need them (as AutoTVM's templates do),
so a knob may exist only because of what another was set to.  A `Config` holds the values that were
chosen; all others have their default.  Values are JSON values, tuples standing for lists.

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
from tilesmith.support.errors import ScheduleError
from tilesmith.te.relations import Tail
from tilesmith.te.stage import Axis, AxisLike, Stage

Value: TypeAlias = "int | str | bool | tuple[Any, ...]"
Decisions: TypeAlias = "Mapping[str, Value]"
"""Values of knobs by name."""
V = TypeVar("V", bound="int | str | bool | tuple[Any, ...]")
Options: TypeAlias = "Iterable[V] | Callable[[], Iterable[V]]"

MAX_ORDERED = 5
"""Loops whose every order is a value of one knob: 120 of them."""


@dataclass(frozen=True, slots=True)
class Knob:
    """A decision variable.  `options` are in an order in which neighbours are alike."""

    name: str
    options: tuple[Value, ...]
    default: Value


@dataclass(frozen=True, slots=True)
class Config:
    """What was `chosen`, by knob.  `seen` notes each knob that is asked for, where one wants to
    know.

    Raises ScheduleError from its methods when a chosen value is none of the knob's.
    """

    chosen: Decisions = field(default_factory=dict)
    seen: dict[str, Knob] | None = None
    prefix: str = ""

    def under(self, name: str) -> Config:
        """The same decisions for a part of the schedule, whose knobs are called `name.…`."""
        if not self.chosen and self.seen is None:
            return self
        return replace(self, prefix=f"{self.prefix}{name}.")

    def choice(self, name: str, options: Options[V], default: V) -> V:
        """One of `options` (or of what they return: only called when somebody wants to know)."""
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

    def split(
        self,
        name: str,
        stage: Stage,
        axis: AxisLike,
        parts: int = 2,
        default: Sequence[int] | None = None,
        tail: Tail = "peel",
    ) -> tuple[Axis, ...]:
        """Split a loop into `parts`, outermost first; the value holds the extents of all but the
        outermost (default: 1 each).
        """
        start = tuple(default) if default is not None else (1,) * (parts - 1)
        factors = self.factors(name, stage, axis, start)
        found: list[Axis] = []
        rest: AxisLike = axis
        for factor in reversed(factors):
            rest, inner = stage.split(rest, factor=factor, tail=tail)
            found.insert(0, inner)
        assert isinstance(rest, Axis)
        return (rest, *found)

    def factors(
        self, name: str, stage: Stage, axis: AxisLike, default: tuple[int, ...]
    ) -> tuple[Dim, ...]:
        """The extents that `split` gives the inner loops, outermost first."""
        loop = _name(stage, axis)
        extent = next((a.extent for a in stage.leaf_axes if a.name == loop), None)
        if not isinstance(extent, int):
            raise ScheduleError(f"knob {self.prefix}{name}: {axis} has no fixed extent to split")
        return self.choice(name, lambda: split_factors(extent, len(default) + 1), default)

    def reorder(
        self,
        name: str,
        stage: Stage,
        axes: Sequence[AxisLike],
        orders: Iterable[tuple[int, ...]] | None = None,
    ) -> tuple[AxisLike, ...]:
        """Put loops in an order, one of `orders` (default: all): positions in `axes`."""
        if orders is None and len(axes) > MAX_ORDERED:
            raise ScheduleError(
                f"knob {self.prefix}{name}: more than {MAX_ORDERED} loops: name the orders to try"
            )
        plain = tuple(range(len(axes)))
        order = self.choice(name, lambda: orders or itertools.permutations(plain), plain)
        wanted = tuple(axes[i] for i in order)
        stage.reorder(*wanted)
        return wanted

    def annotate(
        self,
        name: str,
        stage: Stage,
        axis: AxisLike,
        kinds: Sequence[str] = ("none", "unroll", "vectorize"),
    ) -> str:
        """Run a loop in one of `kinds` (`none`, `unroll`, `vectorize`, `parallel`), first the
        default.
        """
        kind = self.choice(name, kinds, kinds[0])
        if kind != "none":
            getattr(stage, kind)(axis)
        return kind


ANALYTIC = Config()
"""Every decision as the analytic model makes it."""


def _name(stage: Stage, axis: AxisLike) -> str:
    """The name of `axis` in its stage."""
    if isinstance(axis, (Axis, str)):
        return str(axis)
    own = (*stage.axis, *stage.reduce_axis)
    roots = stage.state.root_axes
    return next((a.name for a, r in zip(own, roots, strict=True) if r is axis), "")


def split_factors(extent: int, parts: int) -> list[tuple[int, ...]]:
    """What the inner `parts - 1` extents of a split may be: divisors, and powers of two (with a
    tail); innermost varies slowest, so that neighbours are alike.
    """
    single = sorted({d for d in range(1, extent + 1) if extent % d == 0} | set(_powers(extent)))
    found = [
        f
        for f in itertools.product(single, repeat=parts - 1)
        if (total := _product(f)) <= extent and (extent % total == 0 or _is_power(total))
    ]
    return sorted(found, key=lambda f: f[::-1])


def values_from_json(chosen: Mapping[str, Any]) -> Decisions:
    """Decisions as they were before JSON made lists of their tuples."""
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
