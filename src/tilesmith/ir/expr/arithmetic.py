"""The base of all expressions, and the nodes that Python's operators make."""

from __future__ import annotations

import math
import struct
from dataclasses import dataclass
from typing import Any, ClassVar, NoReturn, TypeAlias

import numpy as np

from tilesmith.ir.dtypes import DType, bool_, f32, i64
from tilesmith.ir.dtypes import dtype as to_dtype
from tilesmith.ir.grammar import Label, Operand, Slot
from tilesmith.ir.operations import DEFINED
from tilesmith.ir.sizes import Sizes
from tilesmith.ir.text import print_expr
from tilesmith.support.arguments import shown, stand_ins
from tilesmith.support.errors import ExpressionError

from .declared import node
from .interned import Interned, Typed

ExprLike: TypeAlias = "Operators | int | float | bool"


def type_text(e: Typed) -> str:
    """`f32` or `f32x16`."""
    return e.dtype.name if e.lanes == 1 else f"{e.dtype.name}x{e.lanes}"


def check_operands(op: str, *operands: Typed) -> None:
    """Raises ExpressionError unless `op` is defined on the operands' type."""
    a = operands[0]
    if a.dtype.kind in DEFINED[op] and not a.dtype.is_storage:
        return
    if op == "div":
        raise ExpressionError(
            f"{' / '.join(map(str, operands))}: / divides floats, found {type_text(a)}; write // "
            "for a whole quotient, or cast to a float first"
        )
    cure = "; in Python & and | bind more tightly than < and ==" if op in ("and", "or") else ""
    raise ExpressionError(
        f"{op}({', '.join(map(str, operands))}) is not defined on {type_text(a)}; cast first{cure}"
    )


class Operators:
    """Python's operators on expressions and on objects that stand for one (`te.IterVar`, a 0-d
    `te.Tensor`).

    Every operator makes a node, `==` too: `is` compares identity, and `loop.structural_equal`
    structure.  Nodes are hashed by identity.  So dicts and sets of expressions are safe, while `in`
    a list and `==` of tuples are not: use `same`.
    """

    __slots__ = ()
    __array_ufunc__ = None  # a NumPy scalar on the left leaves the operation to the expression
    __hash__ = object.__hash__

    def __as_expr__(self) -> Expr:
        """The expression that the object stands for."""
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

    def __and__(self, other: ExprLike) -> Expr:
        return binary("and", self, other)

    def __rand__(self, other: ExprLike) -> Expr:
        return binary("and", other, self)

    def __or__(self, other: ExprLike) -> Expr:
        return binary("or", self, other)

    def __ror__(self, other: ExprLike) -> Expr:
        return binary("or", other, self)

    def __xor__(self, other: ExprLike) -> Expr:
        return binary("xor", self, other)

    def __rxor__(self, other: ExprLike) -> Expr:
        return binary("xor", other, self)

    def __lshift__(self, other: ExprLike) -> Expr:
        return binary("shl", self, other)

    def __rlshift__(self, other: ExprLike) -> Expr:
        return binary("shl", other, self)

    def __rshift__(self, other: ExprLike) -> Expr:
        return binary("shr", self, other)

    def __rrshift__(self, other: ExprLike) -> Expr:
        return binary("shr", other, self)

    def __pow__(self, other: ExprLike) -> Expr:
        return power(self, other)

    def __rpow__(self, other: ExprLike) -> Expr:
        return power(other, self)

    def __abs__(self) -> Expr:
        return absolute(self)

    def __neg__(self) -> Expr:
        return unary("neg", self)

    def __pos__(self) -> Expr:
        return as_expr(self)

    def __invert__(self) -> Expr:
        return unary("not", self)

    def __lt__(self, other: ExprLike) -> Expr:
        return compare("lt", self, other)

    def __le__(self, other: ExprLike) -> Expr:
        return compare("le", self, other)

    def __gt__(self, other: ExprLike) -> Expr:
        return compare("lt", other, self)

    def __ge__(self, other: ExprLike) -> Expr:
        return compare("le", other, self)

    def __eq__(self, other: ExprLike) -> Expr:  # type: ignore[override]  # a node, not a bool
        return compare("eq", self, other)

    def __ne__(self, other: ExprLike) -> Expr:  # type: ignore[override]  # a node, not a bool
        return compare("ne", self, other)

    def __bool__(self) -> NoReturn:
        raise ExpressionError(
            f"{self} has no truth value while the program is being built; use "
            "te.if_then_else(cond, a, b) for `if`, te.all(a, b) for `and` and for `x < y < z`, "
            "te.any(a, b) for `or`, ~a for `not`, and `is` to ask for the same node"
        )

    def astype(self, dtype: DType | str) -> Expr:
        """The value converted to element type `dtype`, like `te.cast`."""
        return cast(self, dtype)


