"""Lowering of scans: special rules for computes that read their own results.

for t in T:                                  # memory for all steps, or for the last ones
    if t >= 1: h = product of s[t - 1] and W         # a stage inside, skipped in the given steps
    s[t] = first[0] if t < 1 else tanh(h + x[t])
"""

from __future__ import annotations

from collections.abc import Mapping

from tilesmith.ir.context import Context
from tilesmith.ir.expr import Expr, const
from tilesmith.ir.simplify import interval, simplify
from tilesmith.support.errors import ScheduleError

from .lower_plan import Region, StagePlan, reads
from .lower_region import first_read
from .relations import dim, dim_expr
from .state import At, StageState, State


def whole_steps(stage: StageState, regions: tuple[Region, ...]) -> tuple[Region, ...]:
    """The region of a scan: all steps, and all indices along mixed axes (`Recurrence.mixed`)."""
    recurrence = stage.recurrence
    if recurrence is None:
        return regions
    return tuple(
        Region(const(0), dim(a.extent)) if n == 0 or n in recurrence.mixed else r
        for n, (r, a) in enumerate(zip(regions, stage.compute.axis, strict=True))
    )


def step_condition(state: State, plans: Mapping[str, StagePlan], stage: StageState) -> Expr | None:
    """The condition under which a stage inside a scan runs: the current step is not one of the
    given first steps.  None for a stage that is not inside a scan.
    """
    place = stage.attach
    assert isinstance(place, At)
    recurrence = state.stages[place.stage].recurrence
    if recurrence is None or stage.name not in state.inside_scan(place.stage):
        return None
    target = plans[place.stage]
    return target.points[target.stage.compute.axis[0].var] >= recurrence.given


def fold_steps(
    state: State, plans: Mapping[str, StagePlan], plan: StagePlan, facts: Context
) -> None:
    """Keep only the last steps of a scan in memory if its readers read no other steps.

    Raises ScheduleError if fold_storage requests too few steps.
    """
    stage = plan.stage
    recurrence = stage.recurrence
    if recurrence is None or stage.is_output:
        return
    axis, name = stage.compute.axis[0], stage.name
    needed: int | None = recurrence.lag + 1
    for reader in plans.values():
        if reader is plan or not reads(state, reader, name):
            continue
        first = first_read(state, plans, reader, name)
        count = None if first is None else simplify(dim_expr(axis.extent) - first, facts)
        most = None if count is None else interval(count, facts).hi
        needed = None if most is None or needed is None else max(needed, int(most))
    asked = dict(stage.folds).get(0)
    whole = axis.extent
    if asked is not None and (needed is None or asked < needed):
        raise ScheduleError(
            f"fold_storage of {name}: steps and readers need the last {needed or whole} steps; "
            f"expected a factor of at least that, found {asked}"
        )
    if needed is None or axis.var in plan.rounded:
        return
    factor = asked or 1 << (needed - 1).bit_length()
    if not isinstance(whole, int) or factor < whole:
        plan.folds = (factor, *(None for _ in stage.compute.axis[1:]))
