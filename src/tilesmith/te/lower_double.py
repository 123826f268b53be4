"""Lowering of double_buffer (software pipelining): compute the next iteration's part of a stage
before this one's is used.

    allocate B[2, ...]:
        part 0 of B                                 # the iteration's variable is 0
        for i in n:
            if i + 1 < n:
                part i + 1 of B, in slot (i + 1) % 2
            body, reading slot i % 2
"""

from __future__ import annotations

from tilesmith.ir.expr import Expr, Load, Var, const, substitute
from tilesmith.ir.loop_tables import LOOP_KINDS
from tilesmith.loop import nodes
from tilesmith.loop.nodes import Buffer, Stmt
from tilesmith.support.errors import InternalError, ScheduleError

from .lower_plan import StageLoop, StagePlan, read_of
from .relations import dim_expr
from .rewrite import map_loads
from .state import At, State


def slots(state: State, plans: dict[str, StagePlan]) -> dict[str, Expr]:
    """For each double-buffered stage, the slot that the current iteration reads.

    Raises ScheduleError.
    """
    result: dict[str, Expr] = {}
    for name, plan in plans.items():
        attach = plan.stage.attach
        if not plan.stage.double_buffer or not isinstance(attach, At):
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
        for source in dict.fromkeys(state.tensors[read_of(r)][0] for r in plan.reads):
            if source in plans and state.stages[source].attach == attach:
                raise ScheduleError(
                    f"{name} cannot be double-buffered at {attach}: it reads {source}, which is "
                    "computed in the same "
                    f"iteration; compute {source} further out or inside {name}"
                )
        result[name] = loop.value % 2 if not loop.is_unit else const(0)
    return result


def in_iteration(stmt: Stmt, loop: StageLoop, value: Expr) -> Stmt:
    """A copy of `stmt` for iteration `value` of `loop`, with loops and allocations of its own."""
    return _Copy({loop.var: value}).of(stmt)


def run_ahead(stmt: Stmt, loop: StageLoop) -> Stmt:
    """The part of the next iteration, if there is one."""
    following = loop.var + 1
    return nodes.If(
        following < dim_expr(loop.extent), in_iteration(stmt, loop, following), likely=True
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
        if isinstance(s, nodes.For):
            start, extent = self.expr(s.start), self.expr(s.extent)
            var = self._fresh(s.var)
            return nodes.For(var, start, extent, s.kind, self.of(s.body))
        if isinstance(s, nodes.If):
            return nodes.If(
                self.expr(s.cond),
                self.of(s.then),
                self.of(s.otherwise) if s.otherwise else None,
                s.likely,
            )
        if isinstance(s, nodes.Store):
            indices = tuple(self.expr(i) for i in s.indices)
            mask = self.expr(s.mask) if s.mask is not None else None
            return nodes.Store(
                self.buffers.get(id(s.buffer), s.buffer), indices, self.expr(s.value), mask
            )
        if isinstance(s, nodes.Tensorize):
            return nodes.Tensorize(s.intrinsic, self.of(s.body))
        if isinstance(s, nodes.Allocate):
            b = s.buffer
            self.buffers[id(b)] = Buffer(b.name, b.dtype, b.shape, b.scope)
            return nodes.Allocate(self.buffers[id(b)], self.of(s.body))
        if isinstance(s, nodes.LetStmt):
            value = self.expr(s.value)
            return nodes.LetStmt(self._fresh(s.var), value, self.of(s.body))
        if isinstance(s, nodes.Seq):
            return nodes.Seq(tuple(self.of(x) for x in s.stmts))
        if isinstance(s, nodes.Evaluate):
            return nodes.Evaluate(self.expr(s.value))
        if isinstance(s, nodes.Assert):
            return nodes.Assert(self.expr(s.cond), s.message)
        raise InternalError(f"lowering made a statement that cannot be copied: {type(s).__name__}")

    def _fresh(self, var: Var) -> Var:
        fresh = self.mapping[var] = Var(var.name, var.type, var.size)
        assert isinstance(fresh, Var)
        return fresh
