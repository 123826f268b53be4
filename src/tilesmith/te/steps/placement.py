"""Steps on the place of a stage and the form of its memory."""

from __future__ import annotations

from dataclasses import replace

from tilesmith.ir.layout import Layout
from tilesmith.ir.loop_tables import ALLOCATED, Scope
from tilesmith.support.errors import ScheduleError

from ..state import At, PrefetchMark, StageState, State
from ..tensor import Extern
from .base import Name, Number, OptionalName, Quoted, Step, primitive, value_text
from .loops import leaf, scheduled


def checked_scope(scope: str) -> Scope:
    """`scope`, which must be one that a schedule may choose."""
    if scope not in ALLOCATED:
        *others, last = map(repr, ALLOCATED)
        theirs = {"global": "heap", "local": "register"}.get(scope)
        cure = f"; TVM's {scope!r} is {theirs!r} here" if theirs else ""
        raise ScheduleError(f"scope must be {', '.join(others)} or {last}, found {scope!r}{cure}")
    return ALLOCATED[scope]


def _intermediate(state: State, name: str, what: str) -> StageState:
    """The stage `name`, which must have memory that the program allocates."""
    stage = scheduled(state, name, what)
    if stage.is_output:
        raise ScheduleError(
            f"cannot {what} of {name}: it is an output, whose memory the caller owns; cache_write "
            "it and use the copy"
        )
    return stage


@primitive("compute_at")
class ComputeAt(Step):
    target: Name
    axis: Name

    def apply(self, state: State) -> State:
        stage = state.stage(self.stage)
        _ = stage.compute  # this raises for a placeholder
        if self.stage == self.target:
            raise ScheduleError(f"{self.stage} cannot be computed at its own loop {self.axis}")
        leaf(scheduled(state, self.target, "compute_at"), self.axis, "compute_at")
        place = At(self.target, self.axis)
        return state.with_stage(replace(stage, attach=place, store=None, folds=()))


def _externs(state: State) -> list[StageState]:
    return [s for s in state.stages.values() if isinstance(s.op, Extern)]


@primitive("compute_inline")
class ComputeInline(Step):
    def apply(self, state: State) -> State:
        stage = state.stage(self.stage)
        stages = (s for s in state.stages.values() if isinstance(s.attach, At))
        here = [s.name for s in stages if isinstance(s.attach, At) and s.attach.stage == stage.name]
        why = ""
        if stage.is_output:
            why = "it is an output of the program"
        elif stage.compute.reduce_axis:
            why = "it is a reduction; compute it at a loop of its reader instead"
        elif isinstance(stage.op, Extern):
            why = "it is loops, not an expression"
        elif loops := [s.name for s in _externs(state) if any(n == stage.name for n, _ in s.reads)]:
            why = f"{loops[0]} is loops, which read memory"
        elif stage.recurrence is not None:
            why = "it is a scan, which reads its own results"
        elif stage.layout is not None or stage.aligns:
            why = "its layout was chosen, but an inlined stage has no memory"
        elif here:
            why = f"{', '.join(here)} is computed at its loops"
        if why:
            raise ScheduleError(f"cannot inline {stage.name}: {why}")
        return state.with_stage(replace(stage, attach="inline", store=None, folds=()))


@primitive("compute_root")
class ComputeRoot(Step):
    def apply(self, state: State) -> State:
        stage = state.stage(self.stage)
        _ = stage.compute  # this raises for a placeholder
        return state.with_stage(replace(stage, attach="root", store=None, folds=()))


def _computed_at(state: State, name: str, what: str) -> StageState:
    """The stage `name`, which must be computed at a loop, into its own memory."""
    stage = _intermediate(state, name, what)
    if not isinstance(stage.attach, At):
        raise ScheduleError(
            f"cannot {what} of {name}: it is not computed at a loop of a reader; compute_at first"
        )
    return stage