@dataclass(frozen=True, slots=True, eq=False, repr=False, weakref_slot=True)
class Expr(Operators, Typed, metaclass=Interned):
    """Base of all expressions.  Constructors don't fold constants: the simplifier does.

    A subclass (a kind of expression) declares the roles of its fields; the decorator `node`
    completes it.

    syntax: its text.  `ir.grammar` explains syntaxes, and `ir.text` the forms of fields.
    items: the literal text and slots of the syntax.
    is_read: whether it has a syntax.  If so, the parser reads it and loop IR may contain it.
    binders, references, bodies: names of the fields with these roles.
    """

    syntax: ClassVar[str]
    items: ClassVar[tuple[str | Slot, ...]]
    is_read: ClassVar[bool]
    binders: ClassVar[tuple[str, ...]]
    references: ClassVar[tuple[str, ...]]
    bodies: ClassVar[tuple[str, ...]]

    def __as_expr__(self) -> Expr:
        return self

    @classmethod
    def _key(cls, args: tuple[Any, ...]) -> Any:
        """The key by which the node is interned; None if each node is distinct."""
        raise NotImplementedError

    def _infer(self) -> tuple[DType, int]:
        """The type and lanes, determined once when the node is made."""
        raise NotImplementedError

    @property
    def children(self) -> tuple[Expr, ...]:
        """The operands and bodies, in field order."""
        raise NotImplementedError

    def with_children(self, children: tuple[Expr, ...]) -> Expr:
        """The same node with other children, as many as `children` and in the same order."""
        raise NotImplementedError

    def __str__(self) -> str:
        return print_expr(self)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self}>"


stand_ins(Expr, "an expression", Operators)


@node
class Var(Expr):
    """A variable.  Never interned: two Vars with one name are two variables.

    name: label for people.
    type: element type.
    size: lanes.
    sizes: for an extent that is known only at run time, its range; None for other variables.
    """

    syntax = "{:name}"
    name: Label[str]
    type: Label[DType] = i64
    size: Label[int] = 1
    sizes: Label[Sizes | None] = None

    @classmethod
    def _key(cls, args: tuple[Any, ...]) -> Any:
        return None

    def _infer(self) -> tuple[DType, int]:
        return self.type, self.size


@node
class Const(Expr):
    """A literal.

    value: int, float or bool, as `type` says; use `const()` to normalise.
    type: element type.
    """

    syntax = "{:literal}"
    value: Label[int | float | bool]
    type: Label[DType] = i64

    @classmethod
    def _key(cls, args: tuple[Any, ...]) -> Any:
        value = args[0]
        type_ = args[1] if len(args) > 1 else i64
        if isinstance(value, float):  # -0.0 and NaN payloads are distinct values
            return (cls, struct.pack("<d", value), type_.name)
        return (cls, value, type_.name, type(value) is bool)

    def _infer(self) -> tuple[DType, int]:
        return self.type, 1


@node
class Unary(Expr):
    """An operation on one operand.

    op: one of `UNARY_OPS`.
    a: the operand.
    """

    syntax = "{:prefix}"
    op: Label[str]
    a: Operand[Expr]

    def _infer(self) -> tuple[DType, int]:
        return self.a.dtype, self.a.lanes


@node
class _Pair(Expr):
    """An operation on two operands of one dtype and lane count."""

    syntax = "{:infix}"
    op: Label[str]
    a: Operand[Expr]
    b: Operand[Expr]

    def __post_init__(self) -> None:
        if self.a.dtype is not self.b.dtype or self.a.lanes != self.b.lanes:
            raise ExpressionError(
                f"{self.op} needs two operands of one type, got {type_text(self.a)} and "
                f"{type_text(self.b)}; convert one with .astype"
            )


class Binary(_Pair):
    """One of `BINARY_OPS`."""

    __slots__ = ()

    def _infer(self) -> tuple[DType, int]:
        return self.a.dtype, self.a.lanes


class Compare(_Pair):
    """One of `COMPARE_OPS`; gives as many bools as the operands have lanes."""

    __slots__ = ()

    def _infer(self) -> tuple[DType, int]:
        return bool_, self.a.lanes


@node
class Broadcast(Expr):
    """A scalar repeated in all lanes.

    value: the scalar.
    size: number of lanes.
    """

    syntax = "broadcast({value}, {size:lanes})"
    value: Operand[Expr]
    size: Label[int]

    def _infer(self) -> tuple[DType, int]:
        return self.value.dtype, self.size


@node
class Cast(Expr):
    """Value conversion, lane by lane.

    a: the operand.
    type: element type of the result.
    """

    syntax = "{type:type}({a})"
    a: Operand[Expr]
    type: Label[DType]

    def _infer(self) -> tuple[DType, int]:
        return self.type, self.a.lanes


@node
class Call(Expr):
    """A pure function applied lane by lane.

    name: one of `ir.functions.INTRINSICS`.
    args: the arguments.
    type: element type of the result.
    """

    syntax = "{name:function}({args}){type:suffix}"
    name: Label[str]
    args: Operand[tuple[Expr, ...]]
    type: Label[DType]

    def _infer(self) -> tuple[DType, int]:
        return self.type, max((a.lanes for a in self.args), default=1)


