"""Minimal filtering, F(m x m, 3 x 3): the arithmetic of Winograd convolutions along one axis.

A tile of m x m results comes from a tile of t x t inputs, t = m + 2, with t^2 products per pair of
channels instead of 9 m^2 (Lavin and Gray, "Fast Algorithms for Convolutional Neural Networks"):

    y = A' [ sum over channels of (G w G') * (B' d B) ] A

The matrices are those of Toom-Cook interpolation at t - 1 finite points and at infinity.  The
finite points are 0 and pairs +q, -q.  The two points of a pair share the even part and the odd part
of the polynomial, which are computed once.

Accuracy: for m = 4 the pairs are sqrt(1/2) and sqrt(2), between which rounding errors grow least.
Largest error against float64, relative to the largest magnitude of the result, for normal random
data and tiles summed in sequence:

    channels      direct     m = 2      m = 4      m = 4 with the textbook's points 1 and 2
    64            0.9e-6     0.3e-6     1.3e-6     5.8e-6
    256           1.6e-6     0.5e-6     2.4e-6     13.5e-6
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import numpy as np

from tilesmith.ir.expr import Expr, select

WINDOW = 3

SQUARES: dict[int, tuple[float, ...]] = {2: (1.0,), 4: (0.5, 2.0)}
"""Tile size m -> the squares of the interpolation points q."""


def input_rows(m: int, d: Sequence[Any]) -> list[Any]:
    """B' d for t inputs d (numbers, arrays or expressions).  The results are in the order of the
    points: 0, +q, -q, ..., infinity.
    """
    squares = SQUARES[m]
    every = _coefficients(squares)
    result = [_sum((c, d[2 * i]) for i, c in enumerate(every))]
    for s in squares:
        others = _coefficients([o for o in squares if o != s])
        even = _sum((c, d[2 * i + 2]) for i, c in enumerate(others))
        odd = _sum((c, d[2 * i + 1]) for i, c in enumerate(others))
        result += [_sum([(1.0, even), (sign * math.sqrt(s), odd)]) for sign in (1, -1)]
    return [*result, _sum((c, d[2 * i + 1]) for i, c in enumerate(every))]


def output_rows(m: int, p: Sequence[Any]) -> list[Any]:
    """A' p for t products (numbers, arrays or expressions).  For each pair of points +q and -q,
    even rows add the two values and odd rows subtract them.
    """
    points = [math.sqrt(s) for s in SQUARES[m]]
    pairs = [(p[k] + p[k + 1], p[k] - p[k + 1]) for k in range(1, m + 1, 2)]
    result = []
    for i in range(m):
        terms = [(q**i, pair[i % 2]) for q, pair in zip(points, pairs, strict=True)]
        first = [(1.0, p[0])] if i == 0 else []
        last = [(1.0, p[m + 1])] if i == m - 1 else []
        result.append(_sum([*first, *terms, *last]))
    return result


def weight_rows(m: int, w: Sequence[Any]) -> list[Any]:
    """G w for three weights w (numbers, arrays or expressions)."""
    rows = ([(float(g), v) for g, v in zip(row, w, strict=True) if g] for row in matrices(m)[1])
    return [_in_order(terms) for terms in rows]


def _in_order(terms: Sequence[tuple[float, Any]]) -> Any:
    """The sum of coefficient * value, added from first to last."""
    first, *rest = (v if c == 1 else v * c for c, v in terms)
    return sum(rest, first)


def _coefficients(squares: Sequence[float]) -> list[float]:
    """The coefficients of the product of (y - s) over all s in `squares`, lowest power first."""
    return [float(c) for c in np.atleast_1d(np.poly(squares))[::-1]]


def _sum(terms: Any) -> Any:
    """The sum of coefficient * value, without multiplications by 1."""
    total = None
    for c, value in sorted(terms, key=lambda term: term[0] != 1):
        if total is None:
            total = value if c == 1 else value * c
        elif abs(c) == 1:
            total = total + value if c == 1 else total - value
        else:
            total = total + value * c
    return total


@lru_cache(maxsize=8)
def matrices(m: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """B' [t, t], G [t, 3] and A' [m, t] in float64."""
    t = m + WINDOW - 1
    unit = list(np.eye(t))
    inputs = np.stack(input_rows(m, unit))
    points = [0.0, *(sign * math.sqrt(s) for s in SQUARES[m] for sign in (1, -1))]
    norms = [float(inputs[k] @ p ** np.arange(t)) for k, p in enumerate(points)]
    finite = [[p**i / n for i in range(WINDOW)] for p, n in zip(points, norms, strict=True)]
    return inputs, np.array([*finite, [0.0, 0.0, 1.0]]), np.stack(output_rows(m, unit))


def chosen(row: Expr, values: Sequence[Expr]) -> Expr:
    """`values[row]` as a chain of selects.  The chain is simplified to one value once unrolling
    makes `row` a constant.
    """
    result = values[-1]
    for i in reversed(range(len(values) - 1)):
        result = select(row == i, values[i], result)
    return result