@primitive("store_at")
class StoreAt(Step):
    target: Name
    axis: Name

    def apply(self, state: State) -> State:
        stage = _computed_at(state, self.stage, "choose the storage")
        leaf(scheduled(state, self.target, "store_at"), self.axis, "store_at")
        return state.with_stage(replace(stage, store=At(self.target, self.axis), folds=()))


@primitive("store_root")
class StoreRoot(Step):
    def apply(self, state: State) -> State:
        stage = _computed_at(state, self.stage, "choose the storage")
        return state.with_stage(replace(stage, store="root", folds=()))


@primitive("fold_storage")
class FoldStorage(Step):
    axis: Name
    factor: Number

    def apply(self, state: State) -> State:
        stage = _intermediate(state, self.stage, "fold the storage")
        axes = stage.roots[: len(stage.compute.axis)]
        if self.axis not in axes:
            raise ScheduleError(
                f"fold_storage of {stage.name} names a dimension by one of {', '.join(axes)}; "
                f"found {self.axis}"
            )
        if self.factor < 1:
            raise ScheduleError(
                f"fold_storage of {stage.name} needs a factor of at least 1, found {self.factor}"
            )
        is_time = stage.recurrence is not None and self.axis == axes[0]
        if stage.store is None and not is_time:
            raise ScheduleError(
                f"cannot fold the storage of {stage.name}: it is stored where it is computed, so "
                "no values are kept; store_at an outer loop first"
            )
        axis = axes.index(self.axis)
        kept = (f for f in stage.folds if f[0] != axis)
        return state.with_stage(replace(stage, folds=(*kept, (axis, self.factor))))


@primitive("set_scope")
class SetScope(Step):
    scope: Quoted

    def apply(self, state: State) -> State:
        scope = checked_scope(self.scope)
        stage = _intermediate(state, self.stage, "set the scope")
        return state.with_stage(replace(stage, scope=scope))


@primitive("transform_layout", of_schedule=True)
class TransformLayout(Step):
    """`layout` is the text form of an `ir.layout.Layout`."""

    layout: Quoted

    def apply(self, state: State) -> State:
        stage = state.stage(self.stage)
        try:
            layout = Layout.parse(self.layout)
        except ValueError as e:
            raise ScheduleError(f"transform_layout of {stage.name}: {e}") from None
        rank = len(stage.op.shape)
        if any(len(t.shape) != rank for t in stage.op.outputs):
            raise ScheduleError(f"{stage.name} has results of several ranks and no layout")
        if layout.rank != rank:
            raise ScheduleError(
                f"layout '{layout}' has {layout.rank} axes, {stage.name} has rank {rank}"
            )
        if any(d.block < 1 for d in layout.dims):
            raise ScheduleError(
                f"layout '{layout}' of {stage.name} has a block of size 0; blocks have at least 1 "
                "element"
            )
        if not stage.is_placeholder:
            scheduled(state, self.stage, "transform the layout of")
            if not stage.is_output and any(d.before or d.after for d in layout.dims):
                raise ScheduleError(
                    f"layout '{layout}': {stage.name} is computed here and nothing would fill its "
                    "halo with zeros; make the padding a compute of its own, or give the halo to "
                    "an argument"
                )
        if stage.aligns:
            raise ScheduleError(f"transform_layout of {stage.name} must come before storage_align")
        return state.with_stage(replace(stage, layout=layout))


