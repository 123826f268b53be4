"""The state of a schedule: every stage with its loops, as immutable values that steps map to new
values.

A *stage* is an operation with its loops and memory.  Its *root* axes are the operation's own,
spatial ones first, then reductions.  Relations (split, fuse) derive further axes from the root
axes.  The *leaves*, outermost first, are the loops of the stage.  The name of an axis is unique in
its stage, and the name of a stage in its schedule.  The tensor expressions themselves are never
edited.  A rewrite such as `cache_write` gives a stage a new operation, and `State.tensors` maps
every tensor that users hold to its current stage.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Literal, TypeAlias

from tilesmith.ir.layout import Layout
from tilesmith.ir.loop_tables import ForKind, Scope
from tilesmith.ir.types import Dim
from tilesmith.support.arguments import shown
from tilesmith.support.errors import ScheduleError

from .relations import Relation
from .tensor import Compute, IterVar, Operation, Placeholder, Recurrence, Tensor, producers_first


@dataclass(frozen=True, slots=True)
class At:
    """The place of a stage that is computed in each iteration of another stage's loop.

    stage: the stage with the loop.
    axis: the loop.
    """

    stage: str
    axis: str

    def __str__(self) -> str:
        return f"{self.stage}.{self.axis}"


Attach: TypeAlias = "Literal['root', 'inline'] | At"


@dataclass(frozen=True, slots=True)
class PrefetchMark:
    """A prefetch of elements that the stage reads.

    source: the stage that is read.
    value: number of the value of `source`.
    axis: the loop whose iterations are prefetched.
    offset: prefetch distance in iterations of `axis`.
    over: the loop over which the prefetches are spread; empty for none.
    of: the stage with the loop `axis`; empty for the stage itself.
    parts: iterations of `axis` that share the work, if `axis` is another stage's loop.
    """

    source: str
    value: int
    axis: str
    offset: int
    over: str = ""
    of: str = ""
    parts: int = 1

    @property
    def place(self) -> str:
        """The loop whose body contains the prefetches."""
        return self.over or self.axis


@dataclass(frozen=True, slots=True, eq=False)
class StageState:
    """An operation with its loops and memory.

    name: unique in the schedule.
    op: the operation.
    reads: values read by the body, as (stage, value number), in order of first use.
    roots: names of the operation's spatial axes, then of its reduction axes.
    leaves: names of the loops, outermost first.
    is_output: whether the stage computes an output of the schedule.
    relations: the derivations of axes from one another.
    kinds: kinds of the loops; serial where absent.
    attach: the place where the stage is computed.
    store: the loop around `attach` inside which its memory is allocated, or "root" for outside of
        all loops.  None: the memory is allocated where the stage is computed.
    folds: (axis number, factor) of fold_storage.
    scope: scope of its memory; None: chosen by lowering.
    layout: layout of its memory; None is row-major.
    aligns: (axis number, factor, offset) of storage_align.
    buffers: pipeline depth.  This is the number of iterations whose parts exist at the same time,
        the current iteration included.
    prefetches: its prefetches.
    pragmas: (axis, key, value) notes for code generation.
    is_adaptable: whether lowering may replace kinds of loops without a constant extent, because
        `kinds` was chosen for an expected size.
    lanes: number of neighbouring threads that exchange partial results of the reduction by
        shuffles; 1: no shuffles.
    tensorized: (loop, name of the tensor intrinsic that computes this loop and those inside), or
        None.
    """

    name: str
    op: Operation
    reads: tuple[tuple[str, int], ...]
    """Values read by the body, as (stage, value number), in order of first use."""
    roots: tuple[str, ...]
    """Names of the operation's spatial axes, then of its reduction axes."""
    leaves: tuple[str, ...]
    is_output: bool = False
    relations: tuple[Relation, ...] = ()
    kinds: Mapping[str, ForKind] = field(default_factory=dict)
    attach: Attach = "root"
    store: At | Literal["root"] | None = None
    folds: tuple[tuple[int, int], ...] = ()
    scope: Scope | None = None
    """Scope of the stage's memory; None: chosen by lowering."""
    layout: Layout | None = None
    aligns: tuple[tuple[int, int, int], ...] = ()
    """(axis number, factor, offset) of storage_align."""
    buffers: int = 1
    prefetches: tuple[PrefetchMark, ...] = ()
    pragmas: tuple[tuple[str, str, str], ...] = ()
    is_adaptable: bool = False
    lanes: int = 1
    tensorized: tuple[str, str] | None = None

    @property
    def is_placeholder(self) -> bool:
        return isinstance(self.op, Placeholder)

    @property
    def compute(self) -> Compute:
        """The operation, which must not be a placeholder."""
        if not isinstance(self.op, Compute):
            raise ScheduleError(
                f"{self.name} is an argument of the program, which has no loops to schedule"
            )
        return self.op

    @property
    def root_axes(self) -> tuple[IterVar, ...]:
        """The operation's axes in the order of `roots`."""
        return (*self.op.axis, *self.op.reduce_axis) if isinstance(self.op, Compute) else ()

    @property
    def recurrence(self) -> Recurrence | None:
        """The recurrence of a scan; None for other stages."""
        return self.op.recurrence if isinstance(self.op, Compute) else None

    def tensorized_loops(self) -> tuple[str, ...]:
        """The loops that a tensor intrinsic computes; empty without one."""
        if self.tensorized is None:
            return ()
        return self.leaves[self.leaves.index(self.tensorized[0]) :]

    def kind(self, axis: str) -> ForKind:
        return self.kinds.get(axis, "serial")

    def origins(self) -> dict[str, frozenset[str]]:
        """For every axis, the names of the root axes from which it derives."""
        origins = {r: frozenset((r,)) for r in self.roots}
        for rel in self.relations:
            origin = frozenset[str]().union(*(origins[p] for p in rel.parents))
            origins.update(dict.fromkeys(rel.made, origin))
        return origins

    def reduce_names(self) -> frozenset[str]:
        """Names of all axes, root or derived, that are reduced."""
        names = {r for r, a in zip(self.roots, self.root_axes, strict=True) if a.is_reduce}
        if not names:
            return frozenset()
        for rel in self.relations:
            if rel.parents[0] in names:
                names.update(rel.made)
        return frozenset(names)

    def extents(self, roots: Iterable[Dim] | None = None) -> dict[str, Dim]:
        """Extents of all axes, given those of the root axes (default: the whole domain)."""
        if roots is None:
            roots = (a.extent for a in self.root_axes)
        extents = dict(zip(self.roots, roots, strict=True))
        for rel in self.relations:
            extents.update(zip(rel.made, rel.extents(extents), strict=True))
        return extents

    def axis_names(self) -> set[str]:
        """Every axis name in use, leaf or not."""
        names = set(self.roots)
        for rel in self.relations:
            names.update(rel.made)
        return names


