"""Schedules for all sizes at once.

Rules decide for one size: the one that is expected.  The steps of that schedule name stages and
axes, not extents.  So the same steps schedule the expressions of all sizes: tiles stay whole, and
loops get tails.  A loop that is a vector or unrolled at its expected extent becomes a loop of such
vectors, or a plain loop (`StageState.is_adaptable`).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from tilesmith.graph.nodes import Graph
from tilesmith.te.schedule import Schedule, create_schedule
from tilesmith.te.steps.base import Step
from tilesmith.te.tensor import Tensor

from .group import Group, group_tensors


def for_all_sizes(schedule: Schedule, body: Graph) -> tuple[Schedule, Group]:
    """The steps of `schedule`, which is for `body` at its expected sizes, on the expressions of
    `body`.

    Raises ScheduleError if a step is illegal for an extent that is not known.
    """
    group = group_tensors(body)
    s = applied(schedule.steps, group.outputs)
    stages = {n: replace(stage, is_adaptable=True) for n, stage in s.state.stages.items()}
    return Schedule(s.ops, replace(s.state, stages=stages), s.steps), group


def applied(steps: Iterable[Step], outputs: Iterable[Tensor]) -> Schedule:
    """The schedule of `outputs` that `steps` make, which were chosen for expected sizes."""
    s = create_schedule([t.op for t in outputs])
    for step in steps:
        s.apply(step)
    return s
