"""The other nodes: choices, conversions, memory, functions, vectors and bindings."""

from __future__ import annotations

from typing import Any, Protocol

from tilesmith.ir.dtypes import DType, bool_
from tilesmith.ir.dtypes import dtype as to_dtype
from tilesmith.ir.grammar import Binder, Body, Label, Operand, Reference
from tilesmith.support.errors import ExpressionError

from .arithmetic import (
    Broadcast,
    Const,
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
    """What a `Load` reads: a `loop.Buffer` or a `te.Tensor`."""

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
    if_true: the value where it holds.
    if_false: the value elsewhere.
    """

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
class Cast(Expr):
    """Value conversion, lane by lane.

    a: the operand.
    type: element type of the result.
    """

    a: Operand[Expr]
    type: Label[DType]

    def _infer(self) -> tuple[DType, int]:
        return self.type, self.a.lanes


@node
class Load(Expr):
    """Read `buffer[indices]`.  After vectorising, an index may be a vector; then so is the result.

    buffer: what is read.
    indices: one per dimension.
    mask: bool, as many lanes; where it is false nothing is read and the value is 0.
    """

    buffer: Reference[BufferLike]
    indices: Operand[tuple[Expr, ...]]
    mask: Operand[Expr | None] = None

    def _infer(self) -> tuple[DType, int]:
        return self.buffer.dtype, max((i.lanes for i in self.indices), default=1)


@node
class Call(Expr):
    """A pure function applied lane by lane.

    name: one of `ir.intrinsics.INTRINSICS`.
    args: the arguments.
    type: element type of the result.
    """

    name: Label[str]
    args: Operand[tuple[Expr, ...]]
    type: Label[DType]

    def _infer(self) -> tuple[DType, int]:
        return self.type, max((a.lanes for a in self.args), default=1)


@node
class TensorCall(Expr):
    """An instruction on whole vectors, not lane by lane: operands may have several types and sizes.

    name: one of `ir.tensor_intrinsics`.
    args: the vectors, row-major tiles of the declared shapes.
    type: element type of the result.
    size: lanes of the result.
    """

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

    op: Label[str]
    a: Operand[Expr]
    size: Label[int] = 1

    def _infer(self) -> tuple[DType, int]:
        return self.a.dtype, self.size


def select(cond: Expr, if_true: ExprLike, if_false: ExprLike) -> Expr:
    """`Select` with numbers converted and scalars broadcast to match."""
    a, b = pair(if_true, if_false)
    return Select(as_expr(cond), a, b)


def cast(a: ExprLike, dtype: DType | str) -> Expr:
    """`a` converted to `dtype`; `a` itself if it has it already."""
    e = as_expr(a)
    if not isinstance(dtype, DType):
        dtype = to_dtype(dtype)
    if e.dtype is dtype:
        return e
    return (
        const(e.value, dtype) if isinstance(e, Const) and not e.dtype.is_float else Cast(e, dtype)
    )


_SMALL_POWERS = (0, 1, 2, 3, -1)


def power(x: ExprLike, y: ExprLike) -> Expr:
    """`x` to the power `y`.

    Constant exponents become products where that is exact: all that are not negative for integers,
    and 0, 1, 2 and -1 for floats.  The exponent 3 of floats gives `x * x * x`, which rounds twice.
    Raises ExpressionError for integers with an exponent that is negative or no constant.
    """
    base, exponent = pair(x, y)
    literal = exponent.value if isinstance(exponent, Broadcast) else exponent
    n = literal.value if isinstance(literal, Const) else None
    if base.dtype.is_float:
        if n is None or n not in _SMALL_POWERS:
            return Call("pow", (base, exponent), base.dtype)
        if n == -1:
            return binary("div", 1.0, base)
    elif not base.dtype.is_int or n is None or n < 0:
        raise ExpressionError(
            f"{base} ** {exponent} of {type_text(base)}: integers take a constant exponent from 0; "
            "cast to a float, or write 1 << n for a power of 2"
        )
    result = None
    for bit in bin(int(n))[2:]:
        if result is not None:
            result = binary("mul", result, result)
        if bit == "1":
            result = base if result is None else binary("mul", result, base)
    return as_expr(1, base) if result is None else result


def absolute(x: ExprLike) -> Expr:
    """The absolute value of a number; that of the smallest signed integer is itself."""
    e = as_expr(x)
    if e.dtype.is_bool:
        raise ExpressionError(f"abs({e}) is not defined on bool; cast first")
    return e if e.dtype.kind == "uint" else Call("abs", (e,), e.dtype)


def minimum(a: ExprLike, b: ExprLike) -> Expr:
    """The smaller of two numbers."""
    return binary("min", a, b)


def maximum(a: ExprLike, b: ExprLike) -> Expr:
    """The larger of two numbers."""
    return binary("max", a, b)


def all_of(*conds: Expr) -> Expr:
    """Conjunction; `true` for none."""
    result: Expr = const(True)
    for c in conds:
        result = c if result is const(True) else binary("and", result, c)
    return result


def any_of(*conds: Expr) -> Expr:
    """Disjunction; `false` for none."""
    result: Expr = const(False)
    for c in conds:
        result = c if result is const(False) else binary("or", result, c)
    return result
