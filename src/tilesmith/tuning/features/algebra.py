"""Arithmetic on numbers that may be symbolic: ints and floats, or expressions of knobs.

The formulas of the features are written once with these functions.  On numbers they compute.  On
expressions they build `ir.expr` nodes, without neutral zeros and ones.  So one derivation serves a
schedule whose knobs have values and one whose knobs are symbols, with equal results.  No function
here may branch on a value; use `where`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import TypeAlias

from tilesmith.ir.dtypes import f64
from tilesmith.ir.expr import Binary, Const, Expr, Var, cast, const, post_order, select
from tilesmith.ir.expr import binary as node
from tilesmith.ir.expr import compare as comparison
from tilesmith.ir.intrinsics import call
from tilesmith.search_space.traced import expression

Number: TypeAlias = "int | float | Expr"
Truth: TypeAlias = "bool | Expr"


def _binary(op: str, a: Number, b: Number) -> Expr:
    return node(op, *_alike(a, b))


def _alike(a: Number, b: Number) -> tuple[Expr, Expr]:
    """Both numbers as expressions; both become floats if one is a float."""
    ea = a if isinstance(a, Expr) else const(a, f64 if isinstance(a, float) else None)
    eb = b if isinstance(b, Expr) else const(b, f64 if isinstance(b, float) else None)
    if ea.dtype is not eb.dtype:
        ea, eb = cast(ea, f64), cast(eb, f64)
    return ea, eb


def add(a: Number, b: Number) -> Number:
    """`a + b`."""
    if not isinstance(a, Expr):
        if not isinstance(b, Expr):
            return a + b
        a, b = b, a
    return a if not isinstance(b, Expr) and b == 0 else _binary("add", a, b)


def sub(a: Number, b: Number) -> Number:
    """`a - b`."""
    if not isinstance(b, Expr):
        return add(a, -b)
    return 0 if a is b else _binary("sub", a, b)


def mul(a: Number, b: Number) -> Number:
    """`a * b`."""
    if not isinstance(a, Expr):
        if not isinstance(b, Expr):
            return a * b
        a, b = b, a
    if not isinstance(b, Expr):
        if b == 1:
            return a
        if b == 0:
            return 0
    return _binary("mul", a, b)


def div(a: Number, b: Number) -> Number:
    """The quotient of two numbers, not rounded; `b` is not 0."""
    if not isinstance(a, Expr) and not isinstance(b, Expr):
        return a / b
    if not isinstance(b, Expr):
        return mul(a, 1.0 / b)
    return node("div", *(cast(e, f64) for e in _alike(a, b)))


def floor_div(a: Number, b: Number) -> Number:
    """The quotient of two numbers, rounded down.  `b` is positive, and a float if `a` is one."""
    if not isinstance(a, Expr) and not isinstance(b, Expr):
        return a // b
    return a if isinstance(b, int) and b == 1 else _binary("floordiv", a, b)


def ceil_div(a: Number, b: Number) -> Number:
    """The quotient of two positive integers, rounded up."""
    if not isinstance(b, Expr):
        if b == 1:
            return a
        if not isinstance(a, Expr):
            return -(-a // b)
    if a is b:
        return 1
    return _binary("floordiv", add(a, sub(b, 1)), b)


def minimum(a: Number, b: Number) -> Number:
    if not isinstance(a, Expr) and not isinstance(b, Expr):
        return min(a, b)
    return a if a is b else _binary("min", a, b)


def maximum(a: Number, b: Number) -> Number:
    if not isinstance(a, Expr) and not isinstance(b, Expr):
        return max(a, b)
    return a if a is b else _binary("max", a, b)


def is_most(a: Number, b: Number) -> Truth:
    """`a <= b`."""
    if not isinstance(a, Expr) and not isinstance(b, Expr):
        return a <= b
    return True if a is b else comparison("le", *_alike(a, b))


def where(condition: Truth, a: Number, b: Number) -> Number:
    """`a` where the condition holds, else `b`."""
    if not isinstance(condition, Expr):
        return a if condition else b
    if a is b or (not isinstance(a, Expr) and not isinstance(b, Expr) and a == b):
        return a
    return select(condition, *_alike(a, b))


def log(a: Number) -> Number:
    """The natural logarithm of a positive number."""
    return call("log", cast(a, f64)) if isinstance(a, Expr) else math.log(a)


def total(numbers: Iterable[Number]) -> Number:
    """The sum; 0 if there are no numbers."""
    return _fold(add, numbers, 0)


def product(numbers: Iterable[Number]) -> Number:
    """The product; 1 if there are no numbers."""
    return _fold(mul, numbers, 1)


def largest(numbers: Iterable[Number], least: Number = 0) -> Number:
    """The largest of `numbers` and `least`."""
    return _fold(maximum, numbers, least)


def _fold(
    f: Callable[[Number, Number], Number], numbers: Iterable[Number], start: Number
) -> Number:
    result = start
    for n in numbers:
        result = f(result, n)
    return result


def number(value: int | Expr, known: dict[Expr, Number] | None = None) -> Number:
    """A dimension of te (sums, products and quotients) as a number of this module.  A traced number
    becomes its expression.

    known: values of variables.
    """
    value = expression(value)
    if not isinstance(value, Expr):
        return value
    done: dict[Expr, Number] = dict(known or {})
    for e in post_order(value, done):
        if isinstance(e, Const):
            done[e] = int(e.value)
        elif isinstance(e, Binary) and e.op in _OPS:
            done[e] = _OPS[e.op](done[e.a], done[e.b])
        elif isinstance(e, Var):
            done[e] = e
        else:
            done[e] = e.with_children(tuple(_alike(done[c], 0)[0] for c in e.children))
    return done[value]


_OPS: dict[str, Callable[[Number, Number], Number]] = {
    "add": add, "sub": sub, "mul": mul, "floordiv": floor_div, "min": minimum, "max": maximum,
}  # fmt: skip
