"""Lowering: the region of a producer that is read in one iteration of a loop."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from tilesmith.ir import expr as ir
from tilesmith.ir.bounds import eliminate
from tilesmith.ir.context import Context
from tilesmith.ir.expr import Expr, Var, const, free_vars, maximum, minimum, post_order, substitute
from tilesmith.ir.intrinsics import with_positions
from tilesmith.ir.simplify import can_prove, interval, simplify
from tilesmith.ir.symbols import expected
from tilesmith.ir.types import Dim
from tilesmith.support.errors import ScheduleError

from .lower_plan import NOT_AHEAD, Region, StageLoop, StagePlan, read_of, reads
from .lower_threads import is_shared, thread_loops
from .relations import add, dim_expr
from .state import At, State
from .tensor import Extern

_WIDEST = 4
"""Largest constant extent of a region, as a multiple of a symbolic domain's expected extent."""

Bounds = tuple[Expr, Expr]
Ranges = dict[Var, tuple[Expr | int, Expr | int]]


def region(
    state: State,
    plans: Mapping[str, StagePlan],
    name: str,
    at: At,
    ahead: Mapping[Var, int] = NOT_AHEAD,
    condition: Expr | None = None,
) -> tuple[Region, ...]:
    """The region of stage `name` that one iteration of the loop `at` needs, per dimension.

    ahead: numbers of negative iterations in which the region is needed, as in `StagePlan`.
    condition: the condition under which the region is needed and its readers run.
    """
    target = plans[at.stage]
    depth = target.depth(at.axis)
    ctx = target.context(depth, ahead)
    if condition is not None:
        ctx = ctx.assuming(condition)
    op = state.stages[name].compute
    bounds: list[Bounds | None] = []
    first, rounded = True, False
    for plan in plans.values():
        if reads(state, plan, name):
            read = _bounds_of_reads(state, plans, plan, name, at.stage, depth, ctx)
            bounds = (
                read if first else [_union(a, b, ctx) for a, b in zip(bounds, read, strict=True)]
            )
            first = False
            rounded = rounded or bool(plan.rounded)
    if first:
        raise ScheduleError(
            f"{name} cannot be computed at {at}: no stage reads it there (any more); leave it at "
            "the root, or compute_at a stage that reads it"
        )
    slides = state.stages[name].store is not None
    regions = tuple(
        _region(b, a.extent, ctx, rounded, slides, is_step=condition is not None)
        for b, a in zip(bounds, op.axis, strict=True)
    )
    if None in regions:
        raise ScheduleError(
            f"{name} cannot be computed at {at}: a reader there rounds up an axis and so reads "
            "past the end, but how "
            "much is not a constant; use tail='peel' or 'guard' in the reader"
        )
    return tuple(r for r in regions if r is not None)


def first_read(
    state: State, plans: Mapping[str, StagePlan], reader: StagePlan, name: str
) -> Expr | None:
    """The smallest index in dimension 0 at which `reader` reads stage `name`; None if unknown."""
    top = reader.stage.name
    own = state.stages[name].attach
    for link in state.ancestors(reader.stage.name):
        if isinstance(own, At) and top == own.stage:
            break
        top = link.stage
    depth = plans[top].depth(own.axis) if isinstance(own, At) else -1
    ctx = plans[top].context(depth)
    bounds = _bounds_of_reads(state, plans, reader, name, top, depth, ctx)[0]
    return None if bounds is None else bounds[0]


def hull(
    part: Region,
    ranges: Ranges,
    domain: Dim,
    facts: Context,
    ctx: Context,
    rounded: bool,
) -> Region | None:
    """The region that contains `part` while variables run over `ranges`.

    facts, ctx: facts that hold inside the loops over `ranges`, and facts that hold outside.
    rounded: whether the result must contain elements past the end of `domain`.  If it can't, the
        result is None.
    """
    last = add(part.start, dim_expr(part.extent) - 1)
    bounds = _eliminated((part.start, last), [(ranges, facts)], ctx)
    return _region(bounds, domain, ctx, rounded)


def regions_read(
    state: State,
    plans: Mapping[str, StagePlan],
    reader: StagePlan,
    depth: int,
    name: str,
    of: StagePlan | None = None,
) -> tuple[Region, ...]:
    """The region of stage `name` that `reader` itself reads in one iteration of loop number
    `depth`.

    of: the stage with that loop, inside which `reader` is computed.  None: the loop is one of
        `reader`.
    """
    owner = of or reader
    ctx = owner.context(depth)
    bounds = _bounds_of_reads(
        state, plans, reader, name, owner.stage.name, depth, ctx, with_data=True
    )
    shape = state.stages[name].op.shape
    regions = [_region(b, n, ctx, rounded=False) for b, n in zip(bounds, shape, strict=True)]
    return tuple(r for r in regions if r is not None)


