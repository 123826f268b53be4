"""Rules for vectors: operations on broadcasts become scalar, ramps stay ramps."""

from __future__ import annotations

from .. import interval as iv
from ..affine import affine_form, combined
from ..context import Context
from ..dtypes import i64
from ..expr import Binary, Broadcast, Compare, Const, Expr, Ramp, VectorReduce, const
from ..fold import fold_binary
from ..prove import is_index
from .index import block
from .lanes import is_value, lane, uniform
from .value import plain_binary


def binary(e: Binary, ctx: Context) -> Expr:
    a, b = ctx.simplify(e.a), ctx.simplify(e.b)
    if type(a) is Broadcast and type(b) is Broadcast:
        return Broadcast(ctx.simplify(Binary(e.op, a.value, b.value)), a.size)
    if e.dtype.is_int:
        rule = _RAMPS.get(e.op)
        if rule is not None:
            result = rule(e.op, a, b, ctx)
            if result is not None:
                return result
    return plain_binary(e, a, b, ctx)


def _parts(e: Expr) -> tuple[Expr, Expr] | None:
    """Base and stride of a ramp or broadcast."""
    if type(e) is Ramp:
        return e.base, e.stride
    if type(e) is Broadcast:
        return e.value, const(0, e.dtype)
    return None


def _sum(op: str, a: Expr, b: Expr, ctx: Context) -> Expr | None:
    x, y = _parts(a), _parts(b)
    if x is None or y is None:
        return None
    return ctx.simplify(Ramp(Binary(op, x[0], y[0]), Binary(op, x[1], y[1]), a.lanes))


def _product(op: str, a: Expr, b: Expr, ctx: Context) -> Expr | None:
    if type(a) is Broadcast:
        a, b = b, a
    if type(a) is Ramp and type(b) is Broadcast:
        return ctx.simplify(Ramp(a.base * b.value, a.stride * b.value, a.size))
    return None


def _division(op: str, a: Expr, b: Expr, ctx: Context) -> Expr | None:
    """`floordiv` and `floormod` of a ramp by a constant, if all lanes have the same quotient."""
    divisor = uniform(b)
    if (
        a.dtype is not i64
        or type(a) is not Ramp
        or type(divisor) is not Const
        or divisor.value <= 0
    ):
        return None
    if type(a.stride) is not Const:
        return None
    c, step = int(divisor.value), int(a.stride.value)
    form = affine_form(a.base)
    steps = iv.make(min(0, step * (a.size - 1)), max(0, step * (a.size - 1)), abs(step), 0)
    if not all(map(is_index, form[0])) and not iv.add(ctx.sum_interval(form), steps).fits(i64):
        return None  # a lane may wrap around
    if step % c == 0:
        if op == "floormod":
            return Broadcast(ctx.simplify(a.base % c), a.size)
        return ctx.simplify(Ramp(a.base // c, const(step // c), a.size))
    rest = ({x: k for x, k in form[0].items() if k % c}, form[1])
    q = block(iv.add(ctx.sum_interval(rest), steps), c)
    if q is None or not ctx.is_exact(rest):
        return None
    if op == "floormod":
        return ctx.simplify(Ramp(ctx.build(combined(rest, ({}, -q * c))), a.stride, a.size))
    whole = {x: k // c for x, k in form[0].items() if k % c == 0}
    return Broadcast(ctx.simplify(ctx.build((whole, q))), a.size)


def _extremum(op: str, a: Expr, b: Expr, ctx: Context) -> Expr | None:
    """The min or max of ramps and broadcasts.  They differ by a linear function of the lane, so the
    first and the last lane decide.
    """
    if a is b:
        return a
    if a.dtype is i64:
        ends = [(lane(a, i), lane(b, i)) for i in (0, a.lanes - 1)]
        for less, more in ((0, 1), (1, 0)):
            if all(
                p[less] is not None and p[more] is not None
                and ctx.simplify(Compare("le", p[less], p[more])) is const(True)  # type: ignore[arg-type]
                for p in ends
            ):  # fmt: skip
                return (a, b)[less if op == "min" else more]
    return None


_RAMPS = {
    "add": _sum, "sub": _sum, "mul": _product, "floordiv": _division, "floormod": _division,
    "min": _extremum, "max": _extremum,
}  # fmt: skip


def ramp(e: Ramp, ctx: Context) -> Expr:
    base, stride = ctx.simplify(e.base), ctx.simplify(e.stride)
    if e.dtype.is_int and is_value(stride, 0):
        return Broadcast(base, e.size) if e.size > 1 else base
    if e.size == 1:
        return base
    return e if base is e.base and stride is e.stride else Ramp(base, stride, e.size)


def broadcast(e: Broadcast, ctx: Context) -> Expr:
    value = ctx.simplify(e.value)
    if e.size == 1:
        return value
    return e if value is e.value else Broadcast(value, e.size)


def vector_reduce(e: VectorReduce, ctx: Context) -> Expr:
    a = ctx.simplify(e.a)
    n = a.lanes // e.size
    if n == 1:
        return a
    if type(a) is Broadcast:
        value = _repeated(e.op, a.value, n)
        if value is not None:
            value = ctx.simplify(value)
            return value if e.size == 1 else Broadcast(value, e.size)
    return e if a is e.a else VectorReduce(e.op, a, e.size)


def _repeated(op: str, value: Expr, n: int) -> Expr | None:
    """An operation or literal with the value of `value op value op ...`, with `n` operands.  None
    if there is no such operation or literal.
    """
    if op in ("min", "max", "and", "or"):
        return value
    if op == "add":
        # doubling is exact in binary floating point; other multiples round differently from a sum
        if value.dtype.is_int or n & (n - 1) == 0:
            return value * const(n, value.dtype)
    elif op == "mul" and value.dtype.is_int and type(value) is Const:
        result = value
        for _ in range(n - 1):
            product = fold_binary("mul", result, value)
            assert product is not None  # a product of integers always folds
            result = product
        return result
    return None
