"""The base of all expressions, and the nodes that Python's operators make."""

from __future__ import annotations

import math
import struct
from dataclasses import dataclass
from typing import Any, TypeAlias

from tilesmith.ir.dtypes import DType, bool_, f32, i64
from tilesmith.support.errors import ExpressionError

from .interned import Interned, Typed

ExprLike: TypeAlias = "Expr | int | float | bool"


@dataclass(frozen=True, slots=True, eq=False, repr=False, weakref_slot=True)
class Expr(Typed, metaclass=Interned):
    """Base of all expressions.

    Arithmetic operators build nodes; folding constants is left to the simplifier.  `==` is
    identity: use `.equal(other)` for a comparison node.
    """

    @classmethod
    def _key(cls, args: tuple[Any, ...]) -> Any:
        """The key by which the node is interned; None if each is a node of its own."""
        return (cls, args)

    def _infer(self) -> tuple[DType, int]:
        """The type and lanes, determined once when the node is made."""
        raise NotImplementedError

    @property
    def children(self) -> tuple[Expr, ...]:
        """The sub-expressions, in field order."""
        raise NotImplementedError

    def with_children(self, children: tuple[Expr, ...]) -> Expr:
        """The same node over other children (as many, in the order of `children`)."""
        raise NotImplementedError

    def __add__(self, other: ExprLike) -> Expr:
        return binary("add", self, other)

    def __radd__(self, other: ExprLike) -> Expr:
        return binary("add", other, self)

    def __sub__(self, other: ExprLike) -> Expr:
        return binary("sub", self, other)

    def __rsub__(self, other: ExprLike) -> Expr:
        return binary("sub", other, self)

    def __mul__(self, other: ExprLike) -> Expr:
        return binary("mul", self, other)

    def __rmul__(self, other: ExprLike) -> Expr:
        return binary("mul", other, self)

    def __truediv__(self, other: ExprLike) -> Expr:
        return binary("div", self, other)

    def __rtruediv__(self, other: ExprLike) -> Expr:
        return binary("div", other, self)

    def __floordiv__(self, other: ExprLike) -> Expr:
        return binary("floordiv", self, other)

    def __rfloordiv__(self, other: ExprLike) -> Expr:
        return binary("floordiv", other, self)

    def __mod__(self, other: ExprLike) -> Expr:
        return binary("floormod", self, other)

    def __rmod__(self, other: ExprLike) -> Expr:
        return binary("floormod", other, self)

    def __neg__(self) -> Expr:
        if self.dtype.is_bool:
            raise ExpressionError(f"-({self}): there is no negative of a bool; cast it first")
        return Unary("neg", self)

    def __lt__(self, other: ExprLike) -> Expr:
        return compare("lt", self, other)

    def __le__(self, other: ExprLike) -> Expr:
        return compare("le", self, other)

    def __gt__(self, other: ExprLike) -> Expr:
        return compare("lt", other, self)

    def __ge__(self, other: ExprLike) -> Expr:
        return compare("le", other, self)

    def equal(self, other: ExprLike) -> Expr:
        """The comparison node `self == other`."""
        return compare("eq", self, other)

    def not_equal(self, other: ExprLike) -> Expr:
        """The comparison node `self != other`."""
        return compare("ne", self, other)

    def __bool__(self) -> bool:
        raise ExpressionError(
            "an expression has no truth value while the program is being built; "
            "use te.if_then_else(cond, a, b), and te.all/te.any to combine conditions"
        )

    def __str__(self) -> str:
        from tilesmith.ir import (
            text,  # the printer needs every node class; one place breaks the cycle
        )

        return text.print_expr(self)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self}>"


@dataclass(frozen=True, slots=True, eq=False, repr=False, weakref_slot=True)
class Var(Expr):
    """A variable.  Never interned: two Vars with one name are two variables.

    name: label for people.
    type: element type.
    size: lanes.
    """

    name: str
    type: DType = i64
    size: int = 1  # lanes

    @classmethod
    def _key(cls, args: tuple[Any, ...]) -> Any:
        return None

    def _infer(self) -> tuple[DType, int]:
        return self.type, self.size

    @property
    def children(self) -> tuple[Expr, ...]:
        return ()

    def with_children(self, children: tuple[Expr, ...]) -> Expr:
        return self


