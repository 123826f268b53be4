"""Steps on the loops of one stage: split, fuse, skew, reorder, kinds of loops, pragmas."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar, get_args

from tilesmith.ir.dtypes import i64
from tilesmith.ir.expr import Expr
from tilesmith.ir.loop_tables import BOUND, LOOP_KINDS, THREADS, ForKind
from tilesmith.support.errors import ScheduleError

from ..relations import FuseRelation, Relation, SkewRelation, SplitRelation, Tail
from ..state import At, StageState, State, unique, with_relation
from ..tensor import Reduce
from .base import Name, Names, Number, Quoted, Size, Step, TailField, primitive


def scheduled(state: State, name: str, what: str) -> StageState:
    """The stage `name`, which must have its own loops."""
    stage = state.stage(name)
    _ = stage.compute  # this raises for a placeholder
    if stage.attach == "inline":
        raise ScheduleError(f"cannot {what} {name}: it is inlined and has no loops of its own")
    return stage


def leaf(stage: StageState, axis: str, what: str) -> int:
    """The position of loop `axis` among the leaves.  Raises ScheduleError if `axis` is not a loop;
    the message names the step that replaced it.
    """
    if axis in stage.tensorized_loops():
        assert stage.tensorized is not None
        raise ScheduleError(
            f"cannot {what} {stage.name}.{axis}: {stage.tensorized[1]} computes the loops "
            f"{', '.join(stage.tensorized_loops())}; {what} first, tensorize last"
        )
    if axis in stage.leaves:
        return stage.leaves.index(axis)
    why = "there is no such axis"
    for rel in stage.relations:
        if axis in rel.parents:
            why = f"it was {rel.said}"
    loops = ", ".join(stage.leaves) or "none"
    raise ScheduleError(
        f"cannot {what} {stage.name}.{axis}: {why}; the loops of {stage.name} are {loops}"
    )


def _free_of_attachments(state: State, stage: StageState, axis: str, what: str) -> None:
    here = [s.name for s in state.stages.values() if s.attach == At(stage.name, axis)]
    if here:
        raise ScheduleError(
            f"cannot {what} {stage.name}.{axis}: {', '.join(here)} is computed there; {what} "
            "first, attach afterwards"
        )
    if stage.kind(axis) != "serial":
        raise ScheduleError(
            f"cannot {what} {stage.name}.{axis}: it is already {stage.kind(axis)}; {what} first, "
            "annotate afterwards"
        )
    marked = {a for p in stage.prefetches for a in ("" if p.of else p.axis, p.over)}
    marked |= {p[0] for p in stage.pragmas}
    if axis in marked:
        raise ScheduleError(
            f"cannot {what} {stage.name}.{axis}: it carries a prefetch or pragma; {what} first, "
            "add those afterwards"
        )


def _derived(state: State, stage: StageState, relation: Relation) -> State:
    """The loops that `relation` makes, which replace its parents."""
    return state.with_stage(with_relation(stage, relation))


@primitive("split")
class Split(Step):
    """Splits a loop.  If `factor` or `nparts` is an expression, its variables stand for numbers
    that are not chosen yet.
    """

    axis: Name
    factor: Size = None
    nparts: Size = None
    tail: TailField = "peel"

    def apply(self, state: State) -> State:
        stage = scheduled(state, self.stage, "split")
        leaf(stage, self.axis, "split")
        _free_of_attachments(state, stage, self.axis, "split")
        what = f"split of {stage.name}.{self.axis}"
        if (self.factor is None) == (self.nparts is None):
            raise ScheduleError(f"{what} needs either factor= or nparts=")
        size = self.factor if self.factor is not None else self.nparts
        number = isinstance(size, int) and not isinstance(size, bool) and size >= 1
        if not number and not (isinstance(size, Expr) and size.dtype is i64 and size.lanes == 1):
            raise ScheduleError(f"{what} needs a factor of at least 1, found {size!r}")
        if self.tail not in get_args(Tail):
            raise ScheduleError(f"tail must be 'peel', 'guard' or 'roundup', found {self.tail!r}")
        if self.tail == "roundup" and self.axis in stage.reduce_names():
            raise ScheduleError(
                f"cannot round up {stage.name}.{self.axis}: elements past the end of a reduction "
                "would change the result; use tail='peel' or 'guard'"
            )
        taken = stage.axis_names()
        outer = unique(f"{self.axis}o", taken)
        inner = unique(f"{self.axis}i", taken | {outer})
        relation = SplitRelation(self.axis, outer, inner, self.factor, self.nparts, self.tail)
        return _derived(state, stage, relation)


@primitive("fuse")
class Fuse(Step):
    axes: Names

    def apply(self, state: State) -> State:
        stage = scheduled(state, self.stage, "fuse")
        names = ", ".join(self.axes)
        if len(self.axes) < 2:
            raise ScheduleError(f"fuse needs two axes or more, found {len(self.axes)}")
        first = leaf(stage, self.axes[0], "fuse")
        for axis in self.axes:
            leaf(stage, axis, "fuse")
            _free_of_attachments(state, stage, axis, "fuse")
        if stage.leaves[first : first + len(self.axes)] != self.axes:
            raise ScheduleError(
                f"cannot fuse {names} of {stage.name}: they must be neighbours in this order, "
                f"outermost first; the loops are {', '.join(stage.leaves)}: reorder first"
            )
        reduced = [a for a in self.axes if a in stage.reduce_names()]
        if 0 < len(reduced) < len(self.axes):
            raise ScheduleError(
                f"cannot fuse {names} of {stage.name}: {', '.join(reduced)} is a reduction axis "
                "and the others are not"
            )
        between = "" if all(len(a) <= 3 for a in self.axes) else "_"
        fused = unique(between.join(self.axes), stage.axis_names())
        return _derived(state, stage, FuseRelation(self.axes, fused))


@primitive("skew")
class Skew(Step):
    """Begins loop `axis` later by `(by * factor) % modulus` iterations."""

    axis: Name
    by: Name
    factor: Number
    modulus: Number

    def apply(self, state: State) -> State:
        stage = scheduled(state, self.stage, "skew")
        leaf(stage, self.axis, "skew")
        leaf(stage, self.by, "skew by")
        _free_of_attachments(state, stage, self.axis, "skew")
        what = f"cannot skew {stage.name}.{self.axis} by {self.by}"
        if self.by == self.axis or {self.axis, self.by} & stage.reduce_names():
            raise ScheduleError(f"{what}: expected two different axes of the result")
        numbers = all(type(n) is int for n in (self.factor, self.modulus))
        if not numbers or self.factor < 1 or self.modulus < 2:
            raise ScheduleError(
                f"{what}: expected a factor of at least 1 and a modulus of at least 2, found "
                f"{self.factor!r} and {self.modulus!r}"
            )
        skewed = unique(f"{self.axis}s", stage.axis_names())
        relation = SkewRelation(self.axis, self.by, self.factor, self.modulus, skewed)
        return _derived(state, stage, relation)


@primitive("reorder")
class Reorder(Step):
    axes: Names

    def apply(self, state: State) -> State:
        stage = scheduled(state, self.stage, "reorder")
        if len(set(self.axes)) != len(self.axes):
            raise ScheduleError(
                f"cannot reorder {stage.name}: an axis is named twice in {', '.join(self.axes)}"
            )
        places = sorted(leaf(stage, a, "reorder") for a in self.axes)
        leaves = list(stage.leaves)
        for place, axis in zip(places, self.axes, strict=True):
            leaves[place] = axis
        _keeps_order(stage, leaves)
        return state.with_stage(replace(stage, leaves=tuple(leaves)))


def _keeps_order(stage: StageState, leaves: list[str]) -> None:
    """Raises ScheduleError if the order `leaves` of loops changes the order of the reduced values
    and the reducer depends on that order.
    """
    laws = stage.compute.laws
    if laws.any_order:
        return
    first = stage.compute.body[0]
    assert isinstance(first, Reduce)
    reduced = stage.reduce_names()
    order = [a for a in stage.leaves if a in reduced]
    if [a for a in leaves if a in reduced] != order:
        raise ScheduleError(
            f"cannot reorder the reduction loops {', '.join(order)} of {stage.name}: reducer "
            f"{first.reducer.name!r} is not {' and '.join(laws.missing)}"
            f"{laws.why_not(laws.missing[0])}, so the order of its values counts; keep these loops "
            "in their order, or combine the values so that it does not count"
        )


@dataclass(frozen=True, slots=True)
class Annotate(Step):
    """Sets the kind of a loop.

    axis: the loop.
    kind: its new kind, which each subclass defines.
    """

    axis: Name
    kind: ClassVar[ForKind]

    def apply(self, state: State) -> State:
        return annotated(state, self, self.axis, self.kind)


def annotated(state: State, step: Step, axis: str, kind: ForKind) -> State:
    """The state in which loop `axis` of the step's stage is of kind `kind`."""
    what = step.primitive
    stage = scheduled(state, step.stage, what)
    leaf(stage, axis, what)
    if axis in stage.reduce_names():
        row = LOOP_KINDS[kind]
        if (row.is_threaded and row.level != "thread") or row.is_virtual:
            raise ScheduleError(
                f"cannot {what} {stage.name}.{axis}: its iterations all update the same "
                "elements; use rfactor to give each part a result of its own"
            )
        reduce = stage.compute.body[0]
        is_plain = (
            isinstance(reduce, Reduce)
            and reduce.reducer.operation is not None
            and not reduce.dtype.is_bool
        )
        if LOOP_KINDS[kind].level and not is_plain:
            raise ScheduleError(
                f"cannot {what} {stage.name}.{axis}: threads only combine partial results of "
                "te.sum, prod, min and max of numbers; use rfactor to give each part a result of "
                "its own"
            )
        if kind == "vectorized" and not is_plain:
            raise ScheduleError(
                f"cannot vectorize {stage.name}.{axis}: lanes can only be combined for "
                "te.sum, prod, min and max of numbers; vectorise a spatial axis, or rfactor "
                "this one"
            )
    kinds = {a: k for a, k in stage.kinds.items() if a != axis}
    if kind != "serial":
        kinds[axis] = kind
    return state.with_stage(replace(stage, kinds=kinds))