@primitive("prefetch")
class Prefetch(Step):
    """Prefetch value `value` of `source`, `offset` iterations of `axis` ahead.

    over: the loop over which the prefetches are spread, if given.
    of: the stage with the loop `axis`, if this is another stage.
    parts: successive iterations of that loop, each of which prefetches one part.
    """

    source: Name
    value: Number
    axis: Name
    offset: Number
    over: OptionalName = ""
    of: OptionalName = ""
    parts: Number = 1

    def __str__(self) -> str:
        read = value_text(self.source, self.value)
        axis = f"s[{self.of!r}][{self.axis!r}]" if self.of else repr(self.axis)
        over = f", over={self.over!r}" if self.over else ""
        parts = f", parts={self.parts}" if self.parts != 1 else ""
        return f"s[{self.stage!r}].prefetch({read}, {axis}, offset={self.offset}{over}{parts})"

    def apply(self, state: State) -> State:
        stage = scheduled(state, self.stage, "prefetch in")
        source = state.stage(self.source)
        known = 0 <= self.value < len(source.op.outputs)
        if not known or stage.name not in state.consumers()[self.source]:
            raise ScheduleError(
                f"cannot prefetch {self.source} in {stage.name}, which does not read it"
            )
        of = scheduled(state, self.of, "prefetch at") if self.of else stage
        if self.of and not self.over:
            raise ScheduleError(
                f"cannot prefetch at {of.name}.{self.axis} in {stage.name}: name one of its own "
                "loops as `over`, to spread the prefetch over"
            )
        for owner, axis in ((of, self.axis), (stage, self.over or self.axis)):
            leaf(owner, axis, "prefetch at")
            if owner.kind(axis) == "vectorized":
                raise ScheduleError(f"cannot prefetch at {owner.name}.{axis}: it is vectorised")
        if self.offset < 0:
            raise ScheduleError(
                f"prefetch offset must be at least 0 iterations ahead, found {self.offset}"
            )
        if self.parts < 1 or (self.parts > 1 and not self.of):
            raise ScheduleError(
                f"cannot prefetch in {stage.name} in {self.parts} parts: expected at least 1, and "
                "more only for a loop of the stage in which this one is computed"
            )
        mark = PrefetchMark(
            self.source, self.value, self.axis, self.offset, self.over, self.of, self.parts
        )
        return state.with_stage(replace(stage, prefetches=(*stage.prefetches, mark)))


@primitive("storage_align")
class StorageAlign(Step):
    axis: Name
    factor: Number
    offset: Number

    def apply(self, state: State) -> State:
        stage = _intermediate(state, self.stage, "align the storage")
        last = len(stage.compute.axis) - 1
        if self.axis not in stage.roots[: last + 1]:
            raise ScheduleError(
                f"storage_align of {stage.name} names a dimension by one of "
                f"{', '.join(stage.roots)}; found {self.axis}"
            )
        if self.factor < 1 or not 0 <= self.offset < self.factor:
            raise ScheduleError(
                "storage_align needs factor >= 1 and 0 <= offset < factor, found "
                f"{self.factor} and {self.offset}"
            )
        if stage.layout is not None:
            raise ScheduleError(
                f"{stage.name} has a transformed layout; put the padding into the layout's blocks "
                "instead"
            )
        axis = stage.roots.index(self.axis)
        if axis == last:
            raise ScheduleError(
                f"{stage.name}.{self.axis} is the innermost dimension, its stride is always 1"
            )
        align = axis, self.factor, self.offset
        return state.with_stage(replace(stage, aligns=(*stage.aligns, align)))


@primitive("double_buffer")
class DoubleBuffer(Step):
    def apply(self, state: State) -> State:
        return _ahead(state, self.stage, self.primitive, 2)


@primitive("pipeline")
class Pipeline(Step):
    depth: Number

    def apply(self, state: State) -> State:
        if self.depth < 2:
            raise ScheduleError(
                f"pipeline of {self.stage} needs at least 2 buffers, found depth={self.depth}"
            )
        return _ahead(state, self.stage, self.primitive, self.depth)


def _ahead(state: State, name: str, step: str, buffers: int) -> State:
    """The state in which parts of stage `name` are computed ahead, in `buffers` buffers."""
    stage = _intermediate(state, name, "compute ahead")
    if not isinstance(stage.attach, At):
        raise ScheduleError(
            f"{step} of {stage.name} needs a loop to run ahead in: compute_at first"
        )
    return state.with_stage(replace(stage, buffers=buffers))
