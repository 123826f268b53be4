"""Scalar (and short-vector) expressions, shared by every level of the compiler.

Expressions are immutable and *interned*: building the same node twice gives the same object, so
equality is
`is`, hashing is by identity and analyses are memoised by node.  A `Var` is the exception: each is
its own, its name is only a label.  An expression has a `dtype` and a number of `lanes` (1 for a
scalar).

Semantics
- Integers wrap around in two's complement at their width.  Index arithmetic is `i64`.
- `floordiv`/`floormod` round toward minus infinity; `truncdiv`/`truncmod` toward zero; division by
  zero is undefined for integers (the reference gives 0).  `div` is only for floats.
- Floats follow IEEE 754 in round-to-nearest, without traps.  A product that feeds a sum may be
  contracted into a fused multiply-add; nothing else is reassociated outside a declared reduction.
- `min`/`max` on floats return NaN when an operand is NaN.  Comparisons with NaN are false, but `ne`
  is true.
- `Select` evaluates only the chosen branch: a load in the other one does not happen (per lane for
  vectors).
- A `Load` with a `mask` reads only where the mask is true and gives 0 elsewhere.
- `and_`/`or_` take bools and may evaluate both sides; `Binary` `and`/`or`/`xor` are bitwise
  (logical on bools).
- `Cast` from float to integer truncates toward zero, is undefined outside the range; to bool it is
  `!= 0`.
"""

from __future__ import annotations

import math
import struct
import threading
import weakref
from collections.abc import Container, Iterator
from dataclasses import dataclass, fields
from typing import Any, Protocol, TypeAlias

from .dtypes import DType, bool_, f32, i64

ExprLike: TypeAlias = "Expr | int | float | bool"


class BufferLike(Protocol):
    """What a `Load` reads: a `loop.Buffer` or a `te.Tensor`."""

    @property
    def name(self) -> str: ...
    @property
    def dtype(self) -> DType: ...
    @property
    def shape(self) -> tuple[Any, ...]: ...


class _Ref(weakref.ref):
    """A node that may go when nobody uses it any more, and the key that it is found by."""

    __slots__ = ("key",)
    key: Any


_nodes: dict[Any, _Ref] = {}
_lock = threading.RLock()  # a node may go, and take itself off the table, at any time


def _forget(ref: _Ref) -> None:
    with _lock:
        if _nodes.get(ref.key) is ref:
            del _nodes[ref.key]


class _Interned(type):
    """Metaclass: constructing a node with fields seen before returns the node made then."""

    def __call__(cls, *args: Any, **kwargs: Any) -> Any:
        if kwargs:  # normalise to positional order so that the key is canonical
            names = [f.name for f in fields(cls)]  # type: ignore[arg-type]  # every node is a dataclass
            given = dict(zip(names, args, strict=False), **kwargs)
            args = tuple(given[n] for n in names if n in given)
        key = cls._key(args)  # type: ignore[attr-defined]  # defined on Expr
        ref = _nodes.get(key)
        found = None if ref is None else ref()
        if found is None:
            found = type.__call__(cls, *args)
            dtype_, lanes = found._infer()
            _set_dtype(found, dtype_)
            _set_lanes(found, lanes)
            with _lock:  # another thread may have made the same node
                ref = _nodes.get(key)
                other = None if ref is None else ref()
                if other is not None:
                    return other
                ref = _nodes[key] = _Ref(found, _forget)
                ref.key = key
        return found


class _Typed:
    """Room for what is derived once per node; a chain of thousands of nodes must not be walked."""

    __slots__ = ("dtype", "lanes")

    dtype: DType
    lanes: int


# Nodes are frozen; the slots are filled as they are made.
_set_dtype = _Typed.__dict__["dtype"].__set__
_set_lanes = _Typed.__dict__["lanes"].__set__


