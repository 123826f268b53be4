"""Looking into vectors: the value shared by all lanes, and a single lane."""

from __future__ import annotations

from ..expr import Broadcast, Const, Expr, Ramp, const


def uniform(e: Expr) -> Expr:
    """The scalar that every lane of a broadcast holds; `e` itself for anything else."""
    return e.value if type(e) is Broadcast else e


def lane(e: Expr, i: int) -> Expr | None:
    """Lane `i` of a broadcast or ramp as a scalar; None for other vectors."""
    if type(e) is Broadcast:
        return e.value
    if type(e) is Ramp:
        return e.base + e.stride * const(i, e.dtype)
    return e if e.lanes == 1 else None


def spread(value: Expr, lanes: int) -> Expr:
    """`value` in `lanes` lanes."""
    return value if lanes == 1 else Broadcast(value, lanes)


def is_value(e: Expr, value: int | float) -> bool:
    """True for the literal `value`, or a vector of it.  Distinguishes -0.0 from 0.0."""
    scalar = uniform(e)
    return type(scalar) is Const and scalar is const(value, scalar.type)
