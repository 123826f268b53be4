"""Proofs that every read of a tensor expression is inside its tensor, whatever the schedule.

The proof for an index uses the extents of the axes, the conditions of the selects around the read,
and clamps in the index itself.  No index is checked at run time, so a read without a proof is
refused.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

from tilesmith.ir import expr as ir
from tilesmith.ir.affine import combined
from tilesmith.ir.bounds import eliminate
from tilesmith.ir.context import Context
from tilesmith.ir.expr import Expr, Var, all_of, any_of, const, free_vars, reads_memory, substitute
from tilesmith.ir.types import Dim, same_dim
from tilesmith.loop.nodes import Assert
from tilesmith.support.errors import ExpressionError

from .relations import dim_expr
from .rewrite import guarded_loads, loads, map_loads
from .tensor import Compute, Extern, Operation, Placeholder, Reduce, Tensor

Readable = Callable[[Tensor, int], tuple[int, Dim]]
"""The range of indices that may be read in a dimension of a tensor: (first, one past the last)."""

_LONGEST = 100  # upper bound on the characters of an expression in a message


def check_reads(
    ops: Iterable[Compute], readable: Readable, symbols: frozenset[Var], facts: Context
) -> list[Assert]:
    """Check all reads of `ops` and their producers.

    symbols: the variables of symbolic extents; `facts` hold for them.

    Returns assertions that the program checks once, before the loops: a dimension of symbolic
    extent must not be empty if data choose the element to read from it.

    Raises ExpressionError for a read that may leave its tensor, and for a variable that is no axis.
    """
    stack: list[Operation] = list(ops)
    seen: set[Operation] = set(stack)
    asserted: dict[Expr, Assert] = {}
    starts: dict[Operation, int] = {}  # for each stage inside a scan, its first step
    while stack:
        op = stack.pop()
        if isinstance(op, Placeholder):
            continue
        if op.recurrence is not None:
            starts |= dict.fromkeys(op.recurrence.inside, op.recurrence.given)
        if not isinstance(op, Extern):
            asserted |= _Reads(op, readable, facts, starts.get(op, 0)).check(symbols)
        for tensor in op.inputs:
            if tensor.op not in seen:
                seen.add(tensor.op)
                stack.append(tensor.op)
    return list(asserted.values())


@dataclass(frozen=True, slots=True)
class _Index:
    """An index of a read that is not proved yet.

    value: the index.
    dimension: the number of the dimension that it indexes.
    first, end: the range in which the index must be; `end` is one past the last.
    """

    value: Expr
    dimension: int
    first: int
    end: Dim


class _Reads:
    """The reads of one operation, whose first axis begins at `start`."""

    def __init__(self, op: Compute, readable: Readable, facts: Context, start: int) -> None:
        self.op = op
        self.start = start
        self.readable = readable
        self.facts = facts
        self.extents: dict[Expr, Dim] = {a.var: a.extent for a in (*op.axis, *op.reduce_axis)}
        self._context: Context | None = None
        self._asserted: dict[Expr, Assert] = {}

    @property
    def context(self) -> Context:
        """The given facts and the range of each axis."""
        if self._context is None:
            facts = self.facts.with_box(self._box)
            for n in self.extents.values():
                if isinstance(n, Expr):
                    facts = facts.assuming(n >= 1)  # with extent 0 nothing is computed
            if self.start:
                facts = facts.assuming(self.op.axis[0].var >= self.start)
            self._context = facts
        return self._context

    def check(self, symbols: frozenset[Var]) -> dict[Expr, Assert]:
        op = self.op
        sources = op.body[0].sources if isinstance(op.body[0], Reduce) else op.body
        for source in sources:
            for var in free_vars(source):
                if var not in self.extents and var not in symbols:
                    raise self._unknown(var)
        if any(isinstance(n, int) and n == 0 for n in self.extents.values()):
            return {}  # nothing is computed
        if self.start and isinstance(op.axis[0].extent, int) and op.axis[0].extent <= self.start:
            return {}
        open_ = {load: indices for load in loads(sources) if (indices := self._unproved(load))}
        if open_:
            for source in sources:
                for load, conds in guarded_loads(source):
                    if load in open_:
                        self._check_guarded(load, open_[load], conds)
        return self._asserted

    def _unproved(self, load: ir.Load) -> list[_Index]:
        """The indices of `load` whose proof needs more than the ranges of the axes."""
        unproved: list[_Index] = []
        assert isinstance(load.buffer, Tensor)
        for n, value in enumerate(load.indices):
            first, end = self.readable(load.buffer, n)
            extent = self.extents.get(value)
            if extent is not None and (
                same_dim(extent, end)
                or (isinstance(extent, int) and isinstance(end, int) and extent <= end)
            ):
                continue
            index = _Index(value, n, first, end)
            if not all(self._inside(index, self.context)):
                unproved.append(index)
        return unproved

    def _inside(self, index: _Index, ctx: Context) -> tuple[bool, bool]:
        """Whether `index` is proved to be at least the first and at most the last element."""
        low, high = _inside(index, ctx)
        if not (low and high) and reads_memory(index.value):
            (value,) = map_loads((index.value,), _computed)
            if value is not index.value:
                return self._inside(replace(index, value=value), ctx)
        return low, high

    def _check_guarded(self, load: ir.Load, indices: list[_Index], conds: tuple[Expr, ...]) -> None:
        ctx = self.context
        for cond in conds:
            if ctx.simplify(cond) is const(False):
                return  # nothing reads the tensor
            ctx = ctx.assuming(cond)
        for index in indices:
            low, high = self._inside(index, ctx)
            if not (low and high):
                low, high = self._ends_inside(index, ctx)
            if not (low and high) and not self._is_inside_unless_empty(load, index, ctx):
                raise self._error(load, index, low, high)

    def _ends_inside(self, index: _Index, ctx: Context) -> tuple[bool, bool]:
        """Like `_inside`, but proves that the smallest and the largest value of the index over all
        axes are inside.  This works for indices that contain products of axes, too.
        """
        ends = eliminate(index.value, self._box, ctx)
        if ends is None:
            return False, False
        low, high = (replace(index, value=e) for e in ends)
        return _inside(low, ctx)[0], _inside(high, ctx)[1]

    @property
    def _box(self) -> dict[Var, tuple[ir.ExprLike, ir.ExprLike]]:
        """The range of each axis."""
        return {v: (0, dim_expr(n) - 1) for v, n in self.extents.items() if isinstance(v, Var)}

    def _is_inside_unless_empty(self, load: ir.Load, index: _Index, ctx: Context) -> bool:
        """Whether `index` is inside provided that its dimension, of symbolic extent, is not empty.
        If so, adds an assertion that the dimension is not empty.
        """
        if not isinstance(index.end, Expr):
            return False
        some = index.end >= 1
        if not all(self._inside(index, ctx.assuming(some))):
            return False
        mine = (dim_expr(n) <= 0 for n in self.extents.values() if isinstance(n, Expr))
        message = (
            f"{self.op.name}: {load.buffer.name} has no element in dimension {index.dimension}, "
            f"but {_shown(load)} reads one"
        )
        before = self._asserted.get(load)  # an assertion for another dimension of this read
        fine = any_of(some, *mine)
        if before is not None:
            fine = all_of(before.cond, fine)
            message = (
                f"{self.op.name}: {load.buffer.name} has no element, but {_shown(load)} reads one"
            )
        self._asserted[load] = Assert(fine, message)
        return True

    def _unknown(self, var: Var) -> ExpressionError:
        reduced = ", ".join(a.name for a in self.op.reduce_axis)
        axes = ", ".join(a.name for a in self.op.axis)
        return ExpressionError(
            f"{self.op.place}: the expression uses the variable {var.name}, which is neither an "
            f"index ({axes or 'there is none'}), nor an axis that the reduction lists "
            f"({reduced or 'there is no reduction'}), nor part of an extent; list a reduction axis "
            "in axis=, once"
        )

    def _error(self, load: ir.Load, index: _Index, low: bool, high: bool) -> ExpressionError:
        name, text = load.buffer.name, _shown(index.value)
        last = _shown(self.facts.simplify(dim_expr(index.end) - 1))
        clamp, guards = text, []
        if not low:
            clamp = f"te.maximum({clamp}, {index.first})"
            guards.append(f"{text} >= {index.first}")
        if not high:
            clamp = f"te.minimum({clamp}, {last})"
            guards.append(f"{text} < {index.end}")
        guard = guards[0] if len(guards) == 1 else f"te.all({', '.join(guards)})"
        cure = (
            f"guard the read, as in te.if_then_else({guard}, {name}[...], value), or clamp the "
            f"index, as in {clamp}"
        )
        if type(index.value) is ir.Const:
            cure = "indices count from 0 at the front"
        return ExpressionError(
            f"{self.op.place}: the read {_shown(load)} may leave {name}: index {text} of dimension "
            f"{index.dimension} {self._range(index.value)}, allowed is {index.first} to {last}; "
            f"{cure}"
        )

    def _range(self, value: Expr) -> str:
        bounds = eliminate(value, self._box, self.facts)
        if bounds is None:
            what = "is read from memory and" if reads_memory(value) else ""
            return f"{what} may have any value".strip()
        if bounds[0] is bounds[1]:
            return f"is {_shown(bounds[0])}"
        return f"runs from {_shown(bounds[0])} to {_shown(bounds[1])}"


def _computed(load: ir.Load) -> Expr:
    """The element that `load` reads, as an expression if a compute without reduction defines it."""
    assert isinstance(load.buffer, Tensor)
    op = load.buffer.op
    if isinstance(op, (Placeholder, Extern)) or isinstance(op.body[0], Reduce):
        return load
    point = dict(zip((a.var for a in op.axis), load.indices, strict=True))
    return substitute(op.body[load.buffer.index], point)  # type: ignore[arg-type]  # Vars are Exprs


def _inside(index: _Index, ctx: Context) -> tuple[bool, bool]:
    """Whether `index` is proved to be at least the first and at most the last element."""
    values = ctx.interval(index.value)
    end = index.end
    low = values.lo is not None and values.lo >= index.first
    high = isinstance(end, int) and values.hi is not None and values.hi < end
    if low and high:
        return True, True
    form = ctx.affine(index.value)
    if len(form[0]) + (form[1] != 0) > 1 and not ctx.is_exact(form):
        return low, high  # the sum may wrap around
    low = low or ctx.nonnegative((form[0], form[1] - index.first))
    last = ctx.affine(dim_expr(end) - 1)
    return low, high or ctx.nonnegative(combined(last, form, -1))


def _shown(e: Expr) -> str:
    text = str(e)
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 3]}..."
