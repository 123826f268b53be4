"""Halide's schedules as they are written: steps on the loops of a definition, and a place for a
Func.  `stages` applies them to Tilesmith's schedules.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, NamedTuple, NoReturn

from tilesmith.ir import expr as ir
from tilesmith.support.errors import UsageError

from ..names import elsewhere
from .domains import RDom, RVar
from .expressions import Var, as_expr

_FRESH = itertools.count()


class ScheduleWarning(UserWarning):
    """A part of a schedule has no effect.  Results are right."""


class TailStrategy(Enum):
    """What happens to iterations that a split leaves over.  The values are Tilesmith's tails; what
    never shows in a result is one tail.
    """

    Auto = "peel"
    ShiftInwards = "peel"  # noqa: PIE796
    Predicate = "peel"  # noqa: PIE796
    PredicateLoads = "peel"  # noqa: PIE796
    PredicateStores = "peel"  # noqa: PIE796
    GuardWithIf = "guard"
    RoundUp = "roundup"


class MemoryType(Enum):
    """Where a Func is stored.  The values are Tilesmith's scopes."""

    Auto = "auto"
    Heap = "heap"
    Stack = "stack"
    Register = "register"


class Split(NamedTuple):
    """`old` becomes `outer * factor + inner`."""

    old: str
    outer: str
    inner: str
    factor: int
    tail: str


class Fuse(NamedTuple):
    """Two loops become one."""

    inner: str
    outer: str
    fused: str


class Reorder(NamedTuple):
    """The order of loops, innermost first."""

    names: tuple[str, ...]


class Mark(NamedTuple):
    """The kind of a loop: "vectorize", "unroll", "parallel" or "serial"."""

    name: str
    kind: str


class Rename(NamedTuple):
    """Another name for a loop."""

    old: str
    new: str


Step = Split | Fuse | Reorder | Mark | Rename


@dataclass(eq=False)
class Steps:
    """The steps of one definition.

    steps: in order.
    special: steps to take instead where a condition holds, first condition first.
    """

    steps: list[Step] = field(default_factory=list)
    special: list[tuple[ir.Expr, Steps]] = field(default_factory=list)

    def conditions(self) -> Iterator[ir.Expr]:
        """The conditions of all special cases, and of special cases of these."""
        for condition, steps in self.special:
            yield condition
            yield from steps.conditions()

    def __repr__(self) -> str:
        return repr((self.steps, [(id(cond), special) for cond, special in self.special]))


ELSEWHERE = {
    **dict.fromkeys(
        ("gpu", "gpu_tile", "gpu_blocks", "gpu_threads", "gpu_lanes", "gpu_single_thread"),
        "tilesmith.te: s[t].bind(axis, 'blockIdx.x') divides a loop among the blocks of a GPU",
    ),
    "hexagon": "tilesmith.compile(model, target=...) for the processors that it has",
    "compute_with": "g.compute_at(f, x), or a Func of a tuple, which computes values in one loop",
    "atomic": "f.update().rfactor(r, u), which gives each thread its own results",
    "allow_race_conditions": "f.update().rfactor(r, u): no step may change an answer",
    "async_": "f.store_at(...) with f.compute_at(...), or parallel of an outer loop",
    "memoize": "compute_root; results are kept for one call",
    "hoist_storage": "store_at, or nothing: memory is allocated once for a call",
    "prefetch": "tilesmith.te: s[t].prefetch(tensor, axis, offset)",
    **dict.fromkeys(
        ("trace_stores", "trace_loads", "trace_realizations"),
        "a realize of f to see its values, or print_loop_nest()",
    ),
    "debug_to_file": "a realize of the Func, and NumPy's save",
    "specialize_fail": "f.bound(x, min, extent), which states what sizes may be",
}
"""What to use for names of Halide without a counterpart."""


def name_of(axis: Any) -> str:
    """The name of a loop."""
    if isinstance(axis, (Var, RVar, RDom)):
        return axis.name()
    raise UsageError(f"expected a Var or an RVar, found {axis!r}")


def _number(value: Any, what: str) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise UsageError(f"{what}: expected a whole number from 1, found {value!r}")
    return value


