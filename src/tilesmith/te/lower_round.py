"""Lowering of `tail="roundup"`: the proof that a stage that is computed past the end of its domain
stays inside the memory of all tensors.

A rounded-up axis has no guard, so its stage also runs for points outside the domain.  The results
at these points are never used, but the reads happen.  Every read that depends on such an axis must
stay within the memory of its tensor: the padding of a blocked layout, the region of an attached
stage, or a root stage's buffer, which is enlarged as needed.  Otherwise ScheduleError is raised.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from tilesmith.ir.bounds import eliminate
from tilesmith.ir.context import Context
from tilesmith.ir.expr import Binary, Const, Expr, Load, free_vars, post_order, substitute
from tilesmith.ir.extents import larger, total
from tilesmith.ir.intrinsics import needs_guard
from tilesmith.ir.simplify import can_prove, interval, simplify
from tilesmith.ir.symbols import as_dim
from tilesmith.ir.types import Dim, same_dim
from tilesmith.support.errors import ScheduleError

from .lower_memory import capacity
from .lower_plan import StagePlan, read_of
from .lower_size import loops_around
from .relations import add, dim_expr
from .rewrite import guarded_loads
from .state import At, State
from .tensor import Extern, Reduce

_DIVISIONS = ("floordiv", "floormod", "truncdiv", "truncmod")


def check_rounding(
    state: State, plans: Mapping[str, StagePlan], plan: StagePlan, needed: dict[str, list[Dim]]
) -> None:
    """Check the rounded-up axes of `plan`.  If reads need a larger buffer of a root stage, enter
    its extents in `needed`.
    """
    if not plan.rounded:
        return
    facts = plan.context()
    _check_own_memory(plan, facts)
    rounded = plan.rounded
    first = plan.body[0]
    roots = first.sources if isinstance(first, Reduce) else plan.body
    for root in roots:
        for node in post_order(root):
            if isinstance(node, Binary) and node.op in _DIVISIONS and not isinstance(node.b, Const):
                raise _error(
                    plan, f"{node} divides by something that is not known outside of the domain"
                )
        for load, conds in guarded_loads(root):
            vars_used = free_vars(load)
            for c in conds:
                vars_used |= free_vars(c)
            if not vars_used & rounded:
                continue  # some point inside the domain reads the same element
            ctx = facts
            for c in conds:
                if not any(isinstance(n, Load) for n in post_order(c)):
                    ctx = ctx.assuming(substitute(c, plan.points))
            _check_read(state, plans, plan, load, ctx, needed)


def _error(plan: StagePlan, why: str) -> ScheduleError:
    names = ", ".join(sorted(a.name for a in plan.stage.compute.axis if a.var in plan.rounded))
    return ScheduleError(
        f"cannot round up axis {names} of {plan.stage.name}: {why}; use tail='peel' or 'guard', or "
        "give the tensor "
        "room with transform_layout"
    )


def _check_own_memory(plan: StagePlan, facts: Context) -> None:
    """Check that the caller's array for an output contains the points past the domain."""
    if not plan.stage.is_output:
        return
    for n, (axis, region) in enumerate(zip(plan.stage.compute.axis, plan.regions, strict=True)):
        if axis.var in plan.rounded:
            _, end = capacity(plan.stage.layout, n, axis.extent)
            last = add(region.start, dim_expr(plan.spans[axis.var]))
            if not can_prove(last <= dim_expr(end), facts):
                raise _error(plan, "it is an output and the caller's array ends with the domain")


def _check_read(
    state: State,
    plans: Mapping[str, StagePlan],
    plan: StagePlan,
    load: Load,
    ctx: Context,
    needed: dict[str, list[Dim]],
) -> None:
    name, number = state.tensors[read_of(load)]
    producer = state.stages[name]
    if isinstance(producer.attach, At) and not producer.is_output and producer.name not in plans:
        # The region of an attached producer contains these reads, since it is computed from them.
        if any(needs_guard(n) for i in load.indices for n in post_order(i)):
            raise _error(plan, f"it reads {load}, whose index depends on data")
        for scan, part in _parts_of_scans(state, plans, name):
            if scan == plan.stage.name:  # the scan's own memory is rounded up, too
                continue
            raise _error(
                plan,
                f"{name} grows with it and reads the steps of {scan}, of which only the part "
                f"{part} is there",
            )
        return
    own = producer.op.outputs[number].shape
    for n, index in enumerate(load.indices):
        value = simplify(substitute(index, plan.points), ctx)
        first, end = capacity(producer.layout, n, own[n])
        if any(map(needs_guard, post_order(value))) or not can_prove(value >= first, ctx):
            raise _error(plan, f"the read {load} may lie before the start of {name}")
        if can_prove(value < dim_expr(end), ctx):
            continue
        last = _last(plans, plan, value, ctx)
        # a producer in `plans` is a scan: it is allocated before the stages that compute its steps
        is_fixed = producer.is_placeholder or producer.is_output or name in plans
        is_fixed = is_fixed or (isinstance(producer.op, Extern) and number > 0)
        if is_fixed or last is None:
            raise _error(plan, f"the read {load} may lie past the end of {name}")
        sizes = needed.setdefault(name, [0] * len(own))
        sizes[n] = larger(sizes[n], total((last, 1)))


def _parts_of_scans(
    state: State, plans: Mapping[str, StagePlan], name: str
) -> Iterator[tuple[str, str]]:
    """The scans around stage `name` that hold only a part of their domain, each with the extents of
    the part as text.
    """
    for scan, plan in plans.items():
        if plan.stage.recurrence is None or name not in state.inside_scan(scan):
            continue
        pairs = zip(plan.regions, plan.stage.compute.axis, strict=True)
        if not all(same_dim(as_dim(r.extent), a.extent) for r, a in pairs):
            yield scan, " x ".join(str(r.extent) for r in plan.regions)


def _last(plans: Mapping[str, StagePlan], plan: StagePlan, value: Expr, ctx: Context) -> Dim | None:
    """The largest value of the index `value` of `plan`, or None if it is not known."""
    loops = [x for x in (*loops_around(plans, plan), *plan.loops) if not x.is_unit]
    symbolic = [x.extent for x in loops if isinstance(x.extent, Expr)]
    if not symbolic:
        return interval(value, ctx).hi
    for extent in symbolic:
        ctx = ctx.assuming(extent >= 1)  # with extent 0 nothing is read
    ends = eliminate(value, {x.var: (0, x.last) for x in loops}, ctx)
    known = {v for extent in symbolic for v in free_vars(extent)}
    return as_dim(ends[1]) if ends is not None and free_vars(ends[1]) <= known else None
