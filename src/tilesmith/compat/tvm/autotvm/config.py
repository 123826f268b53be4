"""The decisions of a template: the possible values and the chosen values."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

from tilesmith import te
from tilesmith.support.arguments import checked_methods, shown
from tilesmith.support.errors import UsageError
from tilesmith.te.knobs import Config, Decisions, Knob, split_factors


@dataclass(frozen=True)
class SplitEntity:
    """A chosen split; `size` has -1 for the outermost loop."""

    size: list[int]

    def apply(self, sch: te.Schedule, op: Any, axis: Any) -> list[Any]:
        """Split a loop; returns the loops, outermost first."""
        inner: list[Any] = []
        for factor in reversed(self.size[1:]):
            axis, made = sch[op].split(axis, factor)
            inner.insert(0, made)
        return [axis, *inner]

    def encode(self) -> list[Any]:
        return ["sp", self.size]


@dataclass(frozen=True)
class ReorderEntity:
    """A chosen order.

    perm: positions in the given loops, outermost first.
    """

    perm: list[int]

    def apply(self, sch: te.Schedule, op: Any, axes: Sequence[Any]) -> list[Any]:
        """Put the loops in this order; returns them."""
        ordered = [axes[i] for i in self.perm]
        sch[op].reorder(*ordered)
        return ordered

    def encode(self) -> list[Any]:
        return ["re", self.perm]


@dataclass(frozen=True)
class AnnotateEntity:
    """Chosen kinds of loops.

    anns: for each loop "none", "unroll" or "vec".
    """

    anns: list[str]

    def apply(self, sch: te.Schedule, op: Any, axes: Sequence[Any], **limits: Any) -> list[Any]:
        """Give each loop its kind; returns the loops."""
        for axis, kind in zip(axes, self.anns, strict=True):
            if kind == "unroll":
                sch[op].unroll(axis)
            elif kind == "vec":
                sch[op].vectorize(axis)
        return list(axes)

    def encode(self) -> list[Any]:
        return ["an", self.anns]


@dataclass(frozen=True)
class OtherOptionEntity:
    """A chosen value.

    val: the value.
    """

    val: Any

    def encode(self) -> list[Any]:
        return ["ot", self.val]


Entity = SplitEntity | ReorderEntity | AnnotateEntity | OtherOptionEntity

_KINDS = {"unroll": ("unroll",), "try_unroll": ("none", "unroll"), "try_vec": ("none", "vec"),
          "try_unroll_vec": ("none", "unroll", "vec"), "none": ("none",)}  # fmt: skip
"""By policy, the kinds that each loop may have."""


_POLICIES = ("factors", "power2", "verbose", "candidate")


@checked_methods(UsageError)
class ConfigEntity:
    """The decisions that a template declares and reads.  `cfg["tile_y"]` is a chosen one."""

    def __init__(self, config: Config) -> None:
        self._config = config
        self._entities: dict[str, Entity] = {}
        self.flop = 0.0

    def axis(self, extent: Any) -> Any:
        """A loop, given by itself or by its length, for the declaration of decisions."""
        return extent

    reduce_axis = axis

    def define_split(
        self,
        name: str,
        axis: Any,
        policy: str = "factors",
        num_outputs: int = 2,
        filter: Callable[[SplitEntity], bool] | None = None,
        candidate: Sequence[Sequence[int]] | None = None,
        max_factor: int | None = None,
        no_tail: bool = False,
    ) -> list[Any]:
        """Declare a split of a loop into `num_outputs`.

        num_outputs: number of loops, from 1.
        policy: "factors" for divisors of the length, "power2" for powers of two, "verbose" for
            both, "candidate" for the listed sizes, `num_outputs` in each.
        no_tail: whether the sizes must divide the length.

        Returns stand-ins for the loops, for further declarations.
        """
        extent = axis if isinstance(axis, int) else getattr(axis, "extent", None)
        if not isinstance(extent, int):
            raise UsageError(
                f"define_split {name!r}: expected a loop of fixed length, found {axis}"
            )
        if num_outputs < 1:
            raise UsageError(f"define_split {name!r}: expected num_outputs from 1, found 0 or less")
        if policy not in _POLICIES or (policy == "candidate" and candidate is None):
            raise UsageError(
                f"define_split {name!r}: expected the policy {', '.join(_POLICIES)}, or candidate "
                f"with candidate=, found {policy!r}"
            )
        if candidate is not None:
            if any(len(sizes) != num_outputs for sizes in candidate):
                raise UsageError(
                    f"define_split {name!r}: expected candidates of {num_outputs} sizes, found "
                    f"{shown(candidate)}; give num_outputs"
                )
            options = [tuple(int(n) for n in sizes[1:]) for sizes in candidate]
        else:
            options = [f for f in split_factors(extent, num_outputs) if _fits(f, extent, policy)]
        if no_tail:
            options = [f for f in options if extent % math.prod(f) == 0]
        if max_factor is not None:
            options = [f for f in options if all(n <= max_factor for n in f)]
        if filter is not None:
            options = [f for f in options if filter(SplitEntity([-1, *f]))]
        chosen = self._choice(name, options, (1,) * (num_outputs - 1))
        self._entities[name] = SplitEntity([-1, *chosen])
        return [0, *chosen]

    def define_knob(self, name: str, candidate: Sequence[Any]) -> None:
        """Declare a value among `candidate`; by default the first."""
        self._entities[name] = OtherOptionEntity(self._choice(name, candidate))

    def define_reorder(
        self,
        name: str,
        axes: Sequence[Any],
        policy: str = "all",
        candidate: Sequence[Sequence[Any]] | None = None,
    ) -> list[Any]:
        """Declare an order of loops: any, or one of those listed with the policy "candidate"."""
        plain = tuple(range(len(axes)))
        if policy == "all":
            options = list(itertools.permutations(plain))
        elif policy == "identity":
            options = [plain]
        elif policy == "candidate" and candidate is not None:
            numbers = {id(a): n for n, a in reversed([*enumerate(axes)])}
            if any(id(a) not in numbers for order in candidate for a in order):
                raise UsageError(f"define_reorder {name!r}: expected orders of its own loops")
            options = [tuple(numbers[id(a)] for a in order) for order in candidate]
        else:
            raise UsageError(
                f"define_reorder {name!r}: expected the policy all, identity or candidate, found "
                f"{policy!r}; list the orders with candidate="
            )
        self._entities[name] = ReorderEntity(list(self._choice(name, options, plain)))
        return list(axes)

    def define_annotate(self, name: str, axes: Sequence[Any], policy: str) -> None:
        """Declare kinds of loops: "none", "unroll", "try_unroll", "try_vec", "try_unroll_vec"."""
        if policy not in _KINDS:
            raise UsageError(
                f"define_annotate {name!r}: expected the policy {', '.join(_KINDS)}, found "
                f"{policy!r}"
            )
        options = list(itertools.product(_KINDS[policy], repeat=len(axes)))
        self._entities[name] = AnnotateEntity(list(self._choice(name, options)))

    def _choice(self, name: str, options: Sequence[Any], plain: Any = None) -> Any:
        """The chosen option; by default `plain` or, if this is none of them, the first."""
        if not options:
            raise UsageError(f"decision {name!r}: expected values to choose from, found none")
        return self._config.choice(name, options, plain if plain in options else options[0])

    def add_flop(self, flop: float) -> None:
        """Count operations, to express times as a rate."""
        self.flop += float(flop)

    def __getitem__(self, name: str) -> Entity:
        if name not in self._entities:
            known = ", ".join(self._entities) or "none"
            raise UsageError(f"no decision {name!r} is defined; those defined are {known}")
        return self._entities[name]

    @property
    def entities(self) -> Mapping[str, Entity]:
        """The decisions declared so far."""
        return self._entities

    def __str__(self) -> str:
        return str([[name, *e.encode()] for name, e in self._entities.items()])


def _fits(factors: tuple[int, ...], extent: int, policy: str) -> bool:
    if policy == "factors":
        return extent % math.prod(factors) == 0
    return policy == "verbose" or all(f & (f - 1) == 0 for f in factors)


def decisions_of(entities: Sequence[Sequence[Any]]) -> Decisions:
    """The values of knobs from a log's entities, `[name, kind, value]`."""
    values: dict[str, Any] = {}
    for name, kind, value in entities:
        chosen = value[1:] if kind == "sp" else value
        values[name] = tuple(chosen) if isinstance(chosen, list) else chosen
    return values