@dataclass(frozen=True, slots=True, eq=False, repr=False, weakref_slot=True)
class Const(Expr):
    """A literal.

    value: int, float or bool, as `type` says; use `const()` to normalise.
    type: element type.
    """

    value: int | float | bool
    type: DType = i64

    @classmethod
    def _key(cls, args: tuple[Any, ...]) -> Any:
        value = args[0]
        type_ = args[1] if len(args) > 1 else i64
        if isinstance(value, float):  # -0.0 and NaN payloads are values of their own
            return (cls, struct.pack("<d", value), type_.name)
        return (cls, value, type_.name, type(value) is bool)

    def _infer(self) -> tuple[DType, int]:
        return self.type, 1

    @property
    def children(self) -> tuple[Expr, ...]:
        return ()

    def with_children(self, children: tuple[Expr, ...]) -> Expr:
        return self


UNARY_OPS = ("neg", "not")
"""`neg` on numbers; `not` is logical on bools and bitwise on integers."""

BINARY_OPS = (
    "add", "sub", "mul", "div", "floordiv", "floormod", "truncdiv", "truncmod",
    "min", "max", "and", "or", "xor", "shl", "shr",
)  # fmt: skip
"""Both operands have one dtype and lane count, which are the result's."""

COMPARE_OPS = ("eq", "ne", "lt", "le")


@dataclass(frozen=True, slots=True, eq=False, repr=False, weakref_slot=True)
class Unary(Expr):
    """An operation on one operand.

    op: one of `UNARY_OPS`.
    a: the operand.
    """

    op: str
    a: Expr

    def _infer(self) -> tuple[DType, int]:
        return self.a.dtype, self.a.lanes

    @property
    def children(self) -> tuple[Expr, ...]:
        return (self.a,)

    def with_children(self, children: tuple[Expr, ...]) -> Expr:
        return Unary(self.op, *children)


@dataclass(frozen=True, slots=True, eq=False, repr=False, weakref_slot=True)
class _Pair(Expr):
    """An operation on two operands of one dtype and lane count."""

    op: str
    a: Expr
    b: Expr

    def __post_init__(self) -> None:
        if self.a.dtype is not self.b.dtype or self.a.lanes != self.b.lanes:
            raise ExpressionError(
                f"{self.op} needs two operands of one type, got {type_text(self.a)} and "
                f"{type_text(self.b)}"
            )

    @property
    def children(self) -> tuple[Expr, ...]:
        return (self.a, self.b)

    def with_children(self, children: tuple[Expr, ...]) -> Expr:
        return type(self)(self.op, *children)


class Binary(_Pair):
    """One of `BINARY_OPS`."""

    __slots__ = ()

    def _infer(self) -> tuple[DType, int]:
        return self.a.dtype, self.a.lanes


class Compare(_Pair):
    """One of `COMPARE_OPS`; gives bools, as many as the operands have lanes."""

    __slots__ = ()

    def _infer(self) -> tuple[DType, int]:
        return bool_, self.a.lanes


@dataclass(frozen=True, slots=True, eq=False, repr=False, weakref_slot=True)
class Broadcast(Expr):
    """A scalar repeated in all lanes.

    value: the scalar.
    size: number of lanes.
    """

    value: Expr
    size: int

    def _infer(self) -> tuple[DType, int]:
        return self.value.dtype, self.size

    @property
    def children(self) -> tuple[Expr, ...]:
        return (self.value,)

    def with_children(self, children: tuple[Expr, ...]) -> Expr:
        return Broadcast(children[0], self.size)


def type_text(e: Expr) -> str:
    """`f32` or `f32x16`."""
    return e.dtype.name if e.lanes == 1 else f"{e.dtype.name}x{e.lanes}"


_KEPT = 1 << 16
_integers: dict[int, Const] = {}
"""Literals of type i64 up to `_KEPT`, which are most of all literals."""


