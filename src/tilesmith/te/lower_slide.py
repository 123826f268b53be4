"""Lowering of store_at: each iteration computes only values that no earlier one has computed.

    allocate B[4]:                               # the window of 3, rounded up to a power of two
        for y in -2 .. n-1:                      # two iterations ahead of the reader's first
            B[(y + 2) % 4] = f(y + 2)
            if y >= 0:
                C[y] = B[y % 4] + B[(y + 1) % 4] + B[(y + 2) % 4]

The elements that readers need in iteration `v` are a *window*: in each dimension those from `s(v)`
on.  If `s` never decreases and advances by at most `a`, the last `a` elements of the window contain
all new ones.  Only those are computed.  The rest of the first window is computed in negative
iterations, in which the readers do not run yet.  Each dimension moves with at most one loop, and
each loop moves at most one dimension.  So the new elements are a box, the product of the new ranges
of all dimensions.  If a loop moves no dimension, its first iteration computes all elements.

Along the outermost of the loops, elements before the window are never read again.  Their memory is
reused: the index is taken modulo the window's size.
"""

from __future__ import annotations

from collections.abc import Mapping

from tilesmith.ir.expr import Expr, Var, const, free_vars, select, substitute
from tilesmith.ir.simplify import simplify
from tilesmith.support.errors import ScheduleError

from .lower_plan import NOT_AHEAD, Region, StageLoop, StagePlan, make_plan, reads
from .lower_region import Ranges, hull
from .slopes import slope
from .state import At, StageState, State


def ahead_of_readers(
    state: State, plans: Mapping[str, StagePlan], name: str, target: StagePlan, depth: int
) -> Mapping[Var, int]:
    """The numbers of negative iterations in which readers of stage `name` run: one number for each
    loop along which a reader slides, up to loop number `depth` of `target`.
    """
    counts: dict[Var, int] = {}
    for plan in plans.values():
        if plan.ahead and reads(state, plan, name):
            for v, count in plan.ahead.items():
                counts[v] = max(count, counts.get(v, 0))
    around = {x.var for x in target.loops[: depth + 1]} | target.ahead.keys()
    return {v: n for v, n in counts.items() if v in around} or NOT_AHEAD


def slid(
    state: State,
    plans: Mapping[str, StagePlan],
    stage: StageState,
    body: tuple[Expr, ...],
    window: tuple[Region, ...],
    ahead: Mapping[Var, int],
) -> StagePlan:
    """The plan of `stage`, whose memory is allocated outside of the loops in which it is computed.

    window: the region that its readers need in one iteration.
    ahead: the result of `ahead_of_readers`.

    Raises ScheduleError if the window does not move as `store_at` requires, or if `stage` is
    rounded up.
    """
    place = stage.attach
    assert isinstance(place, At)
    target = plans[place.stage]
    slide = _Slide(state, stage, target, window, ahead)
    storage = slide.storage(plans, ahead)
    folds = slide.folds(storage)
    regions = slide.regions()
    facts = target.context(target.depth(place.axis), slide.ahead)
    plan = make_plan(stage, body, regions, facts)
    if plan.rounded:
        names = ", ".join(sorted(a.name for a in stage.compute.axis if a.var in plan.rounded))
        raise ScheduleError(
            f"cannot round up axis {names} of {stage.name}: the memory past the end holds values "
            "that are kept for later iterations; use tail='peel' or 'guard', or compute_at "
            "without store_at"
        )
    for loop in slide.loops:
        if loop.var not in set(slide.moving):
            plan.conditions += (loop.var <= -ahead.get(loop.var, 0),)
    plan.ahead, plan.storage, plan.folds = slide.ahead, storage, folds
    for v in slide.moving:
        target.early[v] = max(target.early.get(v, 0), slide.ahead[v])
    return plan


