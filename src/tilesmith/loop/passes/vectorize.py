"""Vectorise: a loop of kind "vectorized" runs all its iterations at once, in the lanes of vector
expressions.

    for j in vectorized(16):                 C[ramp(i * 16, 1, 16)] =
        if i * 16 + j < n:            ->         A[ramp(i * 16, 1, 16)] + x16(B[i]),
            C[i * 16 + j] = A[i * 16 + j] + B[i]     under the mask ramp(i * 16, 1, 16) < x16(n)

- The loop's variable is pushed inside: loops within it stay scalar loops, their stores become
  vector stores.
- A condition that differs between lanes becomes a mask of the loads and stores that it guards.
- `A[c] = A[c] op f(lane)` with one address for all lanes is a reduction: `A[c] = A[c] op
  VectorReduce(op, f)`.
- A buffer allocated inside is private to a lane and gets a copy per lane.
- A loop that can't be expressed so stays correct: it runs serially.  Examples are an inner extent
  that differs between lanes, or two stores to one address that are not a reduction.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from tilesmith.ir.affine import affine_form, from_affine
from tilesmith.ir.context import Context
from tilesmith.ir.dtypes import DType, i64
from tilesmith.ir.expr import (
    Binary,
    Broadcast,
    Const,
    Expr,
    Let,
    Load,
    Ramp,
    Select,
    Unary,
    Var,
    VectorReduce,
    all_of,
    const,
    free_vars,
    post_order,
    substitute,
)
from tilesmith.ir.simplify import EMPTY, can_prove, simplify

from ..nodes import (
    Allocate,
    Assert,
    Buffer,
    Evaluate,
    For,
    Func,
    If,
    LetStmt,
    Seq,
    Stmt,
    Store,
    seq,
)
from ..visit import exprs, rebuild, walk
from .simplify import conjuncts

REDUCTIONS = ("add", "mul", "min", "max", "and", "or")
_DIVISIONS = ("floordiv", "floormod", "truncdiv", "truncmod")


class _CannotVectorizeError(Exception):
    """This loop runs serially."""


def vectorize(func: Func) -> Func:
    """`func` (stage "flat") without vectorised loops; the same object if it has none."""
    if not any(isinstance(s, For) and s.kind == "vectorized" for s in walk(func.body)):
        return func
    body = _visit(func.body, EMPTY)
    return Func(func.name, func.params, func.outputs, body, func.attrs)


def _visit(stmt: Stmt, ctx: Context) -> Stmt:
    inner = ctx
    if isinstance(stmt, For):
        last = stmt.start + stmt.extent - const(1)
        inner = ctx.with_var(stmt.var, stmt.start, last)
    elif isinstance(stmt, LetStmt) and stmt.value.dtype is i64 and stmt.value.lanes == 1:
        inner = ctx.with_interval(stmt.var, ctx.interval(stmt.value))
    elif isinstance(stmt, If) and stmt.otherwise is None:
        inner = ctx.assuming(stmt.cond)
    new = rebuild(stmt, lambda s: _visit(s, inner), lambda e: e)
    if not isinstance(new, For) or new.kind != "vectorized":
        return new
    new = _without_idle_lanes(new)
    serial = For(new.var, new.start, new.extent, "serial", new.body)
    if not isinstance(new.extent, Const) or new.extent.value <= 1 or _has_vectors(new.body):
        return serial
    try:
        lanes = int(new.extent.value)
        return _Vectorizer(new.var, new.start, lanes, ctx).stmt(new.body, None)
    except _CannotVectorizeError:
        return serial


def _without_idle_lanes(loop: For) -> For:
    """Remove the lanes that a guard around the whole body disables, if a power of two remains.

        for j in vectorized(16):          for j in vectorized(8):
            if j < 8: body           ->       body

    A narrower vector is cheaper than a mask on every access; other widths would not fit registers.
    """
    guard = loop.body
    if not isinstance(guard, If) or guard.otherwise is not None:
        return loop
    if not isinstance(loop.start, Const) or not isinstance(loop.extent, Const):
        return loop
    if not guard.likely or free_vars(guard.cond) != {loop.var}:
        return loop
    lanes = range(int(loop.start.value), int(loop.start.value + loop.extent.value))
    on = [i for i in lanes if simplify(substitute(guard.cond, {loop.var: const(i)})) is const(True)]
    if not on or on[-1] - on[0] + 1 != len(on) or len(on) & (len(on) - 1):
        return loop
    return For(loop.var, const(on[0]), const(len(on)), loop.kind, guard.then)


def _has_vectors(stmt: Stmt) -> bool:
    """True if an inner loop has become vectors already."""
    return any(
        isinstance(n, (Ramp, Broadcast, VectorReduce)) for e in exprs(stmt) for n in post_order(e)
    )


def _has_load(e: Expr) -> bool:
    return any(isinstance(n, Load) for n in post_order(e))


def _both(mask: Expr | None, cond: Expr) -> Expr:
    return cond if mask is None else Binary("and", mask, cond)


def identity(op: str, dtype: DType) -> Expr:
    """The neutral element of `op`."""
    if op == "and":
        return const(True) if dtype.is_bool else const(-1, dtype)
    value = {"add": 0, "mul": 1, "min": dtype.max, "max": dtype.min, "or": 0}[op]
    return const(-0.0, dtype) if op == "add" and dtype.is_float else const(value, dtype)


@dataclass
class _Vectorizer:
    """Rewrites the body of one loop; what varies between lanes is what mentions a key of `env`."""

    var: Var
    start: Expr
    lanes: int
    ctx: Context
    env: dict[Var, Expr] = field(default_factory=dict)
    """Variables that differ between lanes, with their vectors."""
    private: dict[Buffer, Buffer] = field(default_factory=dict)
    """Buffers allocated inside, with the buffers that hold a copy per lane."""
    memo: dict[tuple[Expr, Expr | None], Expr] = field(default_factory=dict)
    known: dict[Expr | None, dict[Expr, Expr]] = field(default_factory=dict)
    """By mask, the loads that evaluating the mask does, with their vectors."""
    varies: dict[Expr, bool] = field(default_factory=dict)
    some_lane: dict[Expr, frozenset[int]] = field(default_factory=dict)
    """Masks that are known to be true in the first (0) or the last (-1) lane, or both."""

    def __post_init__(self) -> None:
        self.env[self.var] = Ramp(self.start, const(1), self.lanes)

    # --- expressions: `mask` says in which lanes the value is needed (None: in all)

    def differs(self, e: Expr) -> bool:
        found = self.varies.get(e)
        if found is None:
            found = (
                e in self.env
                or (isinstance(e, Load) and e.buffer in self.private)
                or any(self.differs(c) for c in e.children)
            )
            self.varies[e] = found
        return found

    def expr(self, e: Expr, mask: Expr | None) -> Expr:
        """`e` in every lane: a scalar if all lanes agree."""
        key = (e, mask)
        found = self.memo.get(key)
        if found is None:
            if self.differs(e):
                found = self.varying(e, mask)
            else:
                found = self.invariant(e, mask)
            self.memo[key] = found
        return found

    def vector(self, e: Expr, mask: Expr | None) -> Expr:
        new = self.expr(e, mask)
        return new if new.lanes == self.lanes else Broadcast(new, self.lanes)

    def invariant(self, e: Expr, mask: Expr | None) -> Expr:
        """One value for all lanes; its loads must not run if no lane needs them."""
        if mask is None or not _has_load(e):
            return e
        if mask in self.some_lane:
            return e
        return Select(VectorReduce("or", mask), e, const(0, e.dtype))

    def varying(self, e: Expr, mask: Expr | None) -> Expr:
        if isinstance(e, Var):
            return self.env[e]
        if e.dtype is i64 and isinstance(e, (Binary, Unary)):
            ramp = self.ramp(e)
            if ramp is not None:
                return ramp
        if isinstance(e, Load):
            return self.load(e, mask)
        if isinstance(e, Select):
            return self.select(e, mask)
        if isinstance(e, Let):
            return self.let(e, mask)
        if e.lanes != 1 or isinstance(e, (Ramp, Broadcast, VectorReduce)):
            raise _CannotVectorizeError
        if (
            isinstance(e, Binary)
            and e.op in _DIVISIONS
            and mask is not None
            and not isinstance(e.b, Const)
        ):
            raise _CannotVectorizeError  # a lane that is masked off might divide by zero
        return e.with_children(tuple(self.vector(c, mask) for c in e.children))

    def ramp(self, e: Expr) -> Expr | None:
        """An affine index: ramps add up to one, with a scalar base and a stride."""
        terms, constant = affine_form(e)
        if e in terms:
            return None
        base: dict[Expr, int] = {}
        stride: dict[Expr, int] = {}
        total = constant
        others: list[tuple[Expr, int]] = []
        for atom, k in terms.items():
            if not self.differs(atom):
                base[atom] = base.get(atom, 0) + k
                continue
            new = (
                self.env.get(atom)
                if isinstance(atom, Var)
                else simplify(self.expr(atom, None), self.ctx)
            )
            if isinstance(new, Ramp):
                total = _accumulate(base, new.base, k, total)
                extra = _accumulate(stride, new.stride, k, 0)
                if extra:
                    stride[const(1)] = stride.get(const(1), 0) + extra
            elif isinstance(new, Broadcast):
                total = _accumulate(base, new.value, k, total)
            else:
                assert new is not None
                others.append((new, k))
        step = stride.pop(const(1), 0)
        start = from_affine(base, total)
        result: Expr = Broadcast(start, self.lanes)
        if step or stride:
            result = Ramp(start, from_affine(stride, step), self.lanes)
        for vector, k in others:
            term = vector if k == 1 else Binary("mul", vector, Broadcast(const(k), self.lanes))
            result = Binary("add", result, term)
        return result

    def load(self, e: Load, mask: Expr | None) -> Expr:
        assert isinstance(e.buffer, Buffer)
        if len(e.indices) != 1:
            raise _CannotVectorizeError
        index = self.address(e.buffer, e.indices[0], mask)
        if mask is not None and self.is_inside(e.buffer, index):
            mask = None
        if e.mask is not None:
            mask = _both(mask, self.vector(e.mask, mask))
        return Load(self.private.get(e.buffer, e.buffer), (index,), mask)

    def address(self, buffer: Buffer, index: Expr, mask: Expr | None) -> Expr:
        if buffer in self.private:
            one = const(1)
            return self.vector(index, mask) * const(self.lanes) + Ramp(const(0), one, self.lanes)
        return self.vector(index, mask)

    def is_inside(self, buffer: Buffer, index: Expr) -> bool:
        """True if all lanes of an index are elements of a register buffer, where unneeded reads
        cost nothing.
        """
        index = simplify(index, self.ctx)
        if buffer.scope != "register" or buffer in self.private or not isinstance(index, Ramp):
            return False
        size, stride = buffer.shape[0], index.stride
        size = int(size.value) if isinstance(size, Const) else size
        if not isinstance(size, int) or stride is not const(1):
            return False
        low, high, *_ = self.ctx.interval(index.base)
        return low is not None and high is not None and low >= 0 and high + index.lanes <= size

    def select(self, e: Select, mask: Expr | None) -> Expr:
        cond = self.expr(e.cond, mask)
        if cond.lanes == 1:
            return Select(cond, self.vector(e.if_true, mask), self.vector(e.if_false, mask))
        cond = simplify(cond, self.ctx)
        if isinstance(cond, Broadcast):
            scalar = Select(cond.value, self.vector(e.if_true, mask), self.vector(e.if_false, mask))
            return simplify(scalar, self.ctx)
        yes = self.narrower(mask, cond, e.cond) if _needs_mask(e.if_true) else mask
        no = mask
        if _needs_mask(e.if_false):
            no = self.narrower(mask, Unary("not", cond), Unary("not", e.cond))
        # what conditions have read is there already
        known = dict(self.known.get(mask, {}))
        known |= {load: self.expr(load, mask) for load in _surely_loaded(e.cond)}
        for narrow in (m for m in (yes, no) if m is not mask):
            self.known[narrow] = known
            self.memo |= {(load, narrow): value for load, value in known.items()}
        return Select(cond, self.vector(e.if_true, yes), self.vector(e.if_false, no))

    def let(self, e: Let, mask: Expr | None) -> Expr:
        value = self.expr(e.value, mask)
        var = Var(e.var.name, e.var.type, value.lanes)
        if value.lanes > 1:
            self.env[e.var] = var
            self.varies.clear()  # what was asked before did not know the variable
            return Let(var, value, self.vector(e.body, mask))
        return Let(var, value, self.vector(substitute(e.body, {e.var: var}), mask))

    def narrower(self, mask: Expr | None, cond: Expr, scalar: Expr) -> Expr:
        """`mask` and `cond` (the lanes of `scalar`), noting a lane in which that certainly
        holds.
        """
        both = _both(mask, cond)
        lanes = frozenset((0, -1)) if mask is None else self.some_lane.get(mask, frozenset())
        ends = {0: self.start, -1: self.start + const(self.lanes - 1)}
        sure = [i for i in lanes if can_prove(substitute(scalar, {self.var: ends[i]}), self.ctx)]
        if sure:
            self.some_lane[both] = frozenset(sure)
        return both

    # --- statements

    def stmt(self, stmt: Stmt, mask: Expr | None) -> Stmt:
        if isinstance(stmt, Store):
            return self.store(stmt, mask)
        if isinstance(stmt, Seq):
            return seq(*(self.stmt(s, mask) for s in stmt.stmts))
        if isinstance(stmt, If):
            return self.branch(stmt, mask)
        if isinstance(stmt, For):
            if self.differs(stmt.start) or self.differs(stmt.extent):
                raise _CannotVectorizeError
            kind = "serial" if stmt.kind == "parallel" else stmt.kind
            body = self.stmt(stmt.body, mask)
            return For(stmt.var, stmt.start, stmt.extent, kind, body)
        if isinstance(stmt, LetStmt):
            return self.let_stmt(stmt, mask)
        if isinstance(stmt, Allocate):
            return self.allocate(stmt, mask)
        if isinstance(stmt, Evaluate):  # a prefetch: the first lane's
            return Evaluate(substitute(stmt.value, {self.var: self.start}))
        if isinstance(stmt, Assert) and mask is None and not self.differs(stmt.cond):
            return stmt
        raise _CannotVectorizeError

    def store(self, stmt: Store, mask: Expr | None) -> Stmt:
        if stmt.mask is not None or len(stmt.indices) != 1 or stmt.value.lanes > 1:
            raise _CannotVectorizeError
        buffer = self.private.get(stmt.buffer, stmt.buffer)
        if stmt.buffer in self.private or self.differs(stmt.indices[0]):
            index = simplify(self.address(stmt.buffer, stmt.indices[0], mask), self.ctx)
            if not isinstance(index, Ramp) and _reads(stmt.value, stmt.buffer):
                raise _CannotVectorizeError  # two lanes might update one element
            return Store(buffer, (index,), self.vector(stmt.value, mask), mask)
        return self.one_address(stmt, mask)

    def one_address(self, stmt: Store, mask: Expr | None) -> Stmt:
        """A store to the same element in all lanes: a reduction, or the same value from each."""
        value, index = stmt.value, stmt.indices[0]
        here = Load(stmt.buffer, (index,))
        reads = _reads(value, stmt.buffer)
        if isinstance(value, Binary) and value.op in REDUCTIONS and reads == [here]:
            rest = value.b if value.a is here else value.a if value.b is here else None
            if rest is not None and not any(n is here for n in post_order(rest)):
                lanes = self.vector(rest, mask)
                if mask is not None:
                    none = Broadcast(identity(value.op, rest.dtype), self.lanes)
                    lanes = Select(mask, lanes, none)
                total = VectorReduce(value.op, lanes)
                store = Store(stmt.buffer, stmt.indices, Binary(value.op, here, total))
                return self.in_some_lane(store, mask)
        if self.differs(value) or reads:
            raise _CannotVectorizeError
        return self.in_some_lane(Store(stmt.buffer, stmt.indices, value), mask)

    def in_some_lane(self, store: Store, mask: Expr | None) -> Stmt:
        """The scalar `store`, executed if any lane executes it."""
        if mask is None or mask in self.some_lane:
            return store
        return If(VectorReduce("or", mask), store)

    def branch(self, stmt: If, mask: Expr | None) -> Stmt:
        if stmt.otherwise is None and self.differs(stmt.cond):
            parts = conjuncts(stmt.cond)
            common = [c for c in parts if not self.differs(c)]
            if common:  # what all lanes agree on stays a branch
                rest = all_of(*(c for c in parts if self.differs(c)))
                inner = If(rest, stmt.then, None, stmt.likely)
                return self.branch(If(all_of(*common), inner, None, stmt.likely), mask)
        cond = self.expr(stmt.cond, mask)
        if cond.lanes > 1:
            cond = simplify(cond, self.ctx)
            if isinstance(cond, Broadcast):
                cond = cond.value
        if cond.lanes == 1:
            then = self.stmt(stmt.then, mask)
            otherwise = None if stmt.otherwise is None else self.stmt(stmt.otherwise, mask)
            return If(cond, then, otherwise, stmt.likely)
        if _changes_condition(stmt):
            raise _CannotVectorizeError
        parts = [self.stmt(stmt.then, self.narrower(mask, cond, stmt.cond))]
        if stmt.otherwise is not None:
            no = self.narrower(mask, Unary("not", cond), Unary("not", stmt.cond))
            parts.append(self.stmt(stmt.otherwise, no))
        return seq(*parts)

    def let_stmt(self, stmt: LetStmt, mask: Expr | None) -> Stmt:
        value = self.expr(stmt.value, mask)
        if value.lanes == 1:
            return LetStmt(stmt.var, value, self.stmt(stmt.body, mask))
        var = Var(stmt.var.name, stmt.var.type, value.lanes)
        self.env[stmt.var] = var
        self.varies.clear()
        return LetStmt(var, value, self.stmt(stmt.body, mask))

    def allocate(self, stmt: Allocate, mask: Expr | None) -> Stmt:
        old = stmt.buffer
        (extent,) = old.shape if len(old.shape) == 1 else (None,)
        if isinstance(extent, Const):
            extent = int(extent.value)
        if not isinstance(extent, int):
            raise _CannotVectorizeError
        new = Buffer(old.name, old.dtype, (extent * self.lanes,), old.scope)
        self.private[old] = new
        return Allocate(new, self.stmt(stmt.body, mask))


def _surely_loaded(cond: Expr) -> list[Load]:
    """The loads of a condition that are executed unconditionally."""
    found: list[Load] = []
    left = [cond]
    while left:
        e = left.pop()
        if isinstance(e, Let):
            continue
        if isinstance(e, Load):
            found.append(e)
        left += [e.cond] if isinstance(e, Select) else e.children
    return found


def _reads(e: Expr, buffer: Buffer) -> list[Expr]:
    return [n for n in post_order(e) if isinstance(n, Load) and n.buffer is buffer]


def _accumulate(terms: dict[Expr, int], e: Expr, k: int, constant: int) -> int:
    """Add `k * e` to `terms`; returns the constant with e's own added."""
    inner, c = affine_form(e)
    for atom, n in inner.items():
        terms[atom] = terms.get(atom, 0) + k * n
    return constant + k * c


def _needs_mask(e: Expr) -> bool:
    """True for a branch that reads memory or may divide by zero: it is evaluated only in its own
    lanes.
    """
    return any(
        isinstance(n, Load) or (isinstance(n, Binary) and n.op in _DIVISIONS) for n in post_order(e)
    )


def _changes_condition(stmt: If) -> bool:
    """True if a store under the condition may change it: each use evaluates the mask."""
    read = {n.buffer for n in post_order(stmt.cond) if isinstance(n, Load)}
    if not read:
        return False
    return any(isinstance(s, Store) and s.buffer in read for s in walk(stmt))