def const(value: int | float | bool, dtype: DType | None = None) -> Const:
    """A literal of `dtype` (default: bool, i64 or f32, by the type of `value`), wrapped to its
    range.
    """
    if type(value) is int and (dtype is None or dtype is i64) and abs(value) <= _KEPT:
        found = _integers.get(value)
        if found is None:
            found = _integers[value] = Const(value, i64)
        return found
    if dtype is None:
        dtype = bool_ if isinstance(value, bool) else i64 if isinstance(value, int) else f32
    if dtype.is_float:
        number = float(value)
        if number != number:
            return Const(math.nan, dtype)  # one literal for every NaN, so that its text is exact
        return Const(float(dtype.numpy.type(number)) if dtype.bits < 64 else number, dtype)
    if dtype.is_bool:
        return Const(bool(value), dtype)
    wrapped = int(value) & ((1 << dtype.bits) - 1)
    if dtype.kind == "int" and wrapped >> (dtype.bits - 1):
        wrapped -= 1 << dtype.bits
    return Const(wrapped, dtype)


def as_expr(value: ExprLike, like: Expr | None = None) -> Expr:
    """`value` as an expression; a Python number takes the dtype and lanes of `like`."""
    if isinstance(value, Expr):
        return value
    if hasattr(value, "__as_expr__"):  # te.IterVar and 0-d te.Tensor
        return value.__as_expr__()  # type: ignore[union-attr]
    if hasattr(value, "item"):  # a NumPy scalar
        value = value.item()  # type: ignore[union-attr]
    if not isinstance(value, (int, float)):
        raise ExpressionError(
            f"expected an expression or a number, got {type(value).__name__}: {value!r}"
        )
    if like is None:
        return const(value)
    if isinstance(value, float) and not like.dtype.is_float:
        raise ExpressionError(
            f"the float {value} does not fit an operand of type {type_text(like)}; cast first"
        )
    literal = const(value, like.dtype)
    return Broadcast(literal, like.lanes) if like.lanes > 1 else literal


def pair(a: ExprLike, b: ExprLike) -> tuple[Expr, Expr]:
    if hasattr(a, "__as_expr__"):
        a = as_expr(a)
    if hasattr(b, "__as_expr__"):
        b = as_expr(b)
    ea = as_expr(a, b if isinstance(b, Expr) else None)
    eb = as_expr(b, ea)
    if ea.lanes == 1 and eb.lanes > 1:
        ea = Broadcast(ea, eb.lanes)
    elif eb.lanes == 1 and ea.lanes > 1:
        eb = Broadcast(eb, ea.lanes)
    return ea, eb


def binary(op: str, a: ExprLike, b: ExprLike) -> Expr:
    """`Binary(op, a, b)` with numbers converted and scalars broadcast to match.

    Raises ExpressionError if `op` does not exist for the operands' type.
    """
    ea, eb = pair(a, b)
    if op in _UNDEFINED[ea.dtype.kind]:
        raise _undefined(op, ea, eb)
    return Binary(op, ea, eb)


_UNDEFINED: dict[str, frozenset[str]] = {
    "float": frozenset(("and", "or", "xor", "shl", "shr")),
    "int": frozenset(("div",)), "uint": frozenset(("div",)),
    "bool": frozenset(BINARY_OPS) - {"and", "or", "xor", "min", "max"},
}  # fmt: skip
"""Operations that do not exist, by the kind of the operands' type."""


def _undefined(op: str, a: Expr, b: Expr) -> ExpressionError:
    if op == "div":
        return ExpressionError(
            f"{a} / {b}: / divides floats, found {type_text(a)}; write // for a whole quotient, or "
            "cast to a float first"
        )
    return ExpressionError(f"{op}({a}, {b}) is not defined on {type_text(a)}; cast first")


def compare(op: str, a: ExprLike, b: ExprLike) -> Expr:
    """`Compare(op, a, b)` with numbers converted and scalars broadcast to match."""
    return Compare(op, *pair(a, b))