def _region(
    bounds: Bounds | None,
    domain: Dim,
    ctx: Context,
    rounded: bool,
    slides: bool = False,
    is_step: bool = False,
) -> Region | None:
    """The region that contains the symbolic `bounds`.  Its extent is constant, or it is the whole
    domain.

    For a symbolic domain, the constant may exceed the expected extent, because it comes from the
    range of a symbol.  The region is the whole domain if the constant is far larger than the
    expected extent, or if the bounds equal those of the domain.

    A reader that is `rounded` up reads past the domain.  The region must contain these reads; if it
    can't, the result is None.  A region that `slides` begins without a clamp if that makes the
    region no larger.  The region of a step of a scan (`is_step`) is no wider than the regions of
    its readers, which read the state at their own index.
    """
    whole = Region(const(0), domain)
    if bounds is None:
        return whole
    lo, hi = bounds
    size = _most(lo, hi, ctx)
    if size is None:
        return None if rounded else whole
    size = max(int(size), 1)
    if isinstance(domain, int) and size >= domain:
        if not rounded:
            return whole
        least, most = interval(lo, ctx).lo, interval(hi, ctx).hi
        # The region begins at 0, because readers may clamp their indices to 0.
        if not is_step and least is not None and least >= 0 and most is not None:
            return Region(const(0), max(int(most) + 1, domain))
    if not isinstance(domain, int) and not rounded and _is_useless(size, lo, hi, domain, ctx):
        return whole
    if slides:
        wider = (simplify(low, ctx) for low in _unclamped(lo))
        lo = next((low for low in wider if _most(low, hi, ctx) == size), lo)
    return Region(lo, size)


def _is_useless(size: int, lo: Expr, hi: Expr, domain: Expr, ctx: Context) -> bool:
    """Whether `size`, a bound on the extent of `lo..hi`, is too far above the expected extent."""
    usual = max(expected(domain), 1)
    if size <= usual:
        return False
    return size > _WIDEST * usual or (lo is const(0) and can_prove(hi + 1 >= domain, ctx))


def _most(lo: Expr, hi: Expr, ctx: Context) -> int | None:
    """Upper bound on the extent of `lo..hi`, if there is one.

    `lo` and `hi` may be minima or maxima, because indices were clamped at a repeated border or the
    regions of several reads were united.  Then the distances between their operands bound the
    distance between the ends.
    """
    known: dict[Bounds, int | None] = {}

    def most(lo: Expr, hi: Expr) -> int | None:
        ends = lo, hi
        if ends not in known:
            extent = simplify(hi - lo + 1, ctx)
            size = extent.value if isinstance(extent, ir.Const) else interval(extent, ctx).hi
            parts = [None if size is None else int(size)]
            if isinstance(hi, ir.Binary) and hi.op in ("min", "max"):
                parts.append(_either(hi.op == "max", most(lo, hi.a), most(lo, hi.b)))
            if isinstance(lo, ir.Binary) and lo.op in ("min", "max"):
                parts.append(_either(lo.op == "min", most(lo.a, hi), most(lo.b, hi)))
            known[ends] = min((p for p in parts if p is not None), default=None)
        return known[ends]

    return most(lo, hi)


def _either(both: bool, a: int | None, b: int | None) -> int | None:
    """Upper bound on the larger of two extents if `both`, else on the smaller one.  `a` and `b` are
    upper bounds on the two extents.
    """
    if a is None or b is None:
        return None if both else a if b is None else b
    return max(a, b) if both else min(a, b)


def _unclamped(e: Expr) -> Iterator[Expr]:
    """Lower bounds of `e`.  Each bound replaces every maximum in `e` by one of the maximum's
    operands.
    """
    if isinstance(e, ir.Binary) and e.op == "max":
        yield from _unclamped(e.a)
        yield from _unclamped(e.b)
    elif isinstance(e, ir.Binary) and e.op == "min":
        for a in _unclamped(e.a):
            yield from (minimum(a, b) for b in _unclamped(e.b))
    else:
        yield e


def _union(a: Bounds | None, b: Bounds | None, ctx: Context) -> Bounds | None:
    if a is None or b is None:
        return None
    if a is b:
        return a
    lo = (
        a[0]
        if can_prove(a[0] <= b[0], ctx)
        else b[0]
        if can_prove(b[0] <= a[0], ctx)
        else minimum(a[0], b[0])
    )
    hi = (
        a[1]
        if can_prove(a[1] >= b[1], ctx)
        else b[1]
        if can_prove(b[1] >= a[1], ctx)
        else maximum(a[1], b[1])
    )
    return lo, hi