@dataclass(frozen=True, slots=True, eq=False, weakref_slot=True)
class Expr(_Typed, metaclass=_Interned):
    """Base of all expressions.  Arithmetic operators build nodes with constant folding of trivial
    cases left to the simplifier; `==` is identity: use `.equal(other)` for a comparison node.
    """

    @classmethod
    def _key(cls, args: tuple[Any, ...]) -> Any:
        return (cls, args)

    def _infer(self) -> tuple[DType, int]:
        """The type and lanes, found once when the node is made."""
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
        raise TypeError(
            "an expression has no truth value while the program is being built; "
            "use te.if_then_else(cond, a, b), and te.all/te.any to combine conditions"
        )

    def __str__(self) -> str:
        from . import text  # the printer needs every node class; one place breaks the cycle

        return text.print_expr(self)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self}>"


@dataclass(frozen=True, slots=True, eq=False, weakref_slot=True)
class Var(Expr):
    """A variable.  Never interned: two Vars with one name are two variables."""

    name: str
    type: DType = i64
    size: int = 1  # lanes

    @classmethod
    def _key(cls, args: tuple[Any, ...]) -> Any:
        return object()

    def _infer(self) -> tuple[DType, int]:
        return self.type, self.size

    @property
    def children(self) -> tuple[Expr, ...]:
        return ()

    def with_children(self, children: tuple[Expr, ...]) -> Expr:
        return self


@dataclass(frozen=True, slots=True, eq=False, weakref_slot=True)
class Const(Expr):
    """A literal.  `value` is int, float or bool as `type` says; use `const()` to normalise."""

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
"""Both operands have one dtype and lane count, which is the result's."""

COMPARE_OPS = ("eq", "ne", "lt", "le")


@dataclass(frozen=True, slots=True, eq=False, weakref_slot=True)
class Unary(Expr):
    op: str
    a: Expr

    def _infer(self) -> tuple[DType, int]:
        return self.a.dtype, self.a.lanes

    @property
    def children(self) -> tuple[Expr, ...]:
        return (self.a,)

    def with_children(self, children: tuple[Expr, ...]) -> Expr:
        return Unary(self.op, *children)


@dataclass(frozen=True, slots=True, eq=False, weakref_slot=True)
class Binary(Expr):
    op: str
    a: Expr
    b: Expr

    def __post_init__(self) -> None:
        if self.a.dtype is not self.b.dtype or self.a.lanes != self.b.lanes:
            raise TypeError(
                f"{self.op} needs two operands of one type, got {type_text(self.a)} and "
                f"{type_text(self.b)}"
            )

    def _infer(self) -> tuple[DType, int]:
        return self.a.dtype, self.a.lanes

    @property
    def children(self) -> tuple[Expr, ...]:
        return (self.a, self.b)

    def with_children(self, children: tuple[Expr, ...]) -> Expr:
        return Binary(self.op, *children)


@dataclass(frozen=True, slots=True, eq=False, weakref_slot=True)
class Compare(Expr):
    op: str
    a: Expr
    b: Expr

    def __post_init__(self) -> None:
        if self.a.dtype is not self.b.dtype or self.a.lanes != self.b.lanes:
            raise TypeError(
                f"{self.op} needs two operands of one type, got {type_text(self.a)} and "
                f"{type_text(self.b)}"
            )

    def _infer(self) -> tuple[DType, int]:
        return bool_, self.a.lanes

    @property
    def children(self) -> tuple[Expr, ...]:
        return (self.a, self.b)

    def with_children(self, children: tuple[Expr, ...]) -> Expr:
        return Compare(self.op, *children)


@dataclass(frozen=True, slots=True, eq=False, weakref_slot=True)
class Select(Expr):
    """`if_true` where `cond`, else `if_false`; only the chosen branch is evaluated."""

    cond: Expr
    if_true: Expr
    if_false: Expr

    def __post_init__(self) -> None:
        a, b = self.if_true, self.if_false
        if self.cond.dtype is not bool_ or a.dtype is not b.dtype or a.lanes != b.lanes:
            raise TypeError(
                "select needs a bool condition and branches of one type, got "
                f"{type_text(self.cond)}, {type_text(a)}, {type_text(b)}"
            )
        if self.cond.lanes not in (1, a.lanes):
            raise TypeError(f"select of {a.lanes} lanes has a condition of {self.cond.lanes}")

    def _infer(self) -> tuple[DType, int]:
        return self.if_true.dtype, self.if_true.lanes

    @property
    def children(self) -> tuple[Expr, ...]:
        return (self.cond, self.if_true, self.if_false)

    def with_children(self, children: tuple[Expr, ...]) -> Expr:
        return Select(*children)


