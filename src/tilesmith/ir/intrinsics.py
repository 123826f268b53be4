"""Expressions of calls (`ir.functions`): checked indices and divisors, and `call` itself."""

from __future__ import annotations

from collections.abc import Callable

from tilesmith.support.arguments import checked
from tilesmith.support.errors import ExpressionError

from .dtypes import DType, bool_
from .expr import (
    Broadcast,
    Call,
    Expr,
    ExprLike,
    Load,
    as_expr,
    cast,
    const,
    maximum,
    minimum,
    post_order,
    rebuilt,
    select,
    type_text,
)
from .functions import INTRINSICS


def checked_index(index: Expr, extent: ExprLike, position: ExprLike) -> Expr:
    """The nonnegative form of `index`, in 0..extent-1; a negative index counts from the end.

    An invalid index becomes 0, and compiled code reports it: at the end of the kernel, the run
    fails with an error that states the index and its `position` (its number in the tensor of
    indices).  The operands and the result are of type i64.
    """
    return call("check_index", index, extent, position)


FROM_FRONT = 1 << 62
"""The number that `checked_place` subtracts from a negative index; no axis is that large."""


def checked_place(index: Expr, extent: ExprLike, position: Expr) -> Expr:
    """`checked_index` for an index that never counts from the end: a negative one is reported.

    The report of a negative index has -1 - position as the position.  So it differs from the report
    of an index that is too large.
    """
    place = select(index < 0, index - FROM_FRONT, index)
    return checked_index(place, extent, select(index < 0, -1 - position, position))


BY_ZERO = -(1 << 61)
"""The index that `checked_divisor` reports for a 0; no tensor has that many elements."""


def checked_divisor(divisor: Expr, position: Expr) -> Expr:
    """The divisor, or -1 if it is 0.  Compiled code reports the 0 with its `position`."""
    fine = checked_index(select(divisor == 0, const(BY_ZERO), 1), 2, position)
    return divisor + cast(fine - 1, divisor.dtype)


def needs_guard(node: Expr) -> bool:
    """True for a node that may be evaluated only under its condition: a load, which may lie outside
    the memory, or the check of an index, which may report.
    """
    return isinstance(node, Load) or is_check(node)


def checks_index(root: Expr) -> bool:
    """True if an index is checked in `root`."""
    return any(map(is_check, post_order(root)))


def is_check(node: Expr) -> bool:
    """True for a `checked_index`."""
    return isinstance(node, Call) and node.name == "check_index"


def with_positions(root: Expr, f: Callable[[Expr], Expr] = lambda _: const(0)) -> Expr:
    """`root` with `f(position)` in place of the position of each checked index (default: 0).  With
    0, the result mentions only variables on which its value depends.
    """
    done: dict[Expr, Expr] = {}
    for node in post_order(root, done):
        new_node = rebuilt(node, done)
        if is_check(new_node):
            *about, position = new_node.children
            new = f(position)
            if new.lanes != position.lanes:
                new = Broadcast(new, position.lanes)
            new_node = new_node.with_children((*about, new))
        done[node] = new_node
    return done[root]


def without_checks(root: Expr) -> Expr:
    """`root` with indices that are clamped to the axis instead of checked."""
    done: dict[Expr, Expr] = {}
    for node in post_order(root, done):
        new_node = rebuilt(node, done)
        if is_check(new_node):
            index, extent, _ = new_node.children
            place = index + select(index < 0, extent, extent - extent)
            new_node = minimum(maximum(place, 0), extent - 1)
        done[node] = new_node
    return done[root]


@checked(ExpressionError)
def call(name: str, *args: ExprLike, dtype: DType | None = None) -> Expr:
    """`Call` of a known intrinsic; only `bitcast` needs `dtype`.

    Raises ExpressionError for unknown names, and for arguments that the intrinsic does not take.
    """
    intrinsic = INTRINSICS.get(name)
    if intrinsic is None:
        raise ExpressionError(f"unknown function {name!r}; known are {', '.join(INTRINSICS)}")
    exprs = [as_expr(a) for a in args[:1]]
    exprs += [as_expr(a, exprs[0]) for a in args[1:]]
    lanes = max(e.lanes for e in exprs)
    exprs = [Broadcast(e, lanes) if e.lanes < lanes else e for e in exprs]
    if len(exprs) != intrinsic.arity:
        raise ExpressionError(f"{name} takes {intrinsic.arity} arguments, got {len(exprs)}")
    types = {e.dtype for e in exprs}
    if exprs[0].dtype.is_storage and name != "bitcast":
        raise ExpressionError(f"{name} is not defined on {exprs[0].dtype}; cast first")
    if len(types) > 1 or not intrinsic.takes(exprs[0].dtype):
        wanted = "floats of one type" if intrinsic.of_floats else "arguments of one type"
        wanted = f"arguments of {intrinsic.only}" if intrinsic.only is not None else wanted
        raise ExpressionError(
            f"{name} takes {wanted}, found {', '.join(map(type_text, exprs))}; cast first"
        )
    return Call(name, tuple(exprs), bool_ if intrinsic.returns_bool else dtype or exprs[0].dtype)
