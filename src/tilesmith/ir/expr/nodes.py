"""Nodes other than arithmetic: choices, conversions, memory, functions, vectors and bindings."""

from __future__ import annotations

from typing import Any, Protocol

from tilesmith.ir.dtypes import DType, bool_
from tilesmith.ir.grammar import Binder, Body, Label, Operand, Reference
from tilesmith.support.errors import ExpressionError

from .arithmetic import (
    Expr,
    ExprLike,
    Var,
    as_expr,
    binary,
    const,
    pair,
    type_text,
)
from .declared import node


class BufferLike(Protocol):
    """The memory that a `Load` reads: a `loop.Buffer` or a `te.Tensor`."""

    @property
    def name(self) -> str: ...
    @property
    def dtype(self) -> DType: ...
    @property
    def shape(self) -> tuple[Any, ...]: ...


@node
class Select(Expr):
    """A choice; only the chosen branch is evaluated.

    cond: the condition.
    if_true: the value where the condition holds.
    if_false: the value where the condition does not hold.
    """

    syntax = "select({cond}, {if_true}, {if_false})"
    cond: Operand[Expr]
    if_true: Operand[Expr]
    if_false: Operand[Expr]

    def __post_init__(self) -> None:
        a, b = self.if_true, self.if_false
        if self.cond.dtype is not bool_ or a.dtype is not b.dtype or a.lanes != b.lanes:
            raise ExpressionError(
                "select needs a bool condition and branches of one type, got "
                f"{type_text(self.cond)}, {type_text(a)}, {type_text(b)}"
            )
        if self.cond.lanes not in (1, a.lanes):
            raise ExpressionError(f"select of {a.lanes} lanes has a condition of {self.cond.lanes}")

    def _infer(self) -> tuple[DType, int]:
        return self.if_true.dtype, self.if_true.lanes


@node
class Load(Expr):
    """Read `buffer[indices]`.  After vectorising, an index may be a vector; then the result is a
    vector, too.

    buffer: the memory.
    indices: one per dimension.
    mask: a bool with as many lanes as the result.  Where it is false, nothing is read and the value
        is 0.
    """

    syntax = "{buffer:name}{indices:access}"
    buffer: Reference[BufferLike]
    indices: Operand[tuple[Expr, ...]]
    mask: Operand[Expr | None] = None

    def _infer(self) -> tuple[DType, int]:
        return self.buffer.dtype, max((i.lanes for i in self.indices), default=1)


@node
class TensorCall(Expr):
    """An instruction on whole vectors, not lane by lane: operands may have several types and sizes.

    name: one of `ir.tensor_intrinsics`.
    args: the vectors, row-major tiles of the declared shapes.
    type: element type of the result.
    size: lanes of the result.
    """

    syntax = "tensor_{name:intrinsic}({args})"
    name: Label[str]
    args: Operand[tuple[Expr, ...]]
    type: Label[DType]
    size: Label[int]

    def _infer(self) -> tuple[DType, int]:
        return self.type, self.size


@node
class Ramp(Expr):
    """The vector `base, base + stride, ...`; base and stride are scalars of one dtype.

    base: the first lane.
    stride: difference between lanes.
    size: number of lanes.
    """

    syntax = "ramp({base}, {stride}, {size:lanes})"
    base: Operand[Expr]
    stride: Operand[Expr]
    size: Label[int]

    def _infer(self) -> tuple[DType, int]:
        return self.base.dtype, self.size


@node
class Let(Expr):
    """`body` with `var` standing for `value`, evaluated once.

    var: the variable.
    value: its value.
    body: the expression that uses it.
    """

    syntax = "let({var:bound}, {body})"
    var: Binder[Var]
    value: Operand[Expr]
    body: Body[Expr]

    def _infer(self) -> tuple[DType, int]:
        return self.body.dtype, self.body.lanes


@node
class VectorReduce(Expr):
    """Combine groups of adjacent lanes.  The order of combination is unspecified (this is a
    declared reduction).

    op: add, mul, min, max, and, or.
    a: the vector.
    size: lanes of the result.
    """

    syntax = "reduce_{op:reduction}({a}, {size:lanes})"
    op: Label[str]
    a: Operand[Expr]
    size: Label[int] = 1

    def _infer(self) -> tuple[DType, int]:
        return self.a.dtype, self.size


def select(cond: Expr, if_true: ExprLike, if_false: ExprLike) -> Expr:
    """`Select` with numbers converted and scalars broadcast to match."""
    a, b = pair(if_true, if_false)
    return Select(as_expr(cond), a, b)


def minimum(a: ExprLike, b: ExprLike) -> Expr:
    """The smaller of two numbers."""
    return binary("min", a, b)


def maximum(a: ExprLike, b: ExprLike) -> Expr:
    """The larger of two numbers."""
    return binary("max", a, b)


def all_of(*conds: Expr) -> Expr:
    """Conjunction; `true` without conditions."""
    result: Expr = const(True)
    for c in conds:
        result = c if result is const(True) else binary("and", result, c)
    return result


def any_of(*conds: Expr) -> Expr:
    """Disjunction; `false` without conditions."""
    result: Expr = const(False)
    for c in conds:
        result = c if result is const(False) else binary("or", result, c)
    return result
