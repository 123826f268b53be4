"""Accumulators of reductions, made the same way for every kind of target."""

from __future__ import annotations

from tilesmith.ir.loop_tables import Scope
from tilesmith.te.schedule import Schedule
from tilesmith.te.stage import Stage, StageLike


def accumulator(s: Schedule, sums: StageLike, out: StageLike, scope: Scope) -> Stage:
    """The stage that accumulates the reduction `sums` in `scope`, inside the loops of `out`:
    itself, or its elementwise reader.
    """
    stage = s[sums]
    if stage.name == s[out].name:
        return s[s.cache_write(stage.op.outputs[0], scope)]
    stage.set_scope(scope)
    return stage