_KEPT = 1 << 16
_integers: dict[int, Const] = {}
"""The literals of type i64 up to `_KEPT`: nearly all literals are among them."""


def const(value: int | float | bool, dtype: DType | str | None = None) -> Const:
    """A literal of `dtype`, wrapped to its range; by default bool, i64 or f32, as the type of
    `value` suggests.
    """
    if type(value) is int and (dtype is None or dtype is i64) and abs(value) <= _KEPT:
        literal = _integers.get(value)
        if literal is None:
            literal = _integers[value] = Const(value, i64)
        return literal
    if dtype is None:
        dtype = bool_ if isinstance(value, bool) else i64 if isinstance(value, int) else f32
    elif not isinstance(dtype, DType):
        dtype = to_dtype(dtype)
    if not isinstance(value, (int, float)):
        raise ExpressionError(f"a literal is a number, found {shown(value)}")
    if dtype.is_float:
        number = float(value)
        if dtype.bits < 64:
            number = float(dtype.numpy.type(number))
        # all NaNs become one literal, since the text `nan` states no payload
        return Const(number if number == number else math.nan, dtype)
    if dtype.is_bool:
        return Const(bool(value), dtype)
    wrapped = int(value) & ((1 << dtype.bits) - 1)
    if dtype.kind == "int" and wrapped >> (dtype.bits - 1):
        wrapped -= 1 << dtype.bits
    return Const(wrapped, dtype)


def as_expr(value: ExprLike, like: Expr | None = None) -> Expr:
    """`value` as an expression; a Python number takes the dtype and lanes of `like`.

    Raises ExpressionError for objects of other types, and for a number that the dtype cannot hold.
    """
    if isinstance(value, Expr):
        return value
    if isinstance(value, Operators):
        return value.__as_expr__()
    if isinstance(value, (np.generic, np.ndarray)) and not value.shape:
        value = value.item()
    if not isinstance(value, (int, float)):
        raise ExpressionError(f"expected an expression or a number, got {shown(value)}")
    if like is None:
        return const(value)
    if type(value) is int and like.dtype is i64 and like.lanes == 1 and abs(value) <= _KEPT:
        return const(value)
    if not like.dtype.is_float and (
        isinstance(value, float) or not like.dtype.min <= value <= like.dtype.max
    ):
        kind = "float" if isinstance(value, float) else "number"
        raise ExpressionError(
            f"the {kind} {shown(value)} does not fit an operand of type {type_text(like)}; "
            "cast first"
        )
    literal = const(value, like.dtype)
    return Broadcast(literal, like.lanes) if like.lanes > 1 else literal


def pair(a: ExprLike, b: ExprLike) -> tuple[Expr, Expr]:
    """Both operands as expressions.  A Python number takes the dtype of the other operand, and a
    scalar is repeated in as many lanes as the other operand has.
    """
    if isinstance(a, Expr) and isinstance(b, Expr):
        ea, eb = a, b
    elif isinstance(a, Operators):
        ea = a.__as_expr__()
        eb = as_expr(b, ea)
    elif isinstance(b, Operators):
        eb = b.__as_expr__()
        ea = as_expr(a, eb)
    else:
        ea = as_expr(a)
        eb = as_expr(b, ea)
    if ea.lanes == 1 and eb.lanes > 1:
        ea = Broadcast(ea, eb.lanes)
    elif eb.lanes == 1 and ea.lanes > 1:
        eb = Broadcast(eb, ea.lanes)
    return ea, eb


def unary(op: str, a: ExprLike) -> Expr:
    """`Unary(op, a)`.  Raises ExpressionError if `op` is not defined on the type of `a`."""
    operand = as_expr(a)
    check_operands(op, operand)
    return Unary(op, operand)


def binary(op: str, a: ExprLike, b: ExprLike) -> Expr:
    """`Binary(op, a, b)` with numbers converted and scalars broadcast to match.

    Raises ExpressionError if `op` is not defined on their type.
    """
    x, y = pair(a, b)
    check_operands(op, x, y)
    return Binary(op, x, y)


def compare(op: str, a: ExprLike, b: ExprLike) -> Expr:
    """`Compare(op, a, b)` with numbers converted and scalars broadcast to match.

    Raises ExpressionError for operands that can't be compared.
    """
    x, y = pair(a, b)
    check_operands(op, x, y)
    return Compare(op, x, y)


def cast(a: ExprLike, dtype: DType | str) -> Expr:
    """`a` converted to `dtype`; `a` itself if it already has this type."""
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

    Nonnegative constant exponents of integers become products.  Exponents 0, 1, 2 and -1 of floats
    become at most one operation; 3 becomes `x * x * x`, which rounds twice.  Raises
    ExpressionError for integers if the exponent is negative or not constant.
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
    """The absolute value of a number.  The smallest signed integer stays unchanged."""
    e = as_expr(x)
    if e.dtype.is_bool:
        raise ExpressionError(f"abs({e}) is not defined on bool; cast first")
    return e if e.dtype.kind == "uint" else Call("abs", (e,), e.dtype)
