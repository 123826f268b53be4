"""Schedules for all sizes at once.

Rules decide for one size: the one that is expected.  The steps of that schedule name stages and
axes, not extents.  So the same steps schedule the expressions of all sizes: tiles stay whole, and
loops get tails.  A loop that is a vector or unrolled at its expected extent becomes a loop of such
vectors, or a plain loop (`StageState.is_adaptable`).

The expressions of all sizes may have a stage more, such as padding that the expected size does
without.  No step is about it, and it is computed where it is read.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from tilesmith.ir.expr import Var
from tilesmith.ir.symbols import expected, expected_size, value_of
from tilesmith.loop.nodes import For, Func, Stmt, Store
from tilesmith.loop.visit import children
from tilesmith.te.schedule import Schedule, create_schedule
from tilesmith.te.steps.base import Step
from tilesmith.te.tensor import Compute, Tensor

from .group import Group

_MOST = 32
"""The most often that a kernel may compute an element on average: many times the halo of a tile."""


def for_all_sizes(schedule: Schedule, group: Group) -> Schedule:
    """The steps of `schedule`, which is for `group` at its expected sizes, on the expressions of
    `group`.

    Raises ScheduleError if a step is illegal for an extent that is not known.
    """
    s = applied(schedule.steps, group.outputs)
    known = {stage.name for stage in schedule.stages}
    for stage in s.stages:
        if stage.name not in known and isinstance(stage.op, Compute) and not stage.op.reduce_axis:
            stage.compute_inline()
    stages = {n: replace(stage, is_adaptable=True) for n, stage in s.state.stages.items()}
    return Schedule(s.ops, replace(s.state, stages=stages), s.steps)


def explodes(func: Func, group: Group) -> bool:
    """Whether the kernel `func` of `group` computes far more than there is: a part of a producer
    has no constant bound, and all of the producer is computed for each tile.
    """
    extents = ((a.extent for a in (*s.axis, *s.reduce_axis)) for s in group.stages)
    return stores(func) > _MOST * sum(map(expected_size, extents))


def stores(func: Func) -> int:
    """How many stores a loop nest executes at the expected sizes, whatever its conditions say."""
    values = {p: expected(p) for p in func.params if isinstance(p, Var)}

    def inside(s: Stmt) -> int:
        if isinstance(s, Store):
            return 1
        if not isinstance(s, For):
            return sum(map(inside, children(s)))
        values[s.var] = 0
        try:
            times = max(value_of(s.extent, values), 0)
        except (KeyError, ValueError):  # decided by data
            times = 1
        return times * inside(s.body)

    return inside(func.body)


def applied(steps: Iterable[Step], outputs: Iterable[Tensor]) -> Schedule:
    """The schedule of `outputs` that `steps` make, which were chosen for expected sizes."""
    s = create_schedule([t.op for t in outputs])
    for step in steps:
        s.apply(step)
    return s