@dataclass(frozen=True)
class ConfigSpace:
    """The decisions of a task.

    space_map: the possible values of each decision, by its name.
    """

    space_map: dict[str, Knob]

    def __len__(self) -> int:
        total = 1
        for knob in self.space_map.values():
            total *= len(knob.options)
        return total

    def __str__(self) -> str:
        rows = (f"{n} {name}: {len(k.options)} options" for n, (name, k) in enumerate(self._all()))
        return "\n".join((f"ConfigSpace (len={len(self)})", *rows))

    def _all(self) -> list[tuple[str, Knob]]:
        return list(self.space_map.items())


_CURRENT: ContextVar[ConfigEntity | None] = ContextVar("config", default=None)


def get_config() -> ConfigEntity:
    """The decisions of the template that is being run.  Raises UsageError outside of one."""
    config = _CURRENT.get()
    if config is None:
        raise UsageError("get_config: expected a function with @autotvm.template around the call")
    return config


def inside_template() -> bool:
    """Whether a template is being run."""
    return _CURRENT.get() is not None


@contextmanager
def deciding(config: Config) -> Iterator[ConfigEntity]:
    """A context in which `get_config` returns the decisions in `config`."""
    entity = ConfigEntity(config)
    token = _CURRENT.set(entity)
    try:
        yield entity
    finally:
        _CURRENT.reset(token)
