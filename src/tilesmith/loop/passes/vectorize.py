"""Vectorise: a loop of kind "vectorized" runs all its iterations at once, in the lanes of vector
expressions.

    for j in vectorized(16):                 C[ramp(i * 16, 1, 16)] =
        if i * 16 + j < n:            ->         A[ramp(i * 16, 1, 16)] + x16(B[i]),
            C[i * 16 + j] = A[i * 16 + j] + B[i]     under the mask ramp(i * 16, 1, 16) < x16(n)

- Loops inside the vectorised loop stay scalar loops; their stores become vector stores.
- A condition that differs between lanes becomes a mask of the loads and stores that it guards.
- `A[c] = A[c] op f(lane)` with one address for all lanes is a reduction: `A[c] = A[c] op
  VectorReduce(op, f)`.
- A buffer allocated inside is private to a lane, so it gets one copy per lane.
- A loop for which this is impossible becomes serial, which is always correct.  Examples are an
  inner extent that differs between lanes, and two stores to one address that are not a reduction.
  A loop of more than `MOST_LANES` iterations becomes serial too.
"""

from __future__ import annotations

from dataclasses import dataclass

from tilesmith.ir import expr as ir
from tilesmith.ir.context import Context
from tilesmith.ir.dtypes import DType
from tilesmith.ir.expr import Expr, Var, all_of, const, free_vars, post_order, same, substitute
from tilesmith.ir.loop_tables import LOOP_KINDS, MOST_LANES
from tilesmith.ir.operations import REDUCTIONS
from tilesmith.ir.simplify import EMPTY, simplify

from .. import nodes
from ..facts import conjuncts, inside
from ..nodes import Buffer, Func, Stmt, seq
from ..visit import exprs, rebuild_through, walk
from .lanes import CannotVectorizeError, LaneValues


def vectorize(func: Func) -> Func:
    """`func` (stage "flat") without vectorised loops; the same object if it has none."""
    if not any(isinstance(s, nodes.For) and s.kind == "vectorized" for s in walk(func.body)):
        return func
    body = _visit(func.body, EMPTY)
    return func.with_body(body)


def _visit(stmt: Stmt, ctx: Context) -> Stmt:
    inner = inside(ctx, stmt)
    new = rebuild_through(stmt, lambda s: _visit(s, inner), lambda e: e)
    if not isinstance(new, nodes.For) or new.kind != "vectorized":
        return new
    if not isinstance(new.extent, ir.Const) or new.extent.value > MOST_LANES:
        return nodes.For(new.var, new.start, new.extent, "serial", new.body)
    new = _without_idle_lanes(new)
    serial = nodes.For(new.var, new.start, new.extent, "serial", new.body)
    if not isinstance(new.extent, ir.Const) or new.extent.value <= 1 or _has_vectors(new.body):
        return serial
    try:
        lanes = int(new.extent.value)
        return _Vectorizer(new.var, new.start, lanes, ctx).stmt(new.body, None)
    except CannotVectorizeError:
        return serial


def _without_idle_lanes(loop: nodes.For) -> nodes.For:
    """Remove the lanes that a guard around the whole body disables, if the remaining number of
    lanes is a power of two.

        for j in vectorized(16):          for j in vectorized(8):
            if j < 8: body           ->       body

    A narrower vector is cheaper than a mask on every access.  Widths other than powers of two would
    not fit registers.
    """
    guard = loop.body
    if not isinstance(guard, nodes.If) or guard.otherwise is not None:
        return loop
    if not isinstance(loop.start, ir.Const) or not isinstance(loop.extent, ir.Const):
        return loop
    if not guard.likely or free_vars(guard.cond) != {loop.var}:
        return loop
    lanes = range(int(loop.start.value), int(loop.start.value + loop.extent.value))
    on = [i for i in lanes if simplify(substitute(guard.cond, {loop.var: const(i)})) is const(True)]
    if not on or on[-1] - on[0] + 1 != len(on) or len(on) & (len(on) - 1):
        return loop
    return nodes.For(loop.var, const(on[0]), const(len(on)), loop.kind, guard.then)


def _has_vectors(stmt: Stmt) -> bool:
    """Whether an inner loop has been vectorised already."""
    return any(
        isinstance(n, (ir.Ramp, ir.Broadcast, ir.VectorReduce))
        for e in exprs(stmt)
        for n in post_order(e)
    )


def identity(op: str, dtype: DType) -> Expr:
    """The neutral element of `op`."""
    if op == "and":
        return const(True) if dtype.is_bool else const(-1, dtype)
    value = {"add": 0, "mul": 1, "min": dtype.max, "max": dtype.min, "or": 0}[op]
    return const(-0.0, dtype) if op == "add" and dtype.is_float else const(value, dtype)


