"""The stages of a Winograd convolution as tensor expressions.

Tensors have the axes [x, y, ...]: the points of a tile first, then all other axes.  The arithmetic
along one axis comes from `interpolation`.  The schedule step `winograd` and the operator
`winograd_conv` are made of these stages.  The operator gets weights that were transformed at
compile time.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from tilesmith.ir.expr import Expr
from tilesmith.ir.types import Dim

from .interpolation import WINDOW, chosen, output_rows
from .tensor import Tensor, compute

Rows = Callable[[int, Sequence[Any]], list[Any]]
"""A transform along one axis for tiles of m x m results: `input_rows` or `weight_rows`."""

Read = Callable[[Any, Any, Sequence[Expr]], Expr]
"""Reads element (row, column) of a tile or window, which the third argument selects."""


def points(m: int) -> int:
    """The points along one axis of a tile of m x m results."""
    return m + WINDOW - 1


def transformed(
    names: tuple[str, str], m: int, rows: Rows, size: int, read: Read, rest: dict[str, Dim]
) -> tuple[Tensor, Tensor]:
    """The transforms of `size` x `size` elements, first along the columns only, [x, s, *rest], then
    also along the rows, [x, y, *rest].  `rest` maps the other axes to their extents.
    """
    t, extents = points(m), tuple(rest.values())

    def column(x: Expr, s: Expr, *at: Expr) -> Expr:
        return chosen(x, rows(m, [read(r, s, at) for r in range(size)]))

    half = compute((t, size, *extents), column, names[0], ["x", "s", *rest])

    def row(x: Expr, y: Expr, *at: Expr) -> Expr:
        return chosen(y, rows(m, [half[(x, s, *at)] for s in range(size)]))

    return half, compute((t, t, *extents), row, names[1], ["x", "y", *rest])


def result_rows(name: str, m: int, products: Tensor, rest: Sequence[str]) -> Tensor:
    """The inverse transform of `products` [x, y, *rest] along the columns: [r, y, *rest]."""
    t = points(m)

    def row(r: Expr, y: Expr, *at: Expr) -> Expr:
        return chosen(r, output_rows(m, [products[(i, y, *at)] for i in range(t)]))

    return compute((m, t, *products.shape[2:]), row, name, ["r", "y", *rest])


def result_at(m: int, rows: Tensor, i: Expr, j: Expr, at: Sequence[Expr]) -> Expr:
    """Element (i, j) of the result image, computed from `rows`, the output of `result_rows`.  `at`
    holds the indices of the tile and of the other axes.
    """
    values = [rows[(i % m, c, *at)] for c in range(points(m))]
    return chosen(j % m, output_rows(m, values))