def _bounds_of_reads(
    state: State,
    plans: Mapping[str, StagePlan],
    reader: StagePlan,
    name: str,
    target: str,
    depth: int,
    ctx: Context,
    with_data: bool = False,
) -> list[Bounds | None]:
    """Bounds of the indices at which `reader` reads stage `name` inside loop number `depth` of
    `target`.

    with_data: whether an index that depends on data, but on no loop inside, is its own lower and
        upper bound.  Otherwise its bounds are unknown.
    """
    if isinstance(reader.stage.op, Extern):  # loops that a user wrote may read anything
        return [None] * len(state.stages[name].op.shape)
    inside = depth if reader.stage.name == target else -1
    mapping, ranges, facts = _relaxed(reader, inside)
    outer = _enclosing(state, plans, reader, target, depth)
    if depth >= 0 and is_shared(state.stages[name]):
        outer += _threads_around(state, plans, At(target, plans[target].stage.leaves[depth]))
    cache: dict[Expr, Bounds | None] = {}

    def bounds(index: Expr) -> Bounds | None:
        if index not in cache:
            cache[index] = _eliminated(_own(index), outer, ctx)
        return cache[index]

    def _own(index: Expr) -> Bounds | None:
        if isinstance(index, Var) and index in ranges:
            lo, hi = ranges[index]
            return _expr(lo), _expr(hi)
        if any(isinstance(n, ir.Load) for n in post_order(index)):
            if not with_data:
                return None
            first: dict[Expr, Expr] = {v: _expr(low) for v, (low, _) in ranges.items()}
            point = with_positions(substitute(index, mapping), lambda p: substitute(p, first))
            return (point, point) if not free_vars(point) & set(ranges) else None
        return eliminate(simplify(substitute(index, mapping), facts), ranges, facts)

    result: list[Bounds | None] = []
    for load in reader.reads:
        if state.tensors[read_of(load)][0] == name:
            of_load = [bounds(i) for i in load.indices]
            result = (
                [_union(a, b, ctx) for a, b in zip(result, of_load, strict=True)]
                if result
                else of_load
            )
    return result


def _expr(value: Expr | int) -> Expr:
    return const(value) if isinstance(value, int) else value


def _relaxed(reader: StagePlan, depth: int) -> tuple[dict[Expr, Expr], Ranges, Context]:
    """The values that the axes of `reader` take in the loops inside loop number `depth`.  Returns
    replacements for axis variables, ranges of variables, and facts.

    If all loops of an axis are inside, the axis stays a variable that runs over the axis's region.
    This range is exact even where tiles exceed the region.  Other axes are replaced by their value
    as a function of the loop variables.
    """
    stage = reader.stage
    origins = stage.origins()
    fixed: set[str] = set()
    for loop in reader.loops[: depth + 1]:
        if not loop.is_unit:
            fixed |= origins[loop.name]
    mapping: dict[Expr, Expr] = {}
    ranges: Ranges = {}
    facts = reader.context()
    starts = [r.start for r in reader.regions] + [const(0)] * len(stage.compute.reduce_axis)
    for root, axis, start in zip(stage.roots, stage.root_axes, starts, strict=True):
        if root in fixed:
            mapping[axis.var] = reader.points[axis.var]
        else:
            last = simplify(add(start, dim_expr(reader.spans[axis.var]) - 1), facts)
            ranges[axis.var] = (start, last)
            facts = facts.with_var(axis.var, start, last)
    for loop in reader.loops[depth + 1 :]:
        if not loop.is_unit:
            ranges[loop.var] = (0, loop.last)
    return mapping, ranges, facts


def _enclosing(
    state: State, plans: Mapping[str, StagePlan], reader: StagePlan, target: str, depth: int
) -> list[tuple[Ranges, Context]]:
    """The loops between `reader`'s nest and loop number `depth` of `target`, inner nests first."""
    result: list[tuple[Ranges, Context]] = []
    if reader.stage.name == target:
        return result
    for link in state.ancestors(reader.stage.name):
        plan = plans[link.stage]
        last = plan.depth(link.axis)
        first = depth + 1 if link.stage == target else 0
        loops: tuple[StageLoop, ...] = plan.loops[first : last + 1]
        ahead = reader.ahead
        ranges: Ranges = {x.var: (-ahead.get(x.var, 0), x.last) for x in loops if not x.is_unit}
        if ranges:
            result.append((ranges, plan.context(last, ahead)))
        if link.stage == target:
            break
    return result


def _threads_around(
    state: State, plans: Mapping[str, StagePlan], place: At
) -> list[tuple[Ranges, Context]]:
    """The loops from `place` outwards that are bound to threads, inner nests first.  Regions in
    shared memory span these loops, because such a region contains the elements that all threads
    need.
    """
    result: list[tuple[Ranges, Context]] = []
    for plan, last, loops in thread_loops(state, plans, place):
        if loops:
            result.append(({x.var: (0, x.last) for x in loops}, plan.context(last)))
    return result


def _eliminated(
    bounds: Bounds | None, outer: list[tuple[Ranges, Context]], ctx: Context
) -> Bounds | None:
    """`bounds` for all iterations of the enclosing loops, simplified."""
    for ranges, facts in outer:
        if bounds is None:
            return None
        lo, hi = eliminate(bounds[0], ranges, facts), eliminate(bounds[1], ranges, facts)
        bounds = (lo[0], hi[1]) if lo is not None and hi is not None else None
    return (simplify(bounds[0], ctx), simplify(bounds[1], ctx)) if bounds is not None else None
