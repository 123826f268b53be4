"""Default schedules for CPUs: analytic, nothing is measured."""

from __future__ import annotations

from dataclasses import replace

from tilesmith.graph.nodes import Graph
from tilesmith.ir.target import Target
from tilesmith.ir.types import same_dim
from tilesmith.loop.nodes import Func
from tilesmith.ops.structure import product_of_loads
from tilesmith.strategy.group import STEP, Group, group_tensors
from tilesmith.strategy.irregular import is_irregular
from tilesmith.te.knobs import ANALYTIC, Config
from tilesmith.te.lower import lower
from tilesmith.te.schedule import Schedule

from .ahead import is_used_again
from .attention import is_attention, schedule_attention, with_scaled_results
from .borders import with_zero_halos
from .concat import is_concat, lower_concat
from .dots import schedule_dots
from .injective import schedule_injective
from .irregular import lower_irregular
from .matmul import schedule_contraction
from .reduction import schedule_reductions
from .rows import row_producer, schedule_rows
from .scaled_chunks import schedule_scaled_chunks
from .scaled_rows import schedule_scaled_rows
from .tile_dots import schedule_tiles
from .winograd import schedule_winograd, winograd_op


def expressions(body: Graph) -> Group:
    """The tensor expressions of a fused group that rules schedule."""
    group = group_tensors(body)
    return with_scaled_results(group) if is_attention(group) else group


def schedule(body: Graph, target: Target, cfg: Config = ANALYTIC) -> tuple[Schedule, Group]:
    """The schedule of a fused group, by default the analytic one, and its tensor expressions."""
    group = group_tensors(body)
    if is_attention(group):
        group = with_scaled_results(group)
        return schedule_attention(group, target), group
    s = group.schedule()
    if any(same_dim(a.extent, 0) for st in group.stages for a in (*st.axis, *st.reduce_axis)):
        return s, group  # loops that never run, and sums of nothing
    if (op := winograd_op(body)) is not None:
        schedule_winograd(s, group, op, target, cfg)
        return s, group
    if schedule_scaled_chunks(s, group, target, cfg):
        return s, group
    contractions = [st for st in group.stages if product_of_loads(st)]
    if len(contractions) == 1 and any(
        form(s, group, contractions[0], target, cfg)
        for form in (schedule_dots, schedule_scaled_rows, schedule_tiles, schedule_contraction)
    ):
        return s, group
    outputs = {t.op for t in group.outputs}
    reductions = {st for st in group.stages if st.reduce_axis}
    if reductions and len(outputs) == 1:
        schedule_reductions(s, group, target, cfg)
        return s, group
    kept = [
        st for st in group.stages if st in outputs or st in reductions or is_used_again(group, st)
    ]
    rows = {st: row_producer(group, st, kept, target) for st in kept if not st.reduce_axis}
    buffered = {r.producer for r in rows.values() if r is not None}
    for st in group.stages:
        if st not in kept and st not in buffered:
            s[st.outputs[0]].compute_inline()
    for i, st in enumerate(kept):  # each in loops of its own
        own = cfg.under(str(i)) if i else cfg
        if (found := rows.get(st)) is not None:
            schedule_rows(s, group, st, found, target, kept, own)
        else:
            schedule_injective(s, group, st, target, keep=kept, cfg=own)
    return s, group


def is_generic(body: Graph, group: Group) -> bool:
    """True if the group's tensor expressions say everything about it, so that generic schedules
    apply too.
    """
    return not is_attention(group) and winograd_op(body) is None


def lower_by_rule(body: Graph, target: Target, name: str, cfg: Config = ANALYTIC) -> Func:
    """The kernel of a fused group as a loop nest.  Its parameters are the group's inputs, then its
    outputs.
    """
    if is_concat(body):
        return lower_concat(body, target, name)
    if is_irregular(body):
        return lower_irregular(body, target, name)
    return lower_scheduled(*schedule(body, target, cfg), target, name)


def lower_scheduled(s: Schedule, group: Group, target: Target, name: str) -> Func:
    """The kernel of a group with a given schedule."""
    func = with_zero_halos(lower(s, group.args, name), group, target)
    steps = tuple((STEP, line) for line in s.text().splitlines())
    return replace(func, attrs=(*func.attrs, *steps))
