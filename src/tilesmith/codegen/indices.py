"""Recognition of forms of indices: flat, sums of terms, constant, and along a column."""

from __future__ import annotations

from tilesmith.ir.expr import Binary, Const, Expr, Ramp, const
from tilesmith.support.errors import InternalError


def flat_index(indices: tuple[Expr, ...]) -> Expr:
    """The single index of a flat access; 0 for a 0-d buffer."""
    if len(indices) > 1:
        raise InternalError(
            f"code generation needs flat buffers, found an access with {len(indices)} indices"
        )
    for index in indices:
        return index.base if isinstance(index, Ramp) and index.size == 1 else index
    return const(0)


def terms_of(index: Expr) -> tuple[list[tuple[Expr, int]], int]:
    """The terms of a sum, each with its constant factor, and the sum of the constant terms."""
    terms: list[tuple[Expr, int]] = []
    constant = 0
    stack: list[tuple[Expr, int]] = [(index, 1)]
    while stack:
        e, factor = stack.pop()
        if isinstance(e, Const):
            constant += factor * int(e.value)
            continue
        if isinstance(e, Binary):
            if e.op == "add" or e.op == "sub":
                stack.append((e.b, factor if e.op == "add" else -factor))
                stack.append((e.a, factor))
                continue
            if e.op == "mul" and isinstance(e.b, Const):
                stack.append((e.a, factor * int(e.b.value)))
                continue
            if e.op == "mul" and isinstance(e.a, Const):
                stack.append((e.b, factor * int(e.a.value)))
                continue
        terms.append((e, factor))
    return terms, constant


def constant_access(index: Expr, lanes: int) -> tuple[int, int] | None:
    """(first element, lanes) of an access at a constant index or a constant ramp of stride 1, else
    None.
    """
    if isinstance(index, Ramp):
        unit = isinstance(index.stride, Const) and index.stride.value == 1
        return (int(index.base.value), lanes) if unit and isinstance(index.base, Const) else None
    return (int(index.value), 1) if isinstance(index, Const) else None


def column_access(index: Expr, lanes: int) -> tuple[int, tuple[tuple[int, int], ...]] | None:
    """An access with constant start and constant stride s > 1, as one column of a matrix whose rows
    have s elements.

    Returns the column's number, and each row as (first element, s); None for other accesses.
    """
    if not isinstance(index, Ramp) or not isinstance(index.base, Const):
        return None
    if not isinstance(index.stride, Const) or index.stride.value <= 1:
        return None
    width = int(index.stride.value)
    row, column = divmod(int(index.base.value), width)
    return column, tuple(((row + k) * width, width) for k in range(lanes))
