"""Analysis of the indices of a kernel's accesses: strides of lanes, and periods of loops."""

from __future__ import annotations

from tilesmith.ir.expr import Binary, Broadcast, Const, Expr, Load, Ramp, Var, reached
from tilesmith.ir.lane_offsets import lane_offsets
from tilesmith.loop.nodes import Stmt
from tilesmith.loop.visit import exprs

SCATTERED = 1 << 20
"""The stride of lanes without a common stride."""


def linear(index: Expr) -> tuple[Expr, int]:
    """Base and stride of an index; `SCATTERED` for lanes without a common stride."""
    if isinstance(index, Ramp) and isinstance(index.stride, Const):
        return index.base, int(index.stride.value)
    if isinstance(index, Broadcast):
        return index.value, 0
    if isinstance(index, Binary) and index.op in ("add", "sub") and index.lanes > 1:
        (a, s), (b, t) = linear(index.a), linear(index.b)
        if a.lanes == 1 and b.lanes == 1:
            return Binary(index.op, a, b), s + t if index.op == "add" else s - t
    return index, 1 if index.lanes == 1 else SCATTERED


def picked(index: Expr) -> tuple[Expr, int, int] | None:
    """(first element, span in elements, number of whole vectors that contain all lanes) of an index
    whose lanes are at constant offsets; None for other indices.

    The span is from the first to the last lane, both included.
    """
    lanes = lane_offsets(index)
    if lanes is None:
        return None
    base, offsets = lanes
    first = min(offsets)
    vectors = {(o - first) // index.lanes for o in offsets}
    return base + first, max(offsets) - first + 1, len(vectors)


def computed_from(e: Expr) -> tuple[Expr, ...]:
    """The operands of `e` that need instructions.  Constant offsets between lanes need none."""
    if isinstance(e, Load) and len(e.indices) == 1 and isinstance(e.indices[0], Binary):
        lanes = lane_offsets(e.indices[0]) if e.indices[0].lanes > 1 else None
        if lanes is not None:
            return (lanes[0], *(c for c in e.children if c is not e.indices[0]))
    return e.children


def periods(body: Stmt) -> dict[Var, list[int]]:
    """For each loop variable, the constants that divide it; each constant is a multiple of the
    previous.
    """
    by_variable: dict[Var, set[int]] = {}
    for e in reached(exprs(body)):
        if isinstance(e, Binary) and e.op in ("floordiv", "floormod") and isinstance(e.b, Const):
            inner = 1
            a = e.a
            while isinstance(a, Binary) and a.op == "floordiv" and isinstance(a.b, Const):
                inner, a = inner * int(a.b.value), a.a
            if isinstance(a, Var):
                by_variable.setdefault(a, set()).update((inner, inner * int(e.b.value)))
    chains: dict[Var, list[int]] = {}
    for v, periods in by_variable.items():
        for p in sorted(periods - {1}):
            if not chains.get(v) or p % chains[v][-1] == 0:
                chains.setdefault(v, []).append(p)
    return chains