@dataclass(frozen=True, slots=True, eq=False, weakref_slot=True)
class Cast(Expr):
    """Value conversion to `type`, lane by lane."""

    a: Expr
    type: DType

    def _infer(self) -> tuple[DType, int]:
        return self.type, self.a.lanes

    @property
    def children(self) -> tuple[Expr, ...]:
        return (self.a,)

    def with_children(self, children: tuple[Expr, ...]) -> Expr:
        return Cast(children[0], self.type)


@dataclass(frozen=True, slots=True, eq=False, weakref_slot=True)
class Load(Expr):
    """Read `buffer[indices]`.  After vectorising, an index may be a vector; then so is the result.

    `mask` (bool, as many lanes): where false nothing is read and the value is 0.
    """

    buffer: BufferLike
    indices: tuple[Expr, ...]
    mask: Expr | None = None

    @classmethod
    def _key(cls, args: tuple[Any, ...]) -> Any:
        # the buffer's id is safe in the key: the interned node keeps the buffer alive
        return (cls, id(args[0]), args[1], args[2] if len(args) > 2 else None)

    def _infer(self) -> tuple[DType, int]:
        return self.buffer.dtype, max((i.lanes for i in self.indices), default=1)

    @property
    def children(self) -> tuple[Expr, ...]:
        return self.indices if self.mask is None else (*self.indices, self.mask)

    def with_children(self, children: tuple[Expr, ...]) -> Expr:
        n = len(self.indices)
        return Load(self.buffer, children[:n], children[n] if len(children) > n else None)


@dataclass(frozen=True, slots=True, eq=False, weakref_slot=True)
class Call(Expr):
    """A pure function from `ir.intrinsics.INTRINSICS` applied lane by lane."""

    name: str
    args: tuple[Expr, ...]
    type: DType

    def _infer(self) -> tuple[DType, int]:
        return self.type, max((a.lanes for a in self.args), default=1)

    @property
    def children(self) -> tuple[Expr, ...]:
        return self.args

    def with_children(self, children: tuple[Expr, ...]) -> Expr:
        return Call(self.name, children, self.type)


@dataclass(frozen=True, slots=True, eq=False, weakref_slot=True)
class Ramp(Expr):
    """The vector `base, base + stride, ...` of `size` lanes; base and stride are scalars of one
    dtype.
    """

    base: Expr
    stride: Expr
    size: int

    def _infer(self) -> tuple[DType, int]:
        return self.base.dtype, self.size

    @property
    def children(self) -> tuple[Expr, ...]:
        return (self.base, self.stride)

    def with_children(self, children: tuple[Expr, ...]) -> Expr:
        return Ramp(children[0], children[1], self.size)


@dataclass(frozen=True, slots=True, eq=False, weakref_slot=True)
class Broadcast(Expr):
    """A scalar repeated in `size` lanes."""

    value: Expr
    size: int

    def _infer(self) -> tuple[DType, int]:
        return self.value.dtype, self.size

    @property
    def children(self) -> tuple[Expr, ...]:
        return (self.value,)

    def with_children(self, children: tuple[Expr, ...]) -> Expr:
        return Broadcast(children[0], self.size)


@dataclass(frozen=True, slots=True, eq=False, weakref_slot=True)
class Let(Expr):
    """`body` with `var` standing for `value`, evaluated once."""

    var: Var
    value: Expr
    body: Expr

    def _infer(self) -> tuple[DType, int]:
        return self.body.dtype, self.body.lanes

    @property
    def children(self) -> tuple[Expr, ...]:
        return (self.value, self.body)

    def with_children(self, children: tuple[Expr, ...]) -> Expr:
        return Let(self.var, *children)


