"""Derivatives of scalar expressions: the one table of derivatives of operations and functions.

`derivative` works forwards, from an operand to the whole expression.  So a choice stays outermost:
the derivative of `select(c, a, b)` is `select(c, a', b')`.  Then a branch that is not chosen may
overflow without giving 0 * inf.

Where a function has no derivative, the rule is that of PyTorch:

- |x| has the derivative 0 at 0;
- equal operands of `min` and `max` get half of the derivative each;
- functions with steps (floor, comparison, conversion to an integer) have the derivative 0.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from tilesmith.support.errors import ExpressionError

from .expr import Binary, Call, Cast, Expr, Load, Select, Unary, cast, const, post_order, select
from .intrinsics import call

Slopes = Callable[..., tuple["Expr | None", ...]]
"""Maps operands to the partial derivative for each operand; None for 0."""


def _one(slope: Callable[[Expr], Expr]) -> Slopes:
    return lambda x: (slope(x),)


def _zero(*operands: Expr) -> tuple[None, ...]:
    return (None,) * len(operands)


def _like(value: float, x: Expr) -> Expr:
    return const(value, x.dtype)


def _sign(x: Expr) -> Expr:
    return select(x > 0, 1, select(x < 0, const(-1, x.dtype), const(0, x.dtype)))


def _power(x: Expr, y: Expr) -> tuple[Expr, Expr]:
    zero = _like(0, x)
    by_base = select(y == 0, zero, y * call("pow", x, y - 1))
    # The limit of x^y * log(x) at x = 0 is 0 for y > 0, and PyTorch takes 0 for y = 0, too.
    by_exponent = select(x == 0, zero, call("pow", x, y) * call("log", x))
    return by_base, by_exponent


def _share(a: Expr, b: Expr) -> Expr:
    """The derivative of max(a, b) with respect to `a`: 1, 0, or 1/2 for equal operands."""
    return select(a > b, 1, select(a < b, const(0, a.dtype), const(0.5, a.dtype)))


def _shares(a: Expr, b: Expr) -> tuple[Expr, Expr]:
    return _share(a, b), _share(b, a)


def _remainder(rounded: str) -> Slopes:
    return lambda a, b: (_like(1, a), -call(rounded, a / b))


OPERATIONS: dict[str, Slopes] = {
    "neg": _one(lambda x: _like(-1, x)),
    "add": lambda a, b: (_like(1, a), _like(1, b)),
    "sub": lambda a, b: (_like(1, a), _like(-1, b)),
    "mul": lambda a, b: (b, a),
    "div": lambda a, b: (1 / b, -a / (b * b)),
    "max": _shares,
    "min": lambda a, b: _shares(b, a),
    "floordiv": _zero,
    "truncdiv": _zero,
    "floormod": _remainder("floor"),
    "truncmod": _remainder("trunc"),
}
"""Partial derivatives of the operations on floats."""

FUNCTIONS: dict[str, Slopes] = {
    "exp": _one(lambda x: call("exp", x)),
    "exp2": _one(lambda x: call("exp2", x) * math.log(2)),
    "log": _one(lambda x: 1 / x),
    "log1p": _one(lambda x: 1 / (1 + x)),
    "sqrt": _one(lambda x: 0.5 / call("sqrt", x)),
    "rsqrt": _one(lambda x: -0.5 * call("rsqrt", x) / x),
    "erf": _one(lambda x: call("exp", -x * x) * (2 / math.sqrt(math.pi))),
    "sin": _one(lambda x: call("cos", x)),
    "cos": _one(lambda x: -call("sin", x)),
    "tan": _one(lambda x: 1 + call("tan", x) * call("tan", x)),
    "asin": _one(lambda x: call("rsqrt", 1 - x * x)),
    "acos": _one(lambda x: -call("rsqrt", 1 - x * x)),
    "atan": _one(lambda x: 1 / (1 + x * x)),
    "sinh": _one(lambda x: call("cosh", x)),
    "cosh": _one(lambda x: call("sinh", x)),
    "tanh": _one(lambda x: 1 - call("tanh", x) * call("tanh", x)),
    "asinh": _one(lambda x: call("rsqrt", x * x + 1)),
    "acosh": _one(lambda x: call("rsqrt", x * x - 1)),
    "atanh": _one(lambda x: 1 / (1 - x * x)),
    "abs": _one(_sign),
    "pow": _power,
    "fma": lambda a, b, c: (b, a, _like(1, c)),
    **dict.fromkeys(("floor", "ceil", "trunc", "round", "bitcast"), _zero),
}
"""Partial derivatives of the functions of floats."""


def derivative(root: Expr, of: Expr) -> Expr | None:
    """The derivative of `root` with respect to its part `of`, a float; None if it is 0.

    Every occurrence of `of` counts.  Raises ExpressionError if an operation has no rule.
    """
    known: dict[Expr, Expr | None] = {}
    for node in post_order(root):
        known[node] = _like(1, of) if node is of else _step(node, known)
    return known[root]


def _step(node: Expr, known: dict[Expr, Expr | None]) -> Expr | None:
    """The derivative of a node from the derivatives of its operands."""
    if isinstance(node, Load) or not node.dtype.is_float:
        return None
    if isinstance(node, Select):
        a, b = known[node.if_true], known[node.if_false]
        if a is None and b is None:
            return None
        zero = const(0, node.dtype)
        return select(node.cond, zero if a is None else a, zero if b is None else b)
    if all(known[c] is None for c in node.children):
        return None
    if isinstance(node, Cast):
        inner = known[node.a]
        return None if inner is None else cast(inner, node.dtype)
    key = node.name if isinstance(node, Call) else getattr(node, "op", None)
    slopes = (FUNCTIONS if isinstance(node, Call) else OPERATIONS).get(key or "")
    if slopes is None or not isinstance(node, (Call, Unary, Binary)):
        raise ExpressionError(f"{node}: expected operations with a derivative, found {key!r}")
    total: Expr | None = None
    for slope, child in zip(slopes(*node.children), node.children, strict=True):
        inner = known[child]
        if slope is not None and inner is not None:
            term = times(slope, inner)
            total = term if total is None else total + term
    return total


def times(a: Expr, b: Expr) -> Expr:
    """`a * b`, without a factor 1."""
    one = const(1, a.dtype)
    return b if a is one else a if b is one else a * b
