"""The values of expressions in the lanes of a vector, for `vectorize`."""

from __future__ import annotations

from dataclasses import dataclass, field

from tilesmith.ir import expr as ir
from tilesmith.ir.affine import affine_form, from_affine
from tilesmith.ir.context import Context
from tilesmith.ir.dtypes import i64
from tilesmith.ir.expr import Expr, Var, const, post_order, reached, substitute
from tilesmith.ir.intrinsics import is_check, needs_guard
from tilesmith.ir.simplify import can_prove, simplify

from ..nodes import Buffer

_DIVISIONS = ("floordiv", "floormod", "truncdiv", "truncmod")


class CannotVectorizeError(Exception):
    """The loop can't be vectorised and runs serially."""


@dataclass
class LaneValues:
    """Values of expressions in the body of one loop, for all its iterations at once.

    An expression varies between lanes if it mentions a key of `env`.  A method's `mask` means that
    the value is needed only in the lanes where the mask is true (None: in all lanes).

    var: the loop's variable.
    start: its first value.
    lanes: the number of iterations.
    ctx: facts about the variables of the loops around this loop.
    env: variable that differs between lanes -> its vector.
    private: buffer allocated inside the loop -> the buffer with a copy for each lane.
    memo: (expression, mask) -> the result.
    known: mask -> the loads that the evaluation of the mask makes, with their vectors.
    varies: expression -> whether it varies between lanes.
    some_lane: mask -> the ends of the vector where the mask is surely true: the first lane (0), the
        last one (-1), or both.
    """

    var: Var
    start: Expr
    lanes: int
    ctx: Context
    env: dict[Var, Expr] = field(default_factory=dict)
    private: dict[Buffer, Buffer] = field(default_factory=dict)
    memo: dict[tuple[Expr, Expr | None], Expr] = field(default_factory=dict)
    known: dict[Expr | None, dict[Expr, Expr]] = field(default_factory=dict)
    varies: dict[Expr, bool] = field(default_factory=dict)
    some_lane: dict[Expr, frozenset[int]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.env[self.var] = ir.Ramp(self.start, const(1), self.lanes)

    def differs(self, e: Expr) -> bool:
        differs = self.varies.get(e)
        if differs is None:
            differs = (
                e in self.env
                or (isinstance(e, ir.Load) and e.buffer in self.private)
                or any(self.differs(c) for c in e.children)
            )
            self.varies[e] = differs
        return differs

    def expr(self, e: Expr, mask: Expr | None) -> Expr:
        """The value of `e` in all lanes: a scalar if it does not vary, else a vector."""
        key = (e, mask)
        value = self.memo.get(key)
        if value is None:
            if self.differs(e):
                value = self.varying(e, mask)
            else:
                value = self.invariant(e, mask)
            self.memo[key] = value
        return value

    def vector(self, e: Expr, mask: Expr | None) -> Expr:
        new = self.expr(e, mask)
        return new if new.lanes == self.lanes else ir.Broadcast(new, self.lanes)

    def invariant(self, e: Expr, mask: Expr | None) -> Expr:
        """The value of `e`, which does not vary.  The loads and checks in `e` must not run if no
        lane needs the value.
        """
        if mask is None or not _is_guarded(e):
            return e
        if mask in self.some_lane:
            return e
        return ir.Select(ir.VectorReduce("or", mask), e, const(0, e.dtype))

    def varying(self, e: Expr, mask: Expr | None) -> Expr:
        if isinstance(e, Var):
            return self.env[e]
        if e.dtype is i64 and isinstance(e, (ir.Binary, ir.Unary)):
            ramp = self.ramp(e, mask)
            if ramp is not None:
                return ramp
        if isinstance(e, ir.Load):
            return self.load(e, mask)
        if isinstance(e, ir.Select):
            return self.select(e, mask)
        if isinstance(e, ir.Let):
            return self.let(e, mask)
        is_first = mask is None or 0 in self.some_lane.get(mask, ())
        if is_first and (one := self.one_check(e)) is not None:
            return ir.Broadcast(one, self.lanes)
        if e.lanes != 1 or isinstance(e, (ir.Ramp, ir.Broadcast, ir.VectorReduce)):
            raise CannotVectorizeError
        children = [self.vector(c, mask) for c in e.children]
        if (
            isinstance(e, ir.Binary)
            and e.op in _DIVISIONS
            and mask is not None
            and not e.dtype.is_float
            and not isinstance(e.b, ir.Const)
        ):
            # An inactive lane might divide by zero.  Only integer divisions trap.
            active = mask if mask.lanes == self.lanes else ir.Broadcast(mask, self.lanes)
            children[1] = ir.Select(
                active, children[1], ir.Broadcast(const(1, e.dtype), self.lanes)
            )
        return e.with_children(tuple(children))

    def one_check(self, e: Expr) -> Expr | None:
        """One check for all lanes, if `e` is a check with the same index and extent in all lanes.
        Its report has the position of the first lane.  None for other expressions.
        """
        if not is_check(e) or any(map(self.differs, e.children[:2])):
            return None
        position = substitute(e.children[2], {self.var: self.start})
        return None if self.differs(position) else e.with_children((*e.children[:2], position))

    def ramp(self, e: Expr, mask: Expr | None) -> Expr | None:
        """An affine index as one ramp with a scalar base and a stride; None if it is not affine."""
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
                else simplify(self.expr(atom, mask), self.ctx)
            )
            if isinstance(new, ir.Ramp):
                total = _accumulate(base, new.base, k, total)
                extra = _accumulate(stride, new.stride, k, 0)
                if extra:
                    stride[const(1)] = stride.get(const(1), 0) + extra
            elif isinstance(new, ir.Broadcast):
                total = _accumulate(base, new.value, k, total)
            else:
                assert new is not None
                others.append((new, k))
        step = stride.pop(const(1), 0)
        start = from_affine(base, total)
        result: Expr = ir.Broadcast(start, self.lanes)
        if step or stride:
            result = ir.Ramp(start, from_affine(stride, step), self.lanes)
        for vector, k in others:
            term = (
                vector if k == 1 else ir.Binary("mul", vector, ir.Broadcast(const(k), self.lanes))
            )
            result = ir.Binary("add", result, term)
        return result

    def load(self, e: ir.Load, mask: Expr | None) -> Expr:
        assert isinstance(e.buffer, Buffer)
        if len(e.indices) != 1:
            raise CannotVectorizeError
        index = self.address(e.buffer, e.indices[0], mask)
        if mask is not None and self.is_inside(e.buffer, index):
            mask = None
        if e.mask is not None:
            mask = _both(mask, self.vector(e.mask, mask))
        return ir.Load(self.private.get(e.buffer, e.buffer), (index,), mask)

    def address(self, buffer: Buffer, index: Expr, mask: Expr | None) -> Expr:
        if buffer in self.private:
            one = const(1)
            return self.vector(index, mask) * const(self.lanes) + ir.Ramp(const(0), one, self.lanes)
        return self.vector(index, mask)

    def is_inside(self, buffer: Buffer, index: Expr) -> bool:
        """Whether `buffer` is in registers and all lanes of the index are inside it.  Then reads in
        lanes that don't need the value do no harm.
        """
        index = simplify(index, self.ctx)
        if buffer.scope != "register" or buffer in self.private or not isinstance(index, ir.Ramp):
            return False
        size, stride = buffer.shape[0], index.stride
        size = int(size.value) if isinstance(size, ir.Const) else size
        if not isinstance(size, int) or stride is not const(1):
            return False
        low, high, *_ = self.ctx.interval(index.base)
        return low is not None and high is not None and low >= 0 and high + index.lanes <= size

    def select(self, e: ir.Select, mask: Expr | None) -> Expr:
        cond = self.expr(e.cond, mask)
        if cond.lanes == 1:
            return ir.Select(cond, self.vector(e.if_true, mask), self.vector(e.if_false, mask))
        cond = simplify(cond, self.ctx)
        if isinstance(cond, ir.Broadcast):
            scalar = ir.Select(
                cond.value, self.vector(e.if_true, mask), self.vector(e.if_false, mask)
            )
            return simplify(scalar, self.ctx)
        yes = self.narrower(mask, cond, e.cond) if _needs_mask(e.if_true) else mask
        no = mask
        if _needs_mask(e.if_false):
            no = self.narrower(mask, ir.Unary("not", cond), ir.Unary("not", e.cond))
        # The branches may use loads that the evaluation of the condition has made.
        known = dict(self.known.get(mask, {}))
        known |= {load: self.expr(load, mask) for load in _surely_loaded(e.cond)}
        for narrow in (m for m in (yes, no) if m is not mask):
            self.known[narrow] = known
            self.memo |= {(load, narrow): value for load, value in known.items()}
        return ir.Select(cond, self.vector(e.if_true, yes), self.vector(e.if_false, no))

    def let(self, e: ir.Let, mask: Expr | None) -> Expr:
        value = self.expr(e.value, mask)
        var = Var(e.var.name, e.var.type, value.lanes)
        if value.lanes > 1:
            self.env[e.var] = var
            self.varies.clear()  # its entries were made before `e.var` varied
            return ir.Let(var, value, self.vector(e.body, mask))
        return ir.Let(var, value, self.vector(substitute(e.body, {e.var: var}), mask))

    def narrower(self, mask: Expr | None, cond: Expr, scalar: Expr) -> Expr:
        """The mask `mask and cond`, where `cond` is the vector of the condition `scalar`.  The
        method records in `some_lane` where the result is surely true.
        """
        both = _both(mask, cond)
        lanes = frozenset((0, -1)) if mask is None else self.some_lane.get(mask, frozenset())
        ends = {0: self.start, -1: self.start + const(self.lanes - 1)}
        sure = [i for i in lanes if can_prove(substitute(scalar, {self.var: ends[i]}), self.ctx)]
        if sure:
            self.some_lane[both] = frozenset(sure)
        return both


