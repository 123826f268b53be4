"""What each schedule step does to the state, and when it is legal.

`apply` is a pure function from state and step to the next state; an illegal step raises
ScheduleError and, since nothing is changed in place, leaves everything as it was.  The steps that
rewrite operations are in `stage_graph` and `stage_winograd`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from tilesmith.ir.dtypes import i64
from tilesmith.ir.expr import Expr
from tilesmith.ir.layout import Layout
from tilesmith.loop.nodes import ForKind
from tilesmith.support.errors import ScheduleError

from . import stage_graph, stage_winograd
from . import steps as st
from .stage import (
    At,
    FuseRelation,
    PrefetchMark,
    SkewRelation,
    SplitRelation,
    StageState,
    State,
    unique,
)
from .stage_check import check
from .steps import Step
from .tensor import MAX, MIN, PROD, SUM, Reduce

_KINDS: dict[str, ForKind] = {
    "serial": "serial", "vectorize": "vectorized", "unroll": "unrolled", "parallel": "parallel",
}  # fmt: skip


def apply(state: State, step: Step) -> State:
    """The state after `step`.  Raises ScheduleError when the step is illegal."""
    new = _RULES[type(step)](state, step)
    check(new)
    return new


def _scheduled(state: State, name: str, what: str) -> StageState:
    stage = state.stage(name)
    _ = stage.compute  # raises for a placeholder
    if stage.attach == "inline":
        raise ScheduleError(f"cannot {what} {name}: it is inlined and has no loops of its own")
    return stage


def _leaf(stage: StageState, axis: str, what: str) -> int:
    """The position of leaf `axis`, with a message that says where the axis went if it is none."""
    if axis in stage.leaves:
        return stage.leaves.index(axis)
    why = "there is no such axis"
    for rel in stage.relations:
        if isinstance(rel, SplitRelation) and rel.parent == axis:
            why = f"it was split into {rel.outer} and {rel.inner}"
        elif isinstance(rel, FuseRelation) and axis in rel.parts:
            why = f"it was fused into {rel.fused}"
        elif isinstance(rel, SkewRelation) and rel.parent == axis:
            why = f"it was skewed to {rel.skewed}"
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


def split_names(stage: StageState, axis: str) -> tuple[str, str]:
    """Names that the parts of a split `axis` get."""
    taken = stage.axis_names()
    outer = unique(f"{axis}o", taken)
    return outer, unique(f"{axis}i", taken | {outer})


def fused_name(stage: StageState, axes: tuple[str, ...]) -> str:
    return unique(
        "".join(axes) if all(len(a) <= 3 for a in axes) else "_".join(axes), stage.axis_names()
    )


def _split(state: State, step: st.Split) -> State:
    stage = _scheduled(state, step.stage, "split")
    at = _leaf(stage, step.axis, "split")
    _free_of_attachments(state, stage, step.axis, "split")
    if (step.factor is None) == (step.nparts is None):
        raise ScheduleError(f"split of {stage.name}.{step.axis} needs either factor= or nparts=")
    size = step.factor if step.factor is not None else step.nparts
    number = isinstance(size, int) and not isinstance(size, bool) and size >= 1
    if not number and not (isinstance(size, Expr) and size.dtype is i64 and size.lanes == 1):
        raise ScheduleError(
            f"split of {stage.name}.{step.axis} needs a factor of at least 1, found {size!r}"
        )
    if step.tail not in ("peel", "guard", "roundup"):
        raise ScheduleError(f"tail must be 'peel', 'guard' or 'roundup', found {step.tail!r}")
    if step.tail == "roundup" and step.axis in stage.reduce_names():
        raise ScheduleError(
            f"cannot round up {stage.name}.{step.axis}: elements past the end of a reduction would "
            "change the result; "
            "use tail='peel' or 'guard'"
        )
    outer, inner = split_names(stage, step.axis)
    relation = SplitRelation(step.axis, outer, inner, step.factor, step.nparts, step.tail)
    leaves = (*stage.leaves[:at], outer, inner, *stage.leaves[at + 1 :])
    return state.with_stage(replace(stage, leaves=leaves, relations=(*stage.relations, relation)))


def _fuse(state: State, step: st.Fuse) -> State:
    stage = _scheduled(state, step.stage, "fuse")
    if len(step.axes) < 2:
        raise ScheduleError(f"fuse needs two axes or more, found {len(step.axes)}")
    first = _leaf(stage, step.axes[0], "fuse")
    for axis in step.axes:
        _leaf(stage, axis, "fuse")
        _free_of_attachments(state, stage, axis, "fuse")
    found = stage.leaves[first : first + len(step.axes)]
    if found != step.axes:
        raise ScheduleError(
            f"cannot fuse {', '.join(step.axes)} of {stage.name}: they must be neighbours in this "
            "order, outermost "
            f"first; the loops are {', '.join(stage.leaves)}: reorder first"
        )
    reduced = stage.reduce_names()
    if len({a in reduced for a in step.axes}) > 1:
        raise ScheduleError(
            f"cannot fuse {', '.join(step.axes)} of {stage.name}: "
            f"{', '.join(a for a in step.axes if a in reduced)} "
            "is a reduction axis and the others are not"
        )
    fused = fused_name(stage, step.axes)
    leaves = (*stage.leaves[:first], fused, *stage.leaves[first + len(step.axes) :])
    relations = (*stage.relations, FuseRelation(step.axes, fused))
    return state.with_stage(replace(stage, leaves=leaves, relations=relations))


def skewed_name(stage: StageState, axis: str) -> str:
    """The name that `axis` gets when it is skewed."""
    return unique(f"{axis}s", stage.axis_names())


def _skew(state: State, step: st.Skew) -> State:
    stage = _scheduled(state, step.stage, "skew")
    at = _leaf(stage, step.axis, "skew")
    _leaf(stage, step.by, "skew by")
    _free_of_attachments(state, stage, step.axis, "skew")
    what = f"cannot skew {stage.name}.{step.axis} by {step.by}"
    if step.by == step.axis or {step.axis, step.by} & stage.reduce_names():
        raise ScheduleError(f"{what}: expected two different axes of the result")
    numbers = all(type(n) is int for n in (step.factor, step.modulus))
    if not numbers or step.factor < 1 or step.modulus < 2:
        raise ScheduleError(
            f"{what}: expected a factor of at least 1 and a modulus of at least 2, found "
            f"{step.factor!r} and {step.modulus!r}"
        )
    skewed = skewed_name(stage, step.axis)
    relation = SkewRelation(step.axis, step.by, step.factor, step.modulus, skewed)
    leaves = (*stage.leaves[:at], skewed, *stage.leaves[at + 1 :])
    return state.with_stage(replace(stage, leaves=leaves, relations=(*stage.relations, relation)))


def _reorder(state: State, step: st.Reorder) -> State:
    stage = _scheduled(state, step.stage, "reorder")
    if len(set(step.axes)) != len(step.axes):
        raise ScheduleError(
            f"cannot reorder {stage.name}: an axis is named twice in {', '.join(step.axes)}"
        )
    places = sorted(_leaf(stage, a, "reorder") for a in step.axes)
    leaves = list(stage.leaves)
    for place, axis in zip(places, step.axes, strict=True):
        leaves[place] = axis
    return state.with_stage(replace(stage, leaves=tuple(leaves)))


def _annotate(state: State, step: st.Annotate) -> State:
    stage = _scheduled(state, step.stage, step.mark)
    _leaf(stage, step.axis, step.mark)
    kind = _KINDS[step.mark]
    if step.axis in stage.reduce_names():
        if kind == "parallel":
            raise ScheduleError(
                f"cannot parallel {stage.name}.{step.axis}: its iterations all update the same "
                "elements; "
                "use rfactor to give each part a result of its own"
            )
        reduce = stage.compute.body[0]
        if kind == "vectorized" and not (
            isinstance(reduce, Reduce)
            and reduce.reducer in (SUM, PROD, MIN, MAX)
            and not reduce.dtype.is_bool
        ):
            raise ScheduleError(
                f"cannot vectorize {stage.name}.{step.axis}: lanes can only be combined for "
                "te.sum, prod, min and max "
                "of numbers; vectorise a spatial axis, or rfactor this one"
            )
    kinds = {a: k for a, k in stage.kinds.items() if a != step.axis}
    if kind != "serial":
        kinds[step.axis] = kind
    return state.with_stage(replace(stage, kinds=kinds))


def _compute_at(state: State, step: st.ComputeAt) -> State:
    stage = state.stage(step.stage)
    _ = stage.compute  # raises for a placeholder
    if step.stage == step.target:
        raise ScheduleError(f"{step.stage} cannot be computed at its own loop {step.axis}")
    target = _scheduled(state, step.target, "compute_at")
    _leaf(target, step.axis, "compute_at")
    return state.with_stage(replace(stage, attach=At(step.target, step.axis)))


def _compute_inline(state: State, step: st.ComputeInline) -> State:
    stage = state.stage(step.stage)
    why = ""
    if stage.is_output:
        why = "it is an output of the program"
    elif stage.compute.reduce_axis:
        why = "it is a reduction; compute it at a loop of its reader instead"
    elif stage.layout is not None or stage.aligns:
        why = "its layout was chosen, but an inlined stage has no memory"
    else:
        here = [
            s.name
            for s in state.stages.values()
            if isinstance(s.attach, At) and s.attach.stage == stage.name
        ]
        if here:
            why = f"{', '.join(here)} is computed at its loops"
    if why:
        raise ScheduleError(f"cannot inline {stage.name}: {why}")
    return state.with_stage(replace(stage, attach="inline"))


def _compute_root(state: State, step: st.ComputeRoot) -> State:
    stage = state.stage(step.stage)
    _ = stage.compute  # raises for a placeholder
    return state.with_stage(replace(stage, attach="root"))


def intermediate(state: State, name: str, what: str) -> StageState:
    """The stage `name`, which must own memory that the program allocates itself."""
    stage = _scheduled(state, name, what)
    if stage.is_output:
        raise ScheduleError(
            f"cannot {what} of {name}: it is an output, whose memory the caller owns; cache_write "
            "it and use the copy"
        )
    return stage


def _set_scope(state: State, step: st.SetScope) -> State:
    if step.scope not in ("heap", "stack", "register"):
        raise ScheduleError(f"scope must be 'heap', 'stack' or 'register', found {step.scope!r}")
    stage = intermediate(state, step.stage, "set the scope")
    return state.with_stage(replace(stage, scope=step.scope))  # type: ignore[arg-type]


def _transform_layout(state: State, step: st.TransformLayout) -> State:
    stage = state.stage(step.stage)
    try:
        layout = Layout.parse(step.layout)
    except ValueError as e:
        raise ScheduleError(f"transform_layout of {stage.name}: {e}") from None
    rank = len(stage.op.shape)
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
        _scheduled(state, step.stage, "transform the layout of")
        if not stage.is_output and any(d.before or d.after for d in layout.dims):
            raise ScheduleError(
                f"layout '{layout}': {stage.name} is computed here and nothing would fill its halo "
                "with zeros; "
                "make the padding a compute of its own, or give the halo to an argument"
            )
    if stage.aligns:
        raise ScheduleError(f"transform_layout of {stage.name} must come before storage_align")
    return state.with_stage(replace(stage, layout=layout))


def _prefetch(state: State, step: st.Prefetch) -> State:
    stage = _scheduled(state, step.stage, "prefetch in")
    source = state.stage(step.source)
    known = 0 <= step.value < len(source.op.outputs)
    if not known or stage.name not in state.consumers()[step.source]:
        raise ScheduleError(
            f"cannot prefetch {step.source} in {stage.name}, which does not read it"
        )
    of = _scheduled(state, step.of, "prefetch at") if step.of else stage
    if step.of and not step.over:
        raise ScheduleError(
            f"cannot prefetch at {of.name}.{step.axis} in {stage.name}: name one of its own loops "
            "as `over`, to spread the prefetch over"
        )
    for owner, axis in ((of, step.axis), (stage, step.over or step.axis)):
        _leaf(owner, axis, "prefetch at")
        if owner.kind(axis) == "vectorized":
            raise ScheduleError(f"cannot prefetch at {owner.name}.{axis}: it is vectorised")
    if step.offset < 0:
        raise ScheduleError(
            f"prefetch offset must be at least 0 iterations ahead, found {step.offset}"
        )
    mark = PrefetchMark(step.source, step.value, step.axis, step.offset, step.over, step.of)
    return state.with_stage(replace(stage, prefetches=(*stage.prefetches, mark)))


def _storage_align(state: State, step: st.StorageAlign) -> State:
    stage = intermediate(state, step.stage, "align the storage")
    if step.axis not in stage.roots[: len(stage.compute.axis)]:
        raise ScheduleError(
            f"storage_align of {stage.name} names a dimension by one of {', '.join(stage.roots)}; "
            f"found {step.axis}"
        )
    if step.factor < 1 or not 0 <= step.offset < step.factor:
        raise ScheduleError(
            f"storage_align needs factor >= 1 and 0 <= offset < factor, found {step.factor} and "
            f"{step.offset}"
        )
    if stage.layout is not None:
        raise ScheduleError(
            f"{stage.name} has a transformed layout; put the padding into the layout's blocks "
            "instead"
        )
    axis = stage.roots.index(step.axis)
    if axis == len(stage.compute.axis) - 1:
        raise ScheduleError(
            f"{stage.name}.{step.axis} is the innermost dimension, its stride is always 1"
        )
    return state.with_stage(
        replace(stage, aligns=(*stage.aligns, (axis, step.factor, step.offset)))
    )


def _double_buffer(state: State, step: st.DoubleBuffer) -> State:
    stage = intermediate(state, step.stage, "double the buffer")
    if not isinstance(stage.attach, At):
        raise ScheduleError(
            f"double_buffer of {stage.name} needs a loop to run ahead in: compute_at first"
        )
    return state.with_stage(replace(stage, double_buffer=True))


def _pragma(state: State, step: st.Pragma) -> State:
    stage = _scheduled(state, step.stage, "add a pragma to")
    _leaf(stage, step.axis, "add a pragma to")
    return state.with_stage(
        replace(stage, pragmas=(*stage.pragmas, (step.axis, step.key, step.value)))
    )


_RULES: dict[type, Callable[[State, Any], State]] = {
    st.Split: _split,
    st.Fuse: _fuse,
    st.Skew: _skew,
    st.Reorder: _reorder,
    st.Annotate: _annotate,
    st.ComputeAt: _compute_at,
    st.ComputeInline: _compute_inline,
    st.ComputeRoot: _compute_root,
    st.SetScope: _set_scope,
    st.TransformLayout: _transform_layout,
    st.Prefetch: _prefetch,
    st.StorageAlign: _storage_align,
    st.DoubleBuffer: _double_buffer,
    st.Pragma: _pragma,
    st.CacheRead: stage_graph.cache_read,
    st.CacheWrite: stage_graph.cache_write,
    st.RFactor: stage_graph.rfactor,
    st.Winograd: stage_winograd.winograd,
    st.FlattenAxes: stage_graph.flatten_axes,
}
