"""Rules for values that are not index arithmetic: floats, narrow integers, casts, calls, loads,
lets.

Floats keep their value exactly (see `ir.simplify`).  For integers that may wrap around, only
neutral operands are removed.
"""

from __future__ import annotations

from ..context import Context
from ..dtypes import DType, f8e8m0, f16
from ..expr import (
    Binary,
    Broadcast,
    Call,
    Cast,
    Const,
    Expr,
    Let,
    Load,
    Ramp,
    Unary,
    Var,
    const,
    free_vars,
    same,
    substitute,
)
from ..fold import fold_binary, fold_call, fold_cast
from ..interval import Interval
from .lanes import is_value, spread, uniform

_NEUTRAL_RIGHT: dict[str, float] = {"add": -0.0, "sub": 0.0, "mul": 1.0, "div": 1.0}
"""The right operands that keep every bit of a float.  For `add` it is -0.0, since -0.0 + 0.0 is
0.0.
"""

_INT_NEUTRAL_RIGHT = {
    "add": 0, "sub": 0, "mul": 1, "floordiv": 1, "truncdiv": 1,
    "or": 0, "xor": 0, "shl": 0, "shr": 0,
}  # fmt: skip
_COMMUTES = frozenset(("add", "mul", "or", "xor", "and", "min", "max"))


def scalar_binary(e: Binary, ctx: Context) -> Expr:
    """Scalar operations except index arithmetic."""
    a, b = ctx.simplify(e.a), ctx.simplify(e.b)
    if type(a) is Const and type(b) is Const:
        folded = fold_binary(e.op, a, b)
        if folded is not None:
            return folded
    return plain_binary(e, a, b, ctx)


def plain_binary(e: Binary, a: Expr, b: Expr, ctx: Context) -> Expr:
    """Simplify an operation with a neutral or absorbing operand, scalar or vector.  `a` and `b` are
    simplified already.
    """
    result = (_float_identity if a.dtype.is_float else _integer_identity)(e.op, a, b, ctx)
    if result is not None:
        return result
    return e if a is e.a and b is e.b else Binary(e.op, a, b)


def _other_operand(op: str, a: Expr, b: Expr, neutral: float | None) -> Expr | None:
    """The operand `a` or `b` if the other one is neutral; None if neither is neutral."""
    if neutral is not None and is_value(b, neutral):
        return a
    return b if neutral is not None and op in _COMMUTES and is_value(a, neutral) else None


def _float_identity(op: str, a: Expr, b: Expr, ctx: Context) -> Expr | None:
    other = _other_operand(op, a, b, _NEUTRAL_RIGHT.get(op))
    if other is not None:
        return other
    if op in ("min", "max"):
        # min(a, inf) is a for every a, NaN too, and max(a, -inf) likewise.
        limit = float("inf") if op == "min" else float("-inf")
        if a is b or is_value(b, limit):
            return a
        if is_value(a, limit):
            return b
    if op == "sub" and type(b) is Unary and b.op == "neg":
        return Binary("add", a, b.a)
    if op == "add" and type(b) is Unary and b.op == "neg":
        return Binary("sub", a, b.a)
    return None


def _integer_identity(op: str, a: Expr, b: Expr, ctx: Context) -> Expr | None:
    dtype = a.dtype
    if dtype.is_bool:
        return _bool_identity(op, a, b)
    other = _other_operand(op, a, b, _INT_NEUTRAL_RIGHT.get(op))
    if other is not None:
        return other
    zero = spread(const(0, dtype), a.lanes)
    if op in ("mul", "and") and (is_value(a, 0) or is_value(b, 0)):
        return zero
    if a is b:
        if op in ("sub", "xor"):
            return zero
        if op in ("min", "max", "and", "or"):
            return a
    if op in ("floormod", "truncmod") and is_value(b, 1):
        return zero
    if op in ("min", "max", "floordiv", "floormod"):
        return _by_interval(op, a, b, ctx)
    return None


def _by_interval(op: str, a: Expr, b: Expr, ctx: Context) -> Expr | None:
    x, y = ctx.interval(a), ctx.interval(b)
    if x.lo is None or x.hi is None or y.lo is None or y.hi is None:
        return None
    if op in ("min", "max"):
        if x.hi <= y.lo:
            return a if op == "min" else b
        if y.hi <= x.lo:
            return b if op == "min" else a
    elif y.lo > 0 and x.lo >= 0 and x.hi < y.lo:
        return a if op == "floormod" else spread(const(0, a.dtype), a.lanes)
    return None


def _bool_identity(op: str, a: Expr, b: Expr) -> Expr | None:
    op = {"min": "and", "max": "or"}.get(op, op)
    for x, y in ((a, b), (b, a)):
        value = uniform(y)
        if type(value) is Const:
            if op == "xor":
                return Unary("not", x) if value.value else x
            if op in ("and", "or"):
                return x if bool(value.value) is (op == "and") else y
    if a is b and op in ("and", "or"):
        return a
    return None


