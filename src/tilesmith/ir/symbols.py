"""Symbolic dimensions: extents that are known only at run time.

Such a dimension is an i64 expression over `Var`s with `sizes`.  A symbol is one of these Vars, such
as the length of a sequence.  Decisions about correctness use the expressions, so they hold for all
sizes.  Decisions about speed use `expected`.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping

from .dtypes import i64
from .expr import Binary, Const, Expr, Unary, Var, as_expr, free_vars, post_order, substitute
from .fold import INTEGER
from .simplify import simplify
from .sizes import LARGEST, Sizes
from .types import Dim

_EXPECTED = 1 << 20
"""The expected value of a symbol without `sizes`, which is taken to be large."""


def symbol(name: str, low: int = 1, high: int = LARGEST, expected: int | None = None) -> Var:
    """A new symbol; `expected` is by default 128, or the nearest size in `low`..`high`."""
    guess = min(max(128, low), high) if expected is None else expected
    return Var(name, i64, 1, Sizes(low, high, guess))


def symbols_of(dims: Iterable[Dim]) -> tuple[Var, ...]:
    """The symbols in `dims`, each once, in order of their first use."""
    symbols: dict[Var, None] = {}
    for d in dims:
        if isinstance(d, Expr):
            inside = free_vars(d)
            symbols |= dict.fromkeys(n for n in post_order(d) if isinstance(n, Var) and n in inside)
    return tuple(symbols)


def value_of(dim: Dim, values: Mapping[Var, int]) -> int:
    """The value of an extent for these values of its symbols.

    Raises KeyError for a symbol without a value, and ValueError for an undefined result: a division
    by zero, or an expression that is not integer arithmetic.
    """
    if isinstance(dim, int):
        return dim
    done: dict[Expr, int] = {}
    for node in post_order(dim):
        done[node] = _apply(node, done, values)
    return done[dim]


def _apply(node: Expr, done: Mapping[Expr, int], values: Mapping[Var, int]) -> int:
    if isinstance(node, Var):
        return values[node]
    if isinstance(node, Const):
        return int(node.value)
    if isinstance(node, Unary) and node.op == "neg":
        return -done[node.a]
    if isinstance(node, Binary) and node.op in INTEGER:
        result = INTEGER[node.op](done[node.a], done[node.b])
        if result is not None:
            return result
    raise ValueError(f"the extent {node} has no value")


def bound(dim: Dim, extents: Mapping[Expr, Dim]) -> Dim:
    """The extent with symbols, or whole expressions, replaced by `extents`; a number if no symbol
    is left.

    Raises ValueError if the result is undefined, such as a division by zero.
    """
    if isinstance(dim, int):
        return dim
    extent = substitute(dim, {e: as_expr(d) for e, d in extents.items()})
    return as_dim(extent) if free_vars(extent) else value_of(extent, {})


def as_dim(extent: Expr | int) -> Dim:
    """The extent in its simplest form: equal extents should be one object."""
    if isinstance(extent, int):
        return extent
    simple = simplify(extent)
    return int(simple.value) if isinstance(simple, Const) else simple


def expected(dim: Dim) -> int:
    """The extent for which speed is optimised.  No result may depend on it."""
    if isinstance(dim, int):
        return dim
    sizes = {v: v.sizes.expected if v.sizes is not None else _EXPECTED for v in free_vars(dim)}
    return value_of(dim, sizes)


def expected_size(dims: Iterable[Dim]) -> int:
    """The number of elements for which speed is optimised: the product of the expected `dims`."""
    return math.prod(map(expected, dims))
