"""Lowering of software pipelining.  In each iteration, the part of a stage for a later iteration is
computed before the body uses the current part.  The parts are stored in several buffers in turn,
called slots.

    allocate B[2, ...]:
        part 0 of B                                 # the part for i = 0
        for i in n:
            if i + 1 < n:
                part i + 1 of B, in slot (i + 1) % 2
            body, reading slot i % 2

Copies into shared memory are asynchronous and form groups: one group per iteration holds the copies
of all shared stages at a loop.  After a thread has waited for its own copies, a barrier makes them
visible to the other threads.  At this barrier, all threads have also ended the iteration that used
the slot of the next group.  A stage that reads its own stores, such as a sum, is computed
synchronously instead.

    allocate B[n_slots, ...] shared:
        async: part 0 of B, in slot 0               # n_slots - 1 groups
        for i in n:
            wait n_slots - 2
            barrier
            async: part i + n_slots - 1 of B, if there is one
            body, reading slot i % n_slots

The last groups are empty, so that the number of pending groups is constant.
"""

from __future__ import annotations

from collections.abc import Sequence

from tilesmith.ir.expr import Expr, Load, Var, const, post_order, substitute
from tilesmith.ir.loop_tables import LOOP_KINDS, SCOPES
from tilesmith.ir.simplify import simplify
from tilesmith.loop import nodes
from tilesmith.loop.nodes import Buffer, Stmt, seq
from tilesmith.loop.visit import exprs, rebuild, walk
from tilesmith.support.errors import ScheduleError

from .lower_plan import StageLoop, StagePlan, reads
from .lower_threads import is_shared
from .relations import dim_expr
from .rewrite import map_loads
from .state import At, StageState, State


def slots(state: State, plans: dict[str, StagePlan]) -> dict[str, Expr]:
    """For each stage that is computed ahead, the slot that the current iteration reads.

    Raises ScheduleError if a stage cannot be computed ahead at its loop.
    """
    result: dict[str, Expr] = {}
    for name, plan in plans.items():
        attach = plan.stage.attach
        if plan.stage.buffers == 1 or not isinstance(attach, At):
            continue
        target = plans[attach.stage]
        loop = target.loops[target.depth(attach.axis)]
        if not LOOP_KINDS[loop.kind].is_ordered and not loop.is_unit:
            raise ScheduleError(
                f"{name} cannot be double-buffered in {loop.kind} loop {attach}: only iterations "
                "that follow each "
                "other can hand over a buffer"
            )
        if plan.ahead or target.early.get(loop.var):
            raise ScheduleError(
                f"{name} cannot be double-buffered at {attach}: another stage there is stored "
                "further out and runs ahead by iterations of its own; store that one where it is "
                "computed"
            )
        inside = [
            p
            for other, p in plans.items()
            if other == name or any(link.stage == name for link in state.ancestors(other))
        ]
        for source, beside in state.stages.items():
            if beside.attach == attach and any(reads(state, p, source) for p in inside):
                raise ScheduleError(
                    f"{name} cannot be double-buffered at {attach}: it reads {source}, which is "
                    "computed in the same "
                    f"iteration; compute {source} further out or inside {name}"
                )
        result[name] = loop.value % plan.stage.buffers if not loop.is_unit else const(0)
    return result


class Pipeline:
    """The stages that are computed ahead in the iterations of a loop.

    loop: the loop.
    parts: the stages, each with the nest of one iteration.
    """

    def __init__(self, loop: StageLoop, parts: Sequence[tuple[StageState, Stmt]]) -> None:
        self.loop = loop
        self.shared = [(s, nest) for s, nest in parts if is_shared(s) and not _reads_own(nest)]
        self.own = [(s, nest) for s, nest in parts if not is_shared(s) or _reads_own(nest)]
        depths = {stage.name: stage.buffers for stage, _ in self.shared}
        if len(set(depths.values())) > 1:
            listed = ", ".join(f"{name} {n}" for name, n in depths.items())
            raise ScheduleError(
                f"stages in shared memory are pipelined at loop {loop.name} together: expected the "
                f"same depth, found {listed}"
            )
        self.depth = next(iter(depths.values()), 1)

    def iteration(self, body: Stmt) -> Stmt:
        """`body` of an iteration, preceded by the parts of later iterations."""
        first: list[Stmt] = [self._at(n, self.loop.var, s.buffers - 1) for s, n in self.own]
        if self.shared:
            later = [self._at(n, self.loop.var, self.depth - 1) for _, n in self.shared]
            first += [nodes.Wait(self.depth - 2), nodes.Barrier(), nodes.AsyncGroup(seq(*later))]
        return seq(*first, body)

    def filled(self, body: Stmt) -> Stmt:
        """The whole loop `body`, preceded by the parts of its first iterations, which fill the
        buffers.
        """
        zero = const(0)
        first = [self._at(nest, zero, n) for s, nest in self.own for n in range(s.buffers - 1)]
        first += [
            nodes.AsyncGroup(seq(*(self._at(nest, zero, n) for _, nest in self.shared)))
            for n in range(self.depth - 1)
        ]
        return seq(*first, body)

    def _at(self, nest: Stmt, now: Expr, distance: int) -> Stmt:
        """`nest` for iteration `now + distance`, if there is such an iteration."""
        value = simplify(now + distance)
        made = _Copy({self.loop.var: value}).of(nest)
        if value is const(0) and isinstance(self.loop.extent, int) and self.loop.extent > 0:
            return made
        return nodes.If(value < dim_expr(self.loop.extent), made, likely=True)


def _reads_own(nest: Stmt) -> bool:
    """Whether `nest` reads shared memory to which it also stores, as a sum does.  Such a nest is
    computed synchronously.
    """
    stored = {x.buffer for x in walk(nest) if isinstance(x, nodes.Store)}
    stored = {b for b in stored if SCOPES[b.scope].owner == "block"}
    return any(
        isinstance(n, Load) and n.buffer in stored for e in exprs(nest) for n in post_order(e)
    )


class _Copy:
    def __init__(self, mapping: dict[Expr, Expr]) -> None:
        self.mapping = mapping
        self.buffers: dict[int, Buffer] = {}

    def expr(self, e: Expr) -> Expr:
        (result,) = map_loads((substitute(e, self.mapping),), self._load)
        return result

    def _load(self, load: Load) -> Load:
        buffer = self.buffers.get(id(load.buffer))
        return load if buffer is None else Load(buffer, load.indices, load.mask)

    def of(self, s: Stmt) -> Stmt:
        return rebuild(s, self.of, self.expr, self._fresh, lambda b: self.buffers.get(id(b), b))

    def _fresh(self, item: Var | Buffer) -> Var | Buffer:
        if isinstance(item, Buffer):
            copy = self.buffers[id(item)] = Buffer(item.name, item.dtype, item.shape, item.scope)
            return copy
        fresh = self.mapping[item] = Var(item.name, item.type, item.size)
        return fresh