def neg(e: Unary, ctx: Context) -> Expr:
    a = ctx.simplify(e.a)
    if type(a) is Const and not a.type.is_bool:
        return const(-a.value, a.type)
    if type(a) is Unary and a.op == "neg":
        return a.a
    if type(a) is Broadcast:
        return Broadcast(ctx.simplify(Unary("neg", a.value)), a.size)
    if type(a) is Ramp and a.dtype.is_int:
        return ctx.simplify(Ramp(Unary("neg", a.base), Unary("neg", a.stride), a.size))
    return e if a is e.a else Unary("neg", a)


def cast(e: Cast, ctx: Context) -> Expr:
    a = ctx.simplify(e.a)
    if a.dtype is e.type:
        return a
    if type(a) is Const:
        folded = fold_cast(a, e.type)
        if folded is not None:
            return folded
    if type(a) is Broadcast:
        return Broadcast(ctx.simplify(Cast(a.value, e.type)), a.size)
    if type(a) is Cast:
        source = a.a.dtype
        if _embeds(source, a.type) or (
            source.is_int and a.type.is_int and ctx.interval(a.a).fits(a.type)
        ):
            return ctx.simplify(Cast(a.a, e.type))
    if type(a) is Ramp and a.dtype.is_int and e.type.is_int and e.type.bits <= a.dtype.bits:
        # truncation distributes over sums
        return ctx.simplify(Ramp(Cast(a.base, e.type), Cast(a.stride, e.type), a.size))
    return e if a is e.a else Cast(a, e.type)


def _embeds(inner: DType, outer: DType) -> bool:
    """True if each value of `inner` is a value of `outer`, so that the cast changes nothing."""
    if inner.is_bool:
        return True
    if outer.is_bool or outer.is_storage:
        return False
    if inner.is_int and outer.is_int:
        return outer.min <= inner.min and inner.max <= outer.max
    if inner.is_float and outer.is_float:
        return outer.bits > inner.bits and not (inner is f8e8m0 and outer is f16)
    if inner.is_int and outer.is_float:
        digits = {"f64": 53, "f32": 24, "f16": 11, "bf16": 8}[outer.name]
        return inner.bits - (inner.kind == "int") <= digits
    return False


def call(e: Call, ctx: Context) -> Expr:
    args = tuple(ctx.simplify(a) for a in e.args)
    if all(type(a) is Const for a in args) and args:
        folded = fold_call(e.name, args, e.type)  # type: ignore[arg-type]  # all are literals
        if folded is not None:
            return folded
    if args and all(type(a) is Broadcast for a in args):
        return Broadcast(ctx.simplify(Call(e.name, tuple(map(uniform, args)), e.type)), e.lanes)
    if e.name == "check_index" and _is_inside(args[0], args[1], ctx):
        return args[0]
    return e if same(args, e.args) else Call(e.name, args, e.type)


def _is_inside(index: Expr, extent: Expr, ctx: Context) -> bool:
    """Whether an index surely is from 0 to extent - 1."""
    place, least = ctx.interval(index), ctx.interval(extent).lo
    if place.lo is None or place.hi is None or least is None:
        return False
    return place.lo >= 0 and place.hi < least


def load(e: Load, ctx: Context) -> Expr:
    indices = tuple(ctx.simplify(i) for i in e.indices)
    mask = None if e.mask is None else ctx.simplify(e.mask)
    lanes = e.lanes
    if mask is not None:
        flag = uniform(mask)
        if flag is const(True):
            mask = None
        elif flag is const(False):
            return spread(const(0, e.dtype), lanes)
    if lanes > 1 and all(i.lanes == 1 or type(i) is Broadcast for i in indices):
        # All lanes read one element, so it is read once.
        flag = None if mask is None else uniform(mask)
        if flag is None or flag.lanes == 1:
            return Broadcast(Load(e.buffer, tuple(map(uniform, indices)), flag), lanes)
    if mask is e.mask and same(indices, e.indices):
        return e
    return Load(e.buffer, indices, mask)


def let(e: Let, ctx: Context) -> Expr:
    value = ctx.simplify(e.value)
    if type(value) in (Const, Var) or (type(value) is Broadcast and type(value.value) is Const):
        return ctx.simplify(substitute(e.body, {e.var: value}))
    if e.var not in free_vars(e.body):
        return ctx.simplify(e.body)
    inner = ctx
    if value.dtype.is_int:
        values = ctx.interval(value)
        if values != Interval(None, None):
            inner = ctx.with_interval(e.var, values)
    body = inner.simplify(e.body)
    if e.var not in free_vars(body):
        return body
    return e if value is e.value and body is e.body else Let(e.var, value, body)
