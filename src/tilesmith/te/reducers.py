"""Reductions of users, which are recognised by what they compute."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import zip_longest
from typing import Any

from tilesmith.ir.dtypes import DType
from tilesmith.ir.expr import Expr, as_expr, const

from .tensor import IterVar, Reduce, Reducer, recognised, reduced_axes
from .written import check_reducer


def comm_reducer(
    combine: Callable[..., Any], identity: Callable[..., Any], name: str = "reduce"
) -> Callable[..., tuple[Expr, ...] | Expr]:
    """A user-defined reduction.  It must be associative and commutative.

    combine: gets two values (tuples of n for n values) and returns one.
    identity: gets the element types and returns the starting value, which changes no other value.

    A sum, product, minimum or maximum by any name is recognised, and is as fast as `te.sum`.

    The result is used like `te.sum`: `argmax((index, value), axis=k)` returns one expression per
    value.
    """

    def combined(a: tuple[Expr, ...], b: tuple[Expr, ...]) -> tuple[Expr, ...]:
        r = combine(*((x[0] if len(x) == 1 else x) for x in (a, b)))
        return tuple(as_expr(x) for x in (r if isinstance(r, (tuple, list)) else (r,)))

    def start(dtypes: tuple[DType, ...]) -> tuple[Expr, ...]:
        r = identity(*dtypes)
        values = r if isinstance(r, (tuple, list)) else (r,)
        typed = zip_longest(values, dtypes)  # more or fewer values are found by `check_reducer`
        return tuple(v if isinstance(v, Expr) else const(v, d) for v, d in typed if v is not None)

    reducer = Reducer(name, combined, start)

    def reduce(values: Any, axis: IterVar | Sequence[IterVar]) -> Any:
        several = isinstance(values, (tuple, list))
        sources = tuple(as_expr(v) for v in (values if several else (values,)))
        axes = reduced_axes(axis)
        dtypes = tuple(s.dtype for s in sources)
        check_reducer(name, combined, start, dtypes)
        known = recognised(reducer, dtypes)
        results = tuple(Reduce(known, sources, axes, i) for i in range(len(sources)))
        return results if several else results[0]

    return reduce