@dataclass(frozen=True, slots=True, eq=False, weakref_slot=True)
class VectorReduce(Expr):
    """Combine groups of adjacent lanes of `a` with binary `op` (add, mul, min, max, and, or) down
    to `size` lanes.

    The order of combination is unspecified (this is a declared reduction).
    """

    op: str
    a: Expr
    size: int = 1

    @classmethod
    def _key(cls, args: tuple[Any, ...]) -> Any:
        return (cls, args if len(args) == 3 else (*args, 1))

    def _infer(self) -> tuple[DType, int]:
        return self.a.dtype, self.size

    @property
    def children(self) -> tuple[Expr, ...]:
        return (self.a,)

    def with_children(self, children: tuple[Expr, ...]) -> Expr:
        return VectorReduce(self.op, children[0], self.size)


def type_text(e: Expr) -> str:
    """`f32` or `f32x16`."""
    return e.dtype.name if e.lanes == 1 else f"{e.dtype.name}x{e.lanes}"


def const(value: int | float | bool, dtype: DType | None = None) -> Const:
    """A literal of `dtype` (default: bool, i64 or f32, as `value` is), wrapped to its range."""
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
        raise TypeError(
            f"expected an expression or a number, got {type(value).__name__}: {value!r}"
        )
    if like is None:
        return const(value)
    if isinstance(value, float) and not like.dtype.is_float:
        raise TypeError(
            f"the float {value} does not fit an operand of type {type_text(like)}; cast first"
        )
    literal = const(value, like.dtype)
    return Broadcast(literal, like.lanes) if like.lanes > 1 else literal


def _pair(a: ExprLike, b: ExprLike) -> tuple[Expr, Expr]:
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
    """`Binary(op, a, b)` with numbers converted and scalars broadcast to match."""
    return Binary(op, *_pair(a, b))


def compare(op: str, a: ExprLike, b: ExprLike) -> Expr:
    """`Compare(op, a, b)` with numbers converted and scalars broadcast to match."""
    return Compare(op, *_pair(a, b))


def select(cond: Expr, if_true: ExprLike, if_false: ExprLike) -> Expr:
    """`Select` with numbers converted and scalars broadcast to match."""
    a, b = _pair(if_true, if_false)
    return Select(cond, a, b)


def cast(a: ExprLike, dtype: DType) -> Expr:
    """`a` converted to `dtype`; `a` itself when it has it already."""
    e = as_expr(a)
    if e.dtype is dtype:
        return e
    return (
        const(e.value, dtype) if isinstance(e, Const) and not e.dtype.is_float else Cast(e, dtype)
    )


def minimum(a: ExprLike, b: ExprLike) -> Expr:
    return binary("min", a, b)


def maximum(a: ExprLike, b: ExprLike) -> Expr:
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


def post_order(root: Expr, done: Container[Expr] = ()) -> Iterator[Expr]:
    """Every distinct node below and including `root`, children first; without those that are in
    `done` and what is only below them.  The caller may add nodes to it as they come.
    """
    seen: set[Expr] = set()
    stack = [root]
    while stack:
        node = stack[-1]
        if node in seen or node in done:
            stack.pop()
            continue
        below = [c for c in node.children if c not in seen and c not in done]
        if below:
            below.reverse()
            stack += below
        else:
            stack.pop()
            seen.add(node)
            yield node


def substitute(root: Expr, mapping: dict[Expr, Expr]) -> Expr:
    """`root` with each key of `mapping` (usually Vars) replaced; itself when none occurs."""
    if not mapping:
        return root
    done: dict[Expr, Expr] = dict(mapping)
    for node in post_order(root, done):
        children = node.children
        new = tuple(done[c] for c in children)
        done[node] = (
            node
            if all(a is b for a, b in zip(new, children, strict=True))
            else node.with_children(new)
        )
    return done[root]


def free_vars(root: Expr) -> set[Var]:
    """The Vars that occur in `root` and are not bound by a `Let` inside it."""
    found: set[Var] = set()
    bound: set[Var] = set()
    for n in post_order(root):
        if isinstance(n, Var):
            found.add(n)
        elif isinstance(n, Let):
            bound.add(n.var)
    return found - bound
