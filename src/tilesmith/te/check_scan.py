"""Checks of schedules of scans: each step must run after the steps that it reads.

- The loops over time run in sequence, in the order of time.
- A loop outside of the loops over time runs over an axis along which each step reads the state only
  at its own index.
- Stages that read the state are computed inside the loops over time, or inlined.
"""

from __future__ import annotations

from tilesmith.ir.loop_tables import LOOP_KINDS
from tilesmith.support.errors import ScheduleError

from .relations import SkewRelation, SplitRelation
from .state import At, StageState, State


def check_scan(state: State, stage: StageState) -> None:
    """Raises ScheduleError if a step of the scan `stage` would run too early."""
    recurrence = stage.recurrence
    assert recurrence is not None
    name, time = stage.name, stage.roots[0]
    carried = f"a step of {name} reads what the one before it wrote"
    origins = stage.origins()
    order = [time]
    for rel in stage.relations:
        used = (*rel.parents, rel.by) if isinstance(rel, SkewRelation) else rel.parents
        of_time = [axis for axis in used if time in origins[axis]]
        if not of_time:
            continue
        if not isinstance(rel, SplitRelation):
            raise ScheduleError(
                f"cannot fuse or skew with the time axis {name}.{of_time[0]}: {carried}; split it, "
                "or use other axes"
            )
        position = order.index(rel.parent)
        order[position : position + 1] = rel.made
    over_time = [leaf for leaf in stage.leaves if time in origins[leaf]]
    if over_time != order:
        raise ScheduleError(
            f"the loops over time of {name} must stand in the order {', '.join(order)}, found "
            f"{', '.join(over_time)}: {carried}"
        )
    for leaf in over_time:
        kind = stage.kind(leaf)
        if not LOOP_KINDS[kind].is_ordered:
            raise ScheduleError(
                f"loop {name}.{leaf} runs over time and cannot be {kind}: {carried}; "
                "use another axis"
            )
    mixed = {stage.roots[n] for n in recurrence.mixed}
    last = stage.leaves.index(over_time[-1])
    for leaf in stage.leaves[:last]:
        if leaf not in over_time and origins[leaf] & mixed:
            raise ScheduleError(
                f"loop {name}.{leaf} cannot be outside of loop {over_time[-1]} over time: a step "
                f"reads the state at other positions of {leaf}, which must all be there; reorder "
                "it inside"
            )
    if stage.store is not None:
        raise ScheduleError(
            f"cannot store {name} further out than it is computed: each time it is, its steps "
            "begin anew; compute it further out"
        )
    if stage.buffers > 1:
        raise ScheduleError(f"cannot double-buffer {name}: {carried}, not the next one")
    _check_inside(state, stage, over_time[-1])


def _check_inside(state: State, scan: StageState, time: str) -> None:
    """Checks that stages that read the state run once for each step."""
    later = dict.fromkeys(state.stages)
    for name, stage in state.stages.items():
        del later[name]
        copies = [n for n, _ in stage.reads if n in later and state.stages[n].recurrence is None]
        if copies:
            raise ScheduleError(
                f"{name} reads the state of {scan.name} and cannot read a copy of it, {copies[0]}"
            )
    inside = state.inside_scan(scan.name)
    for name in inside:
        stage = state.stages[name]
        place = stage.attach
        if stage.store is not None or stage.buffers > 1:
            raise ScheduleError(
                f"{name} reads the state of {scan.name}: its values are new in each step, so it "
                "cannot be stored further out than it is computed, nor be double-buffered"
            )
        if place == "inline" or (isinstance(place, At) and place.stage in inside):
            continue
        leaves = scan.leaves
        fits = isinstance(place, At) and place.stage == scan.name and place.axis in leaves
        if not fits or leaves.index(place.axis) < leaves.index(time):  # type: ignore[union-attr]
            raise ScheduleError(
                f"{name} reads the state of {scan.name} and cannot be computed at {place}: "
                f"expected loop {scan.name}.{time} over time, one inside it, or compute_inline"
            )