def with_relation(stage: StageState, relation: Relation) -> StageState:
    """`stage` with the parents of `relation` replaced by the loops that it makes."""
    first = stage.leaves.index(relation.parents[0])
    rest = stage.leaves[first + len(relation.parents) :]
    leaves = (*stage.leaves[:first], *relation.made, *rest)
    return replace(stage, leaves=leaves, relations=(*stage.relations, relation))


@dataclass(frozen=True, slots=True, eq=False)
class State:
    """All stages of a schedule.

    stages: by name, producers before consumers.
    tensors: for every tensor that users hold, its stage and value number.
    """

    stages: Mapping[str, StageState]
    tensors: Mapping[Tensor, tuple[str, int]]

    def with_stage(self, stage: StageState) -> State:
        """The state in which `stage` replaces the stage of the same name."""
        return State({**self.stages, stage.name: stage}, self.tensors)

    def with_new_stage(
        self, new: StageState, *, before: str | None = None, after: str | None = None
    ) -> State:
        stages: dict[str, StageState] = {}
        for name, stage in self.stages.items():
            if name == before:
                stages[new.name] = new
            stages[name] = stage
            if name == after:
                stages[new.name] = new
        tensors = {**self.tensors, **{t: (new.name, t.index) for t in new.op.outputs}}
        return State(stages, tensors)

    def with_operation(self, stage: StageState) -> State:
        """The state in which `stage` replaces the stage of the same name.  The outputs of the
        stage's operation are added to `tensors`.
        """
        tensors = {**self.tensors, **{t: (stage.name, t.index) for t in stage.op.outputs}}
        return State({**self.stages, stage.name: stage}, tensors)

    def unique_name(self, base: str) -> str:
        return unique(base, self.stages)

    def stage(self, name: str) -> StageState:
        """The stage called `name`.  Raises ScheduleError if there is none."""
        if name not in self.stages:
            raise ScheduleError(f"no stage {shown(name)}; the stages are {', '.join(self.stages)}")
        return self.stages[name]

    def resolve(self, key: Tensor | Operation | str) -> tuple[str, int]:
        """Stage and value number of a tensor, operation or stage name.  Raises ScheduleError if
        there is none.
        """
        if isinstance(key, str):
            return self.stage(key).name, 0
        tensor = key.outputs[0] if isinstance(key, (Placeholder, Compute)) else key
        if isinstance(tensor, Tensor):
            resolved = self.tensors.get(tensor)
            if resolved is not None:
                return resolved
        raise ScheduleError(
            f"{key!r} is not part of this schedule, whose stages are {', '.join(self.stages)}"
        )

    def reads_of(self, op: Operation) -> tuple[tuple[str, int], ...]:
        return tuple(dict.fromkeys(self.tensors[t] for t in op.inputs))

    def consumers(self) -> dict[str, list[str]]:
        """For each stage, the stages whose loops read it, directly or through inlined stages."""
        direct: dict[str, list[str]] = {n: [] for n in self.stages}
        for stage in reversed(tuple(self.stages.values())):
            for producer in dict.fromkeys(n for n, _ in stage.reads):
                readers = direct[producer]
                for reader in direct[stage.name] if stage.attach == "inline" else (stage.name,):
                    if reader not in readers:
                        readers.append(reader)
        return direct

    def inside_scan(self, name: str) -> tuple[str, ...]:
        """The stages that compute a step of scan `name` from its state; none for other stages."""
        if self.stages[name].recurrence is None:
            return ()
        inside: dict[str, None] = {}
        for stage in self.stages.values():
            if stage.name == name:
                break
            if any(source == name or source in inside for source, _ in stage.reads):
                inside[stage.name] = None
        return tuple(inside)

    def kept_over(self, name: str) -> tuple[str, ...]:
        """The loops that carry values of stage `name` to their next iteration, outermost first.
        They belong to the stage inside which stage `name` is computed.  The memory is allocated
        outside of them, and stage `name` is computed inside of them.
        """
        stage = self.stages[name]
        place = stage.attach
        if stage.store is None or not isinstance(place, At):
            return ()
        leaves = self.stages[place.stage].leaves
        store, first = stage.store, 0
        if isinstance(store, At) and store.stage == place.stage:
            first = leaves.index(store.axis) + 1
        return leaves[first : leaves.index(place.axis) + 1]

    def ancestors(self, name: str) -> Iterator[At]:
        """The place of stage `name`, then the place of the stage that has this loop, and so on up
        to the root.
        """
        attach = self.stages[name].attach
        while isinstance(attach, At):
            yield attach
            attach = self.stages[attach.stage].attach


