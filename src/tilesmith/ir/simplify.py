"""The simplifier: rewrites an expression to a smaller one of the same value.

`simplify(e, ctx)` works bottom-up with rules in tables indexed by node kind and operation
(`ir.rules`).  Results are cached by node in the `Context` (`ir.context`), which holds the facts at
the expression's place.

Assumptions and guarantees:
- Integers of type i64 made of Vars, constants and values of narrower types are *index arithmetic*:
  they are assumed not to overflow.  For an i64 value from memory, only facts modulo 2**64 are used,
  unless its interval shows that nothing overflows.
- Floats keep their value bit by bit (NaN payloads aside).  So `x * 1`, `x / 1`, `x - 0`, `x + -0.0`
  and folding in the dtype are allowed, but not `x + 0` (changes -0.0) or `x * 0` (NaN, infinities,
  signs).
- An integer division by zero is undefined, so a rule may assume that it does not happen.
- A rule never moves a `Load` out of the branch of a `Select` that guards it.
"""

from __future__ import annotations

from .context import Context
from .dtypes import bool_
from .expr import Expr
from .interval import Interval
from .rules import RULES
from .rules.lanes import is_value

EMPTY = Context(RULES)
"""The context without facts."""


def simplify(e: Expr, ctx: Context = EMPTY) -> Expr:
    """`e` in simplest form where the facts of `ctx` hold; the same object if nothing changes."""
    return ctx.simplify(e)


def can_prove(cond: Expr, ctx: Context = EMPTY) -> bool:
    """True if the bool `cond` is proved to hold (in all lanes)."""
    if cond.dtype is not bool_:
        raise TypeError(f"a condition is a bool, got {cond.dtype}: {cond}")
    return is_value(simplify(cond, ctx), True)


def interval(e: Expr, ctx: Context = EMPTY) -> Interval:
    """The possible values of the integer `e`: ends, stride and offset."""
    return ctx.interval(e)
