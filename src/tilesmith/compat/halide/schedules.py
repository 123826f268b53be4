"""Halide's schedules as they are written: steps on the loops of a definition, and a place for a
Func.  `stages` applies them to Tilesmith's schedules.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, NamedTuple, NoReturn

from tilesmith.ir import expr as ir
from tilesmith.support.arguments import checked_methods, shown
from tilesmith.support.errors import ScheduleError, UsageError

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


class Step(NamedTuple):
    """A step on loops.

    kind: "split", "fuse", "reorder", "rename", or the kind that a loop gets: "vectorize", "unroll",
        "parallel" or "serial".
    needs: the loops, innermost first; those of a fusion are the inner and the outer one.
    makes: the loops that take their place, those of a split the outer one first; empty if they
        stay.
    factor, tail: those of a split.
    """

    kind: str
    needs: tuple[str, ...]
    makes: tuple[str, ...] = ()
    factor: int = 0
    tail: str = "peel"


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

    def check(self, func: str, loops: Iterable[str]) -> None:
        """Raises ScheduleError for a step that needs a loop that is not there, or makes one that
        is.
        """
        known = list(loops)
        for step in self.steps:
            what = f"{step.kind} of {', '.join(step.needs)}"
            missing = [n for n in step.needs if n not in known]
            if missing:
                raise ScheduleError(
                    f"{func} has no loop {missing[0]}; its loops are {', '.join(known) or 'none'}"
                )
            if len({*step.needs}) < len(step.needs):
                raise ScheduleError(f"{func}: {what}: expected different loops")
            if step.makes:
                known = [n for n in known if n not in step.needs]
                for name in step.makes:
                    if name in known:
                        raise ScheduleError(
                            f"{func}: {what} makes a loop {name}, and {func} has one of this name; "
                            "expected another name"
                        )
                    known.append(name)

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
    "compile_jit": "realize, which compiles",
    "infer_input_bounds": "bounds that f states by set_estimates, or an image of any size",
    **dict.fromkeys(("compile_to_bitcode", "compile_to_llvm_assembly"), "compile_to_assembly"),
    **dict.fromkeys(("copy_to_device", "copy_to_host"), "tilesmith.te for kernels of a GPU"),
    "debug_to_file": "a realize of the Func, and NumPy's save",
    "specialize_fail": "f.bound(x, min, extent), which states what sizes may be",
}
"""What to use for names of Halide without a counterpart."""


def name_of(axis: Any) -> str:
    """The name of a loop.  Raises UsageError for what is none, such as an RDom of two loops."""
    axis = as_expr(axis) if isinstance(axis, RDom) else axis
    if isinstance(axis, (Var, RVar)):
        return axis.name()
    raise UsageError(f"expected a Var or an RVar, found {axis!r}")


def from_1(value: int, what: str) -> int:
    """`value`.  Raises UsageError if it is less than 1."""
    if value < 1:
        raise UsageError(f"{what}: expected a whole number from 1, found {value!r}")
    return value


def reordered(names: Sequence[str], order: Sequence[str]) -> list[str]:
    """`names` with those in `order` in this order, at the places that they have together."""
    moved = iter(order)
    return [next(moved) if n in order else n for n in names]


@checked_methods(UsageError)
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
        made = name_of(outer), name_of(inner)
        return self._add(Step("split", (name_of(old),), made, from_1(factor, "split"), tail.value))

    def fuse(self, inner: Any, outer: Any, fused: Any) -> Any:
        return self._add(Step("fuse", (name_of(inner), name_of(outer)), (name_of(fused),)))

    def reorder(self, *axes: Any) -> Any:
        """The order of loops, innermost first."""
        given = axes[0] if len(axes) == 1 and isinstance(axes[0], (list, tuple)) else axes
        return self._add(Step("reorder", tuple(map(name_of, given))))

    def rename(self, old: Any, new: Any) -> Any:
        return self._add(Step("rename", (name_of(old),), (name_of(new),)))

    def tile(self, *given: Any) -> Any:
        """Split two loops and bring the inner parts inside; outer loops without names of their own
        keep the names of the loops.
        """
        tail = next((g for g in given[-1:] if isinstance(g, TailStrategy)), TailStrategy.Auto)
        axes = [g for g in given if g is not tail]
        if not any(isinstance(g, (list, tuple)) for g in axes):
            axes = [axes[n : n + 2] for n in range(0, len(axes), 2)]
        groups = [g if isinstance(g, (list, tuple)) else [] for g in axes]
        if len(groups) not in (3, 4) or len({len(g) for g in groups}) > 1:
            raise UsageError(
                "tile: expected loops, their outer loops unless these keep the names, inner loops "
                f"and as many factors, found {shown(given)}"
            )
        old, *outer, inner, factors = groups
        for o, u, i, n in zip(old, outer[0] if outer else old, inner, factors, strict=True):
            self.split(o, u, i, n, tail)
        return self.reorder(*inner, *(outer[0] if outer else old))

    def _marked(self, axis: Any, kind: str, factor: int | None, tail: TailStrategy) -> Any:
        name = name_of(axis)
        if factor is None:
            return self._add(Step(kind, (name,)))
        inner = f"{name}_{next(_FRESH)}"
        split = Step("split", (name,), (name, inner), from_1(factor, kind), tail.value)
        return self._add(split, Step(kind, (name if kind == "parallel" else inner,)))

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
        return self._add(Step("serial", (name_of(axis),)))

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
        return self._func._factored(self._update, pairs)


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

    def check(self, func: str) -> None:
        """Raises ScheduleError for a place of storage without one of computation inside it."""
        inside = isinstance(self.compute, tuple)
        if isinstance(self.store, tuple) and not inside:
            raise ScheduleError(f"{func}.store_at: expected compute_at a loop inside, found none")
        if self.folds and (self.store is None or not inside):
            raise ScheduleError(
                f"{func}.fold_storage: expected store_at or store_root, and compute_at a loop "
                "inside of it, found none"
            )

    def key(self) -> str:
        """A text that is the same for equal placements."""
        return repr((self.compute, self.store, self.scope, self.order, self.folds, self.aligns,
                     self.bounds))  # fmt: skip
