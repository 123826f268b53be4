"""Lowering: loops that are bound to the blocks of a launch, and to the threads of a block.

A stage inside such loops may have loops that are bound to the same indices.  The existing threads
run these loops, each thread its own iterations.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from tilesmith.ir.expr import Var, compare, const, index_of
from tilesmith.ir.loop_tables import ALLOCATED, BOUND, LOOP_KINDS, SCOPES, THREADS, ForKind
from tilesmith.ir.simplify import can_prove
from tilesmith.ir.tensor_intrinsics import tensor_intrinsic
from tilesmith.loop.nodes import For, If, LetStmt, Stmt
from tilesmith.support.errors import ScheduleError

from .lower_plan import StageLoop, StagePlan, reads
from .lower_size import loops_around
from .relations import dim_expr
from .state import At, StageState, State


def is_shared(stage: StageState) -> bool:
    """Whether the threads of a block share the result of `stage`."""
    return stage.scope is not None and SCOPES[stage.scope].owner == "block"


def is_of_warp(stage: StageState) -> bool:
    """Whether the threads of a warp hold the result of `stage` together."""
    return stage.scope is not None and SCOPES[stage.scope].owner == "warp"


def by_warp(state: State, plans: Mapping[str, StagePlan], plan: StagePlan, body: Stmt) -> Stmt:
    """`body` in a loop of one iteration over the threads of a warp, so that the warp runs `body`
    once, together.

    Raises ScheduleError if loops of the stage or around it are bound to the threads of a warp.
    """
    lane = BOUND[THREADS[0]]
    own = next((loop.name for loop in plan.loops if loop.kind == lane and not loop.is_unit), "")
    around = threads_around(state, plans, plan).get(lane)
    if own or around is not None:
        name = own or (around.name if around else "")
        raise ScheduleError(
            f"{plan.stage.name} is in scope 'fragment', of which the {lane} of a warp hold a part "
            f"each: expected no loop over {lane} in it or around it, found {name}; compute it "
            "outside of that loop"
        )
    return For(Var("first"), const(0), const(1), lane, body)


def check_intrinsic(stage: StageState, name: str) -> None:
    """Raises ScheduleError if a whole warp runs the intrinsic `name` but the scope of `stage` is
    not `fragment`.
    """
    threads = tensor_intrinsic(name).threads
    if threads > 1 and not is_of_warp(stage):
        raise ScheduleError(
            f"{stage.name} is in scope {stage.scope or 'heap'}, and {name} is run by {threads} "
            "threads together: expected scope 'fragment' (cache_write or set_scope)"
        )


def thread_loops(
    state: State, plans: Mapping[str, StagePlan], at: At
) -> Iterator[tuple[StagePlan, int, list[StageLoop]]]:
    """For `at` and each place around it: the plan, the number of the loop, and the thread loops of
    the plan down to that loop.
    """
    for link in (at, *state.ancestors(at.stage)):
        plan = plans[link.stage]
        last = plan.depth(link.axis)
        loops = plan.loops[: last + 1]
        yield (
            plan,
            last,
            [x for x in loops if LOOP_KINDS[x.kind].level == "thread" and not x.is_unit],
        )


def threads_around(
    state: State, plans: Mapping[str, StagePlan], plan: StagePlan
) -> dict[ForKind, StageLoop]:
    """The loops around the nest of `plan` that are bound to threads, by thread index."""
    place = plan.stage.attach
    if not isinstance(place, At):
        return {}
    return {x.kind: x for _, _, loops in thread_loops(state, plans, place) for x in loops}


def _launched_around(
    state: State, plans: Mapping[str, StagePlan], plan: StagePlan
) -> dict[ForKind, StageLoop]:
    """Like `threads_around`, but includes loops of one iteration, which stand for a launch of one
    thread.
    """
    by_index = threads_around(state, plans, plan)
    if isinstance(plan.stage.attach, At):
        for x in loops_around(plans, plan):
            if LOOP_KINDS[x.kind].level == "thread":
                by_index.setdefault(x.kind, x)
    return by_index


def bound_loop(
    state: State, plans: Mapping[str, StagePlan], plan: StagePlan, loop: StageLoop, made: For
) -> Stmt:
    """The loop `made` for `loop` of `plan`.  If an outer loop is bound to the same index, returns
    the body of `made` instead, with the variable of the outer loop in place of the variable of
    `made`.

    Raises ScheduleError if the loop has more iterations than there are threads, if a loop of an
    attached stage is bound to blocks, or if threads compute parts of memory that they do not share.
    """
    level = LOOP_KINDS[loop.kind].level
    if not level:
        return made
    place = f"{plan.stage.name}.{loop.name} is bound to {loop.kind}"
    if level == "block" and plan.stage.attach != "root":
        raise ScheduleError(f"{place}, and is computed at {plan.stage.attach}: expected threads")
    outside = plan.loops[: index_of(plan.loops, loop)]
    levels = [(x, LOOP_KINDS[x.kind].level) for x in outside]
    inner = [x for x, own in levels if own == "thread" or (not own and not x.is_unit)]
    if level == "block" and inner:
        raise ScheduleError(
            f"{place} and stands inside of {inner[0].name}, which is not over blocks: expected "
            "loops over blocks outermost; reorder"
        )
    if level == "thread" and not isinstance(loop.extent, int):
        raise ScheduleError(
            f"{place} and has {loop.extent} iterations, expected a constant number of threads; "
            f"split {loop.name} by a constant factor"
        )
    around = _launched_around(state, plans, plan)
    if loop.kind not in around:
        is_own = any(SCOPES[b.scope].owner == "thread" for b in plan.buffers)
        if level == "thread" and is_own and not loop.is_reduce and not loop.is_unit:
            raise ScheduleError(
                f"{place}, but each thread has memory of its own for {plan.stage.name}, "
                f"{plan.buffers[0].scope}, and what reads it needs all of it: expected scope "
                "'shared' (set_scope) inside a loop over blocks, or compute_at inside a loop over "
                f"{loop.kind}"
            )
        return made
    if loop.is_reduce:
        raise ScheduleError(
            f"{place}, and the loop {around[loop.kind].name} around it, too: each thread would add "
            f"up terms of another element; compute {plan.stage.name} outside of that loop"
        )
    outer = around[loop.kind]
    if not is_shared(plan.stage):
        raise ScheduleError(
            f"{place}, and the loop {outer.name} around it, too, but each thread has memory of its "
            f"own for {plan.stage.name} and needs all of it: expected scope 'shared' (set_scope), "
            f"or no loop over {loop.kind} in it"
        )
    there = dim_expr(outer.extent)
    if not can_prove(made.extent <= there, plan.outside):
        raise ScheduleError(
            f"{place} and has {made.extent} iterations, expected at most {there}, which the loop "
            f"around it has; split {loop.name} by {there}"
        )
    body = made.body if made.extent is there else If(outer.var < made.extent, made.body)
    return LetStmt(made.var, outer.var, body)


def is_launched(state: State, plans: Mapping[str, StagePlan], plan: StagePlan) -> bool:
    """Whether the nest of `plan` is inside loops over blocks or threads."""
    return any(
        LOOP_KINDS[x.kind].level
        for place in state.ancestors(plan.stage.name)
        for x in plans[place.stage].loops[: plans[place.stage].depth(place.axis) + 1]
    )


def check_scope(state: State, plans: Mapping[str, StagePlan], plan: StagePlan) -> None:
    """Raises ScheduleError for a scope that the buffers of `plan` can't have at their place.

    Memory that a block of threads owns exists only inside a block, and the heap only outside.
    Registers exist only inside the thread that uses them.
    """
    in_launch = is_launched(state, plans, plan)
    for buffer in plan.buffers:
        shared = None if SCOPES[buffer.scope].is_addressed else _loop_of_users(state, plans, plan)
        if shared is not None:
            raise ScheduleError(
                f"{plan.stage.name} is in register memory, which a thread has for itself, and the "
                f"threads of {shared.kind} loop {shared.name} inside would share it: attach "
                f"{plan.stage.name} inside that loop, or keep it on the heap or the stack"
            )
        if SCOPES[buffer.scope].owner in ("block", "warp") and not in_launch:
            raise ScheduleError(
                f"{plan.stage.name} is to be in {buffer.scope} memory, which threads of a block "
                "share: expected compute_at inside a loop that is bound to blocks or threads, "
                f"found it at {plan.stage.attach}"
            )
        if not SCOPES[buffer.scope].owner and buffer.scope in ALLOCATED and in_launch:
            size = " x ".join(map(str, buffer.shape))
            raise ScheduleError(
                f"{plan.stage.name}, {size} elements, is to be on the heap inside a block of "
                "threads: set_scope('shared'), or 'register' or 'stack' for memory of each thread"
            )


def _loop_of_users(
    state: State, plans: Mapping[str, StagePlan], plan: StagePlan
) -> StageLoop | None:
    """A parallel loop around accesses to the memory of `plan`, but inside the allocation of this
    memory; None if there is none.  The result is also None if the memory is allocated inside
    another parallel loop, because parallel loops inside it run serially.
    """

    def is_shared(loop: StageLoop) -> bool:
        kind = LOOP_KINDS[loop.kind]
        return kind.is_threaded and not kind.level and not loop.is_unit

    around = tuple(loops_around(plans, plan))
    if any(map(is_shared, around)):
        return None
    outside = {loop.var for loop in around}
    users = [plan, *(p for p in plans.values() if reads(state, p, plan.stage.name))]
    loops = (x for p in users for x in (*p.loops, *loops_around(plans, p)))
    return next((x for x in loops if x.var not in outside and is_shared(x)), None)


def by_one(state: State, plans: Mapping[str, StagePlan], plan: StagePlan, body: Stmt) -> Stmt:
    """`body` of a stage whose results threads share.  If no loop of the stage is bound to a thread
    index, one thread along this index runs `body`.
    """
    own = {loop.kind for loop in plan.loops if not loop.is_unit}
    around = threads_around(state, plans, plan)
    for kind, loop in around.items():
        if kind not in own:
            body = If(compare("eq", loop.var, 0), body)
    for kind in thread_sizes(state, plans, plan):
        if kind not in own and kind not in around:
            body = For(Var("first"), const(0), const(1), kind, body)
    return body


def thread_sizes(
    state: State, plans: Mapping[str, StagePlan], plan: StagePlan
) -> dict[ForKind, int]:
    """Thread index -> number of threads of a block, in the launch of `plan`.  Indices with a single
    thread are left out.
    """
    root = _root(state, plan.stage.name)
    sizes: dict[ForKind, int] = {}
    for other in plans.values():
        for loop in other.loops if _root(state, other.stage.name) == root else ():
            is_bound = LOOP_KINDS[loop.kind].level == "thread" and not loop.is_unit
            if is_bound and isinstance(loop.extent, int):
                sizes[loop.kind] = max(sizes.get(loop.kind, 1), loop.extent)
    return sizes


def _root(state: State, name: str) -> str:
    """The outermost stage in whose loops the stage `name` is computed."""
    return next((place.stage for place in reversed(tuple(state.ancestors(name)))), name)