def _is_guarded(e: Expr) -> bool:
    return any(map(needs_guard, post_order(e)))


def _both(mask: Expr | None, cond: Expr) -> Expr:
    return cond if mask is None else ir.Binary("and", mask, cond)


def _surely_loaded(cond: Expr) -> list[ir.Load]:
    """The loads that each evaluation of a condition makes."""

    def inside(e: Expr) -> tuple[Expr, ...]:
        return (
            ()
            if isinstance(e, ir.Let)
            else e.children[:1]
            if isinstance(e, ir.Select)
            else e.children
        )

    return [e for e in reached([cond], inside) if isinstance(e, ir.Load)]


def _accumulate(terms: dict[Expr, int], e: Expr, k: int, constant: int) -> int:
    """Add the terms of `k * e` to `terms`.  Returns the sum of `constant` and its constant part."""
    inner, c = affine_form(e)
    for atom, n in inner.items():
        terms[atom] = terms.get(atom, 0) + k * n
    return constant + k * c


def _needs_mask(e: Expr) -> bool:
    """Whether a branch must be evaluated only in the lanes that take it: it loads, checks or may
    divide by 0.
    """
    return any(
        needs_guard(n)
        or (isinstance(n, ir.Binary) and n.op in _DIVISIONS and not isinstance(n.b, ir.Const))
        for n in post_order(e)
    )
