"""Cycles of one element of a stage, counted from its expression.

    loads in lane order             one load for each vector
    loads with a stride, repeated   a few loads and shuffles
    all other loads                 one gathered element for each lane

Lanes run along the last axis.  Expressions are interned, so a value that occurs twice counts once.
"""

from __future__ import annotations

from collections.abc import Sequence

from tilesmith.ir import expr as ir
from tilesmith.ir.dtypes import f32
from tilesmith.ir.expr import Expr, Var, post_order
from tilesmith.ir.target import Target
from tilesmith.perf.cycles import Instructions
from tilesmith.perf.operations import instructions_of, is_integer_division, kind_of

SHUFFLED = 4
"""Largest stride, in elements, at which vectors are loaded and shuffled instead of gathered."""
LANE_BYTES = f32.bytes
"""Vectors are counted for elements of this size; a vector of wider elements counts as several."""


def element_cycles(values: Sequence[Expr], lane: Var | None, target: Target) -> float:
    """Cycles of one core for one element of `values`, if lanes run along `lane`."""
    model, lanes = target.model, target.vector_lanes(LANE_BYTES)
    strides = lane_strides(values, lane)
    seen: set[Expr] = set()
    stack = list(values)
    counted, gathered = Instructions(), 0.0
    while stack:
        e = stack.pop()
        if e in seen:
            continue
        seen.add(e)
        if not isinstance(e, ir.Load):
            stack += e.children
            if strides[e] != 0:
                _count(e, counted, target)
            continue
        *outer, last = [strides[i] for i in e.indices] or [0.0]
        if last is None or abs(last) > SHUFFLED or any(step != 0 for step in outer):
            chosen = any(step is None for step in (*outer, last))
            gathered += 2.0 if chosen else 1.0
        elif last:
            counted.load += 1.0 if last == 1 else 1.5 + abs(last)
        stack += [i for i in e.indices if strides[i] is None]  # computing the index takes work too
    counted.issued += counted.load
    return counted.cycles(model) / lanes + gathered * model.gather_cycles


def is_larger(values: Sequence[Expr], most: int) -> bool:
    """Whether `values` have more than `most` distinct nodes."""
    seen: set[Expr] = set()
    stack = list(values)
    while stack and len(seen) <= most:
        e = stack.pop()
        if e not in seen:
            seen.add(e)
            stack += e.children
    return len(seen) > most


def _count(e: Expr, counted: Instructions, target: Target) -> None:
    """Add the vector instructions of one node, whose value differs between lanes."""
    kind = kind_of(e)
    if kind is None:
        return
    if isinstance(e, ir.Cast) and e.dtype.is_int and e.dtype.bytes == 8 and e.a.dtype.is_float:
        times = 2.0 * target.vector_lanes(LANE_BYTES)  # one scalar conversion per lane
    elif is_integer_division(e):
        times = target.model.integer_divide_cycles
    else:
        times = max(e.dtype.bytes / LANE_BYTES, 1.0)
    counted.add(instructions_of(kind, target.model), times)


def lane_strides(values: Sequence[Expr], lane: Var | None) -> dict[Expr, float | None]:
    """For each node, the difference of its values in neighbouring lanes, away from borders; None if
    this difference is not constant.

    A quotient has a fractional difference.  A remainder has the difference of its dividend.
    """
    strides: dict[Expr, float | None] = {}
    for value in values:
        for e in post_order(value, strides):
            strides[e] = _stride(e, [strides[c] for c in e.children], lane)
    return strides


def _stride(e: Expr, below: Sequence[float | None], lane: Var | None) -> float | None:
    if isinstance(e, Var):
        return 1.0 if e is lane else 0.0
    if all(step == 0 for step in below):
        return 0.0
    if isinstance(e, ir.Cast):
        return below[0] if e.a.dtype.is_int else None
    if isinstance(e, ir.Select):
        return below[1] if below[1] == below[2] else None
    if not isinstance(e, ir.Binary):
        return None
    a, b = below
    if e.op in ("min", "max"):  # a clamp has the stride of the operand that varies
        return b if a == 0 else a
    if a is None or b is None:
        return None
    if e.op in ("add", "sub"):
        return a + b if e.op == "add" else a - b
    if e.op == "mul" and isinstance(e.a, ir.Const):
        return b * float(e.a.value)
    if not isinstance(e.b, ir.Const) or not e.b.value:
        return None
    factor = float(e.b.value)
    return {"mul": a * factor, "floordiv": a / factor, "floormod": a}.get(e.op)