class _Slide:
    """The movement of the window that the readers of a stage need, as loops advance.

    loops: the loops that carry values, outermost first.
    moved: the loop with which each dimension moves.
    ahead: as in `StagePlan`.
    """

    def __init__(
        self,
        state: State,
        stage: StageState,
        target: StagePlan,
        window: tuple[Region, ...],
        ahead: Mapping[Var, int],
    ) -> None:
        self.state, self.stage, self.target, self.window = state, stage, target, window
        self.kept = state.kept_over(stage.name)
        self.loops = [x for x in target.loops if x.name in self.kept and not x.is_unit]
        self.ahead = {**dict.fromkeys((x.var for x in self.loops), 0), **ahead}
        self.moved = self._moved(window)
        self.moving = [x.var for x in self.moved.values()]

    def _moved(self, window: tuple[Region, ...]) -> dict[int, StageLoop]:
        """The loop with which a dimension moves, by the number of the dimension."""
        moved: dict[int, StageLoop] = {}
        for n, region in enumerate(window):
            by = [x for x in self.loops if x.var in free_vars(region.start)]
            if not by:
                continue
            loops = " and ".join(x.name for x in by)
            if len(by) > 1:
                raise self._error(
                    f"dimension {n} moves with the loops {loops}; store it inside {by[-2].name}, "
                    "or fuse them"
                )
            if by[0] in moved.values():
                raise self._error(f"the loop {loops} moves several dimensions; store it at {loops}")
            moves = slope(region.start, by[0].var)
            if moves is None or moves[0] < 0 < moves[1] or moves == (0, 0):
                raise self._error(
                    f"dimension {n} begins at {region.start}, which does not move in one "
                    f"direction as {loops} grows; store it at {loops}"
                )
            moved[n] = by[0]
        return moved

    def storage(
        self, plans: Mapping[str, StagePlan], ahead: Mapping[Var, int]
    ) -> tuple[Region, ...]:
        """The region that contains the windows of all iterations."""
        if not self.moved:
            return self.window
        place = self.stage.attach
        assert isinstance(place, At)
        target, name = self.target, self.stage.name
        inside = target.context(target.depth(place.axis), ahead)
        outside = target.context(target.depth(self.kept[0]) - 1, ahead)
        ranges: Ranges = {x.var: (-ahead.get(x.var, 0), x.last) for x in self.loops}
        rounded = any(p.rounded for p in plans.values() if reads(self.state, p, name))
        stored = list(self.window)
        for n in self.moved:
            domain = self.stage.op.shape[n]
            part = hull(self.window[n], ranges, domain, inside, outside, rounded)
            if part is None:
                raise self._error(
                    "a reader rounds up an axis and so reads past the end, but how much is not a "
                    "constant; use tail='peel' or 'guard' in the reader"
                )
            stored[n] = part
        return tuple(stored)

    def regions(self) -> tuple[Region, ...]:
        """The regions that one iteration computes.  Also adds to `ahead` the negative iterations in
        which the rest of the first window is computed.
        """
        return tuple(
            self._new(r, self.moved[n]) if n in self.moved else r for n, r in enumerate(self.window)
        )

    def _new(self, window: Region, loop: StageLoop) -> Region:
        """The new part of `window`: the part that one iteration of `loop` computes."""
        size, start, v = _size(window), window.start, loop.var
        growth = slope(start, v)
        assert growth is not None
        least, most = growth
        rises, new = most > 0, min(max(most, -least), size)
        begin = -self.ahead[v]  # the readers' first iteration
        self.ahead[v] -= (new - size) // new
        first = substitute(start, {v: const(begin)})
        known = substitute(start, {v: v - 1})  # start of the window one iteration ago
        if least == most:  # the window moves as fast in the negative iterations
            known = first if rises else first + size
        else:
            start = select(v >= begin, start, first + (v - begin) * (new if rises else -new))
            known = (
                select(v > begin, known + size, first)
                if rises
                else (select(v > begin, known, first + size))
            )
        if rises:
            return Region(simplify(start + (size - new)), new, first=simplify(known))
        return Region(simplify(start), new, end=simplify(known))

    def folds(self, storage: tuple[Region, ...]) -> tuple[int | None, ...]:
        """Modulus of the indices in memory, per dimension.

        Only the dimension of the outermost loop is folded.  Along the outermost loop, elements
        before the window are never read again.  An inner loop starts again in each iteration of the
        outermost loop, and then all of its windows are needed again.
        """
        stage = self.stage
        asked = dict(stage.folds)
        folds: list[int | None] = [None] * len(storage)
        folded = [n for n, loop in self.moved.items() if loop is self.loops[0]]
        for n in folded:
            size, room, axis = _size(self.window[n]), storage[n].extent, stage.roots[n]
            factor = asked.pop(n, 1 << (size - 1).bit_length())
            if factor < size:
                raise ScheduleError(
                    f"fold_storage of {stage.name}: its readers need {size} indices of {axis} at a "
                    f"time; expected a factor of at least {size}, found {factor}"
                )
            if not isinstance(room, int) or factor < room:
                folds[n] = factor
        for n in asked:
            moves = ", ".join(stage.roots[n] for n in folded) or "none does"
            raise ScheduleError(
                f"fold_storage of {stage.name}: values along {stage.roots[n]} stay in use; "
                "expected the dimension that moves with the outermost loop between memory and "
                f"computation, found {stage.roots[n]} ({moves})"
            )
        return tuple(folds)

    def _error(self, why: str) -> ScheduleError:
        name, place = self.stage.name, self.stage.attach
        return ScheduleError(
            f"{name} is computed at {place} and cannot be stored at {self.stage.store}: {why}"
        )


def _size(region: Region) -> int:
    assert isinstance(region.extent, int), "a region that moves has a constant extent"
    return region.extent