@dataclass
class _Vectorizer(LaneValues):
    """Rewrites the body of one loop."""

    def stmt(self, stmt: Stmt, mask: Expr | None) -> Stmt:
        if isinstance(stmt, nodes.Store):
            return self.store(stmt, mask)
        if isinstance(stmt, nodes.Seq):
            return seq(*(self.stmt(s, mask) for s in stmt.stmts))
        if isinstance(stmt, nodes.If):
            return self.branch(stmt, mask)
        if isinstance(stmt, nodes.For):
            if self.differs(stmt.start) or self.differs(stmt.extent):
                raise CannotVectorizeError
            kind = "serial" if LOOP_KINDS[stmt.kind].is_threaded else stmt.kind
            body = self.stmt(stmt.body, mask)
            return nodes.For(stmt.var, stmt.start, stmt.extent, kind, body)
        if isinstance(stmt, nodes.LetStmt):
            return self.let_stmt(stmt, mask)
        if isinstance(stmt, nodes.Allocate):
            return self.allocate(stmt, mask)
        if isinstance(stmt, nodes.Evaluate):  # prefetches for the first lane only
            return nodes.Evaluate(substitute(stmt.value, {self.var: self.start}))
        if isinstance(stmt, nodes.Assert) and mask is None and not self.differs(stmt.cond):
            return stmt
        raise CannotVectorizeError

    def store(self, stmt: nodes.Store, mask: Expr | None) -> Stmt:
        if stmt.mask is not None or len(stmt.indices) != 1 or stmt.value.lanes > 1:
            raise CannotVectorizeError
        buffer = self.private.get(stmt.buffer, stmt.buffer)
        if stmt.buffer in self.private or self.differs(stmt.indices[0]):
            index = simplify(self.address(stmt.buffer, stmt.indices[0], mask), self.ctx)
            if not isinstance(index, ir.Ramp) and _reads(stmt.value, stmt.buffer):
                raise CannotVectorizeError  # two lanes might update one element
            return nodes.Store(buffer, (index,), self.vector(stmt.value, mask), mask)
        return self.one_address(stmt, mask)

    def one_address(self, stmt: nodes.Store, mask: Expr | None) -> Stmt:
        """A store to the same element in all lanes: a reduction, or a store of the same value in
        all lanes.
        """
        value, index = stmt.value, stmt.indices[0]
        here = ir.Load(stmt.buffer, (index,))
        reads = _reads(value, stmt.buffer)
        if isinstance(value, ir.Binary) and value.op in REDUCTIONS and same(reads, [here]):
            rest = value.b if value.a is here else value.a if value.b is here else None
            if rest is not None and not any(n is here for n in post_order(rest)):
                lanes = self.vector(rest, mask)
                if mask is not None:
                    none = ir.Broadcast(identity(value.op, rest.dtype), self.lanes)
                    lanes = ir.Select(mask, lanes, none)
                total = ir.VectorReduce(value.op, lanes)
                store = nodes.Store(stmt.buffer, stmt.indices, ir.Binary(value.op, here, total))
                return self.in_some_lane(store, mask)
        if self.differs(value) or reads:
            raise CannotVectorizeError
        return self.in_some_lane(nodes.Store(stmt.buffer, stmt.indices, value), mask)

    def in_some_lane(self, store: nodes.Store, mask: Expr | None) -> Stmt:
        """The scalar `store`, executed if the mask is true in some lane."""
        if mask is None or mask in self.some_lane:
            return store
        return nodes.If(ir.VectorReduce("or", mask), store)

    def branch(self, stmt: nodes.If, mask: Expr | None) -> Stmt:
        if stmt.otherwise is None and self.differs(stmt.cond):
            parts = conjuncts(stmt.cond)
            common = [c for c in parts if not self.differs(c)]
            if common:  # an invariant condition stays a branch
                rest = all_of(*(c for c in parts if self.differs(c)))
                inner = nodes.If(rest, stmt.then, None, stmt.likely)
                return self.branch(nodes.If(all_of(*common), inner, None, stmt.likely), mask)
        cond = self.expr(stmt.cond, mask)
        if cond.lanes > 1:
            cond = simplify(cond, self.ctx)
            if isinstance(cond, ir.Broadcast):
                cond = cond.value
        if cond.lanes == 1:
            then = self.stmt(stmt.then, mask)
            otherwise = None if stmt.otherwise is None else self.stmt(stmt.otherwise, mask)
            return nodes.If(cond, then, otherwise, stmt.likely)
        if _changes_condition(stmt):
            raise CannotVectorizeError
        parts = [self.stmt(stmt.then, self.narrower(mask, cond, stmt.cond))]
        if stmt.otherwise is not None:
            no = self.narrower(mask, ir.Unary("not", cond), ir.Unary("not", stmt.cond))
            parts.append(self.stmt(stmt.otherwise, no))
        return seq(*parts)

    def let_stmt(self, stmt: nodes.LetStmt, mask: Expr | None) -> Stmt:
        value = self.expr(stmt.value, mask)
        if value.lanes == 1:
            return nodes.LetStmt(stmt.var, value, self.stmt(stmt.body, mask))
        var = Var(stmt.var.name, stmt.var.type, value.lanes)
        self.env[stmt.var] = var
        self.varies.clear()
        return nodes.LetStmt(var, value, self.stmt(stmt.body, mask))

    def allocate(self, stmt: nodes.Allocate, mask: Expr | None) -> Stmt:
        old = stmt.buffer
        (extent,) = old.shape if len(old.shape) == 1 else (None,)
        if isinstance(extent, ir.Const):
            extent = int(extent.value)
        if not isinstance(extent, int):
            raise CannotVectorizeError
        new = Buffer(old.name, old.dtype, (extent * self.lanes,), old.scope)
        self.private[old] = new
        return nodes.Allocate(new, self.stmt(stmt.body, mask))


def _reads(e: Expr, buffer: Buffer) -> list[Expr]:
    return [n for n in post_order(e) if isinstance(n, ir.Load) and n.buffer is buffer]


def _changes_condition(stmt: nodes.If) -> bool:
    """Whether a store under the condition may change the condition.  Then no mask can replace the
    condition, since each use of the mask evaluates it again.
    """
    read = {n.buffer for n in post_order(stmt.cond) if isinstance(n, ir.Load)}
    if not read:
        return False
    return any(isinstance(s, nodes.Store) and s.buffer in read for s in walk(stmt))
