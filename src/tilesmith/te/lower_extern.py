"""Lowering of te.extern: the user's loops, on the buffers that lowering chooses."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from tilesmith.ir.context import Context
from tilesmith.ir.expr import Expr, Load, Var
from tilesmith.loop.nodes import Buffer, For, Stmt, Store
from tilesmith.loop.visit import map_stmt, rebuild_through

from .lower_plan import NOT_AHEAD, StagePlan
from .rewrite import map_loads
from .state import StageState
from .tensor import Extern


def extern_plan(
    stage: StageState, outside: Context, ahead: Mapping[Var, int] = NOT_AHEAD
) -> StagePlan:
    """The plan of a stage without axes."""
    return StagePlan(
        stage, (), [], (), (), (), {}, {}, frozenset(), (), outside, ahead=ahead
    )  # fmt: skip


def extern_nest(
    plan: StagePlan,
    load: Callable[[Load], Expr],
    own: Callable[[Buffer, tuple[Expr, ...]], tuple[Expr, ...]],
) -> Stmt:
    """The loops of `plan`.  If the stage is at the root, the outermost independent loops run in
    parallel.

    load: reads an element of a tensor.
    own: maps the indices of an element of a result to indices in the buffer of that result.
    """
    op = plan.stage.op
    assert isinstance(op, Extern)
    count = len(op.sources)
    sources = dict(zip(op.func.buffers, op.sources, strict=False))
    results = dict(zip(op.func.buffers[count:], plan.buffers, strict=True))

    def read(e: Load) -> Expr:
        if e.buffer in sources:
            return load(Load(sources[e.buffer], e.indices, e.mask))  # type: ignore[index]  # a buffer
        if e.buffer in results:
            memory = results[e.buffer]  # type: ignore[index]  # a buffer
            return Load(memory, own(memory, e.indices), e.mask)
        return e

    def stmt(s: Stmt) -> Stmt:
        if not isinstance(s, Store) or s.buffer not in results:
            return s
        memory = results[s.buffer]
        return Store(memory, own(memory, s.indices), s.value, s.mask)

    nest = map_stmt(op.func.body, f_expr=lambda e: map_loads((e,), read)[0], f_stmt=stmt)
    return _shared(nest, plan.stage.attach == "root")


def _shared(stmt: Stmt, threads: bool) -> Stmt:
    """`stmt` with its outermost independent loops parallel if `threads`, else serial."""
    if not isinstance(stmt, For):
        return rebuild_through(stmt, lambda s: _shared(s, threads), lambda e: e)
    is_parallel = stmt.kind == "parallel" and threads
    body = _shared(stmt.body, threads and not is_parallel and stmt.kind == "serial")
    return For(stmt.var, stmt.start, stmt.extent, "parallel" if is_parallel else "serial", body)