class Loops:
    """The steps that a Func and its updates share."""

    @property
    def _steps(self) -> Steps:
        raise NotImplementedError

    def _add(self, *steps: Step) -> Any:
        self._steps.steps.extend(steps)
        return self

    def split(
        self, old: Any, outer: Any, inner: Any, factor: int,
        tail: TailStrategy = TailStrategy.Auto,
    ) -> Any:  # fmt: skip
        parent, first, second = map(name_of, (old, outer, inner))
        return self._add(Split(parent, first, second, _number(factor, "split"), tail.value))

    def fuse(self, inner: Any, outer: Any, fused: Any) -> Any:
        return self._add(Fuse(name_of(inner), name_of(outer), name_of(fused)))

    def reorder(self, *axes: Any) -> Any:
        """The order of loops, innermost first."""
        given = axes[0] if len(axes) == 1 and isinstance(axes[0], (list, tuple)) else axes
        return self._add(Reorder(tuple(map(name_of, given))))

    def rename(self, old: Any, new: Any) -> Any:
        return self._add(Rename(name_of(old), name_of(new)))

    def tile(self, *given: Any) -> Any:
        """Split two loops and bring the inner parts inside; outer loops without names of their own
        keep the names of the loops.
        """
        axes, tail = list(given), TailStrategy.Auto
        if isinstance(axes[-1], TailStrategy):
            tail = axes.pop()
        if isinstance(axes[0], (list, tuple)):
            groups = [list(g) for g in axes]
        else:
            groups = [axes[n : n + 2] for n in range(0, len(axes), 2)]
        old, *outer, inner, factors = groups
        for o, u, i, n in zip(old, outer[0] if outer else old, inner, factors, strict=True):
            self.split(o, u, i, n, tail)
        return self.reorder(*inner, *(outer[0] if outer else old))

    def _marked(self, axis: Any, kind: str, factor: int | None, tail: TailStrategy) -> Any:
        name = name_of(axis)
        if factor is None:
            return self._add(Mark(name, kind))
        inner = f"{name}_{next(_FRESH)}"
        split = Split(name, name, inner, _number(factor, kind), tail.value)
        return self._add(split, Mark(name if kind == "parallel" else inner, kind))

    def vectorize(
        self, axis: Any, factor: int | None = None, tail: TailStrategy = TailStrategy.Auto
    ) -> Any:
        return self._marked(axis, "vectorize", factor, tail)

    def unroll(
        self, axis: Any, factor: int | None = None, tail: TailStrategy = TailStrategy.Auto
    ) -> Any:
        return self._marked(axis, "unroll", factor, tail)

    def parallel(
        self, axis: Any, task_size: int | None = None, tail: TailStrategy = TailStrategy.Auto
    ) -> Any:
        return self._marked(axis, "parallel", task_size, tail)

    def serial(self, axis: Any) -> Any:
        return self._add(Mark(name_of(axis), "serial"))

    def specialize(self, condition: Any) -> Stage:
        """The steps to take where `condition` holds, which sizes and parameters of a run decide.
        They begin as copies of the steps so far.
        """
        special = Steps(list(self._steps.steps))
        self._steps.special.append((as_expr(condition).ir, special))
        return Stage(special)

    def __getattr__(self, name: str) -> NoReturn:
        elsewhere(type(self).__name__, name, ELSEWHERE)


class Stage(Loops):
    """The loops of an update, or of a special case."""

    def __init__(self, steps: Steps, func: Any = None, number: int = 0) -> None:
        self._own, self._func, self._update = steps, func, number

    @property
    def _steps(self) -> Steps:
        return self._own

    def rfactor(self, *preserved: Any) -> Any:
        """The Func of partial results, one for each value of the given reduction variables:
        `rfactor(r, u)` or `rfactor([(r, u), ...])`.  The update then combines them.
        """
        pairs = [tuple(preserved)] if len(preserved) == 2 else list(preserved[0])
        if self._func is None:
            raise UsageError("rfactor: expected an update of a Func, found a special case of one")
        return self._func.factored(self._update, pairs)


@dataclass(eq=False)
class Placement:
    """Where a Func is computed and stored.

    compute: "default", "inline", "root", or the Func and the loop.
    store: "root", or the Func and the loop; None: where it is computed.
    scope: the memory; None: Tilesmith chooses.
    order: dimensions in memory, innermost first; None: that of the arguments.
    folds, aligns: dimension -> factor.
    bounds: dimension -> first coordinate and number of elements; the first may be None.
    estimates: dimension -> the same, for autoschedulers and files.
    """

    compute: Any = "default"
    store: Any = None
    scope: str | None = None
    order: Sequence[str] | None = None
    folds: dict[str, int] = field(default_factory=dict)
    aligns: dict[str, int] = field(default_factory=dict)
    bounds: dict[str, tuple[Any, Any]] = field(default_factory=dict)
    estimates: dict[str, tuple[Any, Any]] = field(default_factory=dict)

    def key(self) -> str:
        """A text that is the same for equal placements."""
        return repr((self.compute, self.store, self.scope, self.order, self.folds, self.aligns,
                     self.bounds))  # fmt: skip