@primitive("serial")
class Serial(Annotate):
    kind = "serial"


@primitive("vectorize")
class Vectorize(Annotate):
    kind = "vectorized"


@primitive("unroll")
class Unroll(Annotate):
    kind = "unrolled"


@primitive("parallel")
class Parallel(Annotate):
    kind = "parallel"


@primitive("bind")
class Bind(Step):
    axis: Name
    index: Quoted
    lanes: Number = 1

    def apply(self, state: State) -> State:
        if self.index not in BOUND:
            *others, last = BOUND
            raise ScheduleError(
                f"cannot bind {self.stage}.{self.axis} to {self.index!r}: expected "
                f"{', '.join(others)} or {last}"
            )
        stage = scheduled(state, self.stage, "bind")
        other = next((a for a in stage.leaves if stage.kind(a) == self.index), self.axis)
        if other != self.axis:
            raise ScheduleError(
                f"cannot bind {self.stage}.{self.axis} to {self.index}: {self.stage}.{other} is "
                "bound to it; fuse the two"
            )
        if self.lanes != 1:
            self._check_lanes(stage)
            state = state.with_stage(replace(stage, lanes=self.lanes))
        return annotated(state, self, self.axis, BOUND[self.index])

    def _check_lanes(self, stage: StageState) -> None:
        """Raises ScheduleError if threads can't exchange partial results by shuffles."""
        place = f"cannot bind {self.stage}.{self.axis} to {self.index} with lanes={self.lanes}"
        if self.lanes < 1 or self.lanes & (self.lanes - 1):
            raise ScheduleError(f"{place}: expected a power of two")
        if self.index != THREADS[0] or self.axis not in stage.reduce_names():
            raise ScheduleError(
                f"{place}: neighbouring threads exchange partial results; expected an axis that is "
                f"reduced, bound to {THREADS[0]}"
            )


@primitive("pragma")
class Pragma(Step):
    axis: Name
    key: Quoted
    value: Quoted

    def apply(self, state: State) -> State:
        stage = scheduled(state, self.stage, "add a pragma to")
        leaf(stage, self.axis, "add a pragma to")
        pragma = self.axis, self.key, self.value
        return state.with_stage(replace(stage, pragmas=(*stage.pragmas, pragma)))
