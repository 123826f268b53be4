"""Lowering: the places of a stage's guards.

A guard is placed just inside the innermost loop on which it depends.  But stages computed in that
loop may have to run where the guard is false: those that slide ahead, and those that all threads of
a block compute together.  Then it is placed after them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from tilesmith.ir.expr import Var
from tilesmith.loop.nodes import If, Stmt

from .lower_plan import PlacedGuard, StagePlan
from .lower_threads import is_shared
from .relations import Guard
from .state import State


def with_inner_guards(state: State, plan: StagePlan) -> StagePlan:
    """`plan` with its guards moved after the stages that all threads of a block compute together: a
    guard may be true for some of the threads only.
    """
    depth = -1
    for stage in state.stages.values():
        if is_shared(stage):
            for place in state.ancestors(stage.name):
                if place.stage == plan.stage.name:
                    depth = max(depth, plan.depth(place.axis))
    if all(g.depth > depth for g in plan.guards):
        return plan
    guards = (g if g.depth > depth else replace(g, depth=depth, is_inner=True) for g in plan.guards)
    return replace(plan, guards=tuple(guards), contexts={})


def is_late(plan: StagePlan, g: PlacedGuard, entry: int) -> bool:
    """Whether a guard moves to loop number `entry`: stages that slide run before it is true."""
    return g.depth <= entry and g.depth >= 0 and not plan.is_closing(g)


def entered(plan: StagePlan, depth: int, ahead: Mapping[Var, int], body: Stmt) -> Stmt:
    """`body`, in loop number `depth` of `plan`, restricted to iterations from `-ahead` on."""
    inside = [x.var for x in plan.loops[: depth + 1]]
    conditions = [v >= -ahead.get(v, 0) for v in inside if plan.early.get(v, 0) > ahead.get(v, 0)]
    guards = [PlacedGuard(Guard(c, "peel"), depth, is_reduce=False) for c in conditions]
    if not any(v in ahead for v in inside):
        guards += [g for g in plan.guards if is_late(plan, g, depth)]
    return guarded(body, guards)


def guarded(body: Stmt, guards: list[PlacedGuard]) -> Stmt:
    """`body` inside guards, the first one outermost."""
    for g in reversed(guards):
        body = If(g.guard.cond, body, likely=g.guard.tail != "guard")
    return body