def unique(base: str, taken: Iterable[str]) -> str:
    """`base`, or `base_1`, `base_2`, ... if it is taken."""
    if base not in taken:
        return base
    n = 1
    while f"{base}_{n}" in taken:
        n += 1
    return f"{base}_{n}"


def make_stage(
    name: str, op: Operation, reads: tuple[tuple[str, int], ...], **fields: object
) -> StageState:
    """An unscheduled stage for `op`: one loop per axis, reductions innermost."""
    roots: dict[str, None] = {}
    if isinstance(op, Compute):
        for axis in (*op.axis, *op.reduce_axis):
            roots[unique(axis.name or "i", roots)] = None
    return StageState(name, op, reads, tuple(roots), tuple(roots), **fields)  # type: ignore[arg-type]


def initial(outputs: tuple[Operation, ...]) -> State:
    """The unscheduled state of `outputs` and all their producers."""
    order = producers_first(outputs)
    states = {
        t: n
        for op in order
        if isinstance(op, Compute) and op.recurrence is not None
        for n, t in enumerate(op.recurrence.states)
    }
    names: dict[str, Operation] = {}
    tensors: dict[Tensor, tuple[str, int]] = {}
    for op in order:
        if op.outputs[0] not in states:
            name = unique(op.name or "t", names)
            names[name] = op
            tensors.update({t: (name, t.index) for t in op.outputs})
            if isinstance(op, Compute) and op.recurrence is not None:
                tensors.update({t: (name, n) for n, t in enumerate(op.recurrence.states)})
    stages: dict[str, StageState] = {}
    for name, op in names.items():
        reads = tuple(tensors[t] for t in order[op])
        stages[name] = make_stage(name, op, reads, is_output=op in outputs)
    state = State(stages, tensors)
    for name, stage in stages.items():
        if stage.recurrence is not None:
            state = _with_steps(state, name)
    return state


def _with_steps(state: State, name: str) -> State:
    """The state with a new place for each stage inside scan `name`.  Stages with a reduction and
    outputs are computed at the scan's time loop.  All others are inlined.
    """
    time = At(name, state.stages[name].roots[0])
    for inside in state.inside_scan(name):
        stage = state.stages[inside]
        attach = time if stage.compute.reduce_axis or stage.is_output else "inline"
        state = state.with_stage(replace(stage, attach=attach))
    return state
