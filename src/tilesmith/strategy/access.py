"""Addresses of a group's reads, as strides per loop axis."""

from __future__ import annotations

import math
from collections.abc import Iterable

from tilesmith.ir import expr as ir
from tilesmith.ir.affine import Affine, affine_form
from tilesmith.ir.dtypes import i64
from tilesmith.ir.expr import Expr, Var, const, free_vars, post_order, substitute
from tilesmith.ir.intrinsics import with_positions
from tilesmith.ir.layout import Layout
from tilesmith.ir.simplify import simplify
from tilesmith.te.tensor import Compute, Extern, Tensor

from .group import Group


def expand(op: Compute, keep: Iterable[Compute] = ()) -> tuple[Expr, ...]:
    """The bodies of `op` with its producers inlined, except producers in `keep`, reductions, scans
    and stages written as loops.
    """
    kept = set(keep)
    memo: dict[Expr, Expr] = {}

    def inline(e: Expr) -> Expr:
        for node in post_order(e, memo):
            new = ir.rebuilt(node, memo)
            if isinstance(new, ir.Load) and isinstance(new.buffer, Tensor):
                producer = new.buffer.op
                if (
                    isinstance(producer, Compute)
                    and not isinstance(producer, Extern)
                    and producer not in kept
                    and not producer.reduce_axis
                    and producer.recurrence is None
                ):
                    body = inline(producer.body[new.buffer.index])
                    vars_ = [a.var for a in producer.axis]
                    new = substitute(body, dict(zip(vars_, new.indices, strict=True)))
            memo[node] = new
        return memo[e]

    return tuple(inline(b) for b in op.body)


def address_terms(tensor: Tensor, indices: tuple[Expr, ...], layout: Layout) -> Affine:
    """The linear address of an access in elements, as an affine form."""
    shape = layout.physical_shape(tensor.shape)
    flat: Expr = const(0)
    for index, extent in zip(layout.map_indices(indices), shape, strict=True):
        flat = flat * extent + index
    return affine_form(simplify(flat))


def address(
    tensor: Tensor, indices: tuple[Expr, ...], layout: Layout
) -> tuple[dict[Var, int], int] | None:
    """Address of an access, in elements: a stride per variable, and the offset where all variables
    are 0.

    None if the address is not affine.
    """
    terms, constant = address_terms(tensor, indices, layout)
    coefficients = {atom: k for atom, k in terms.items() if isinstance(atom, Var)}
    return (coefficients, constant) if len(coefficients) == len(terms) else None


def strides(tensor: Tensor, indices: tuple[Expr, ...], layout: Layout) -> dict[Var, int] | None:
    """Stride of an access along each variable, in elements; None if the address is not affine."""
    strided = address(tensor, indices, layout)
    return None if strided is None else strided[0]


def known_strides(
    tensor: Tensor, indices: tuple[Expr, ...], layout: Layout
) -> dict[Var, int | None]:
    """Like `strides`, for any access.  The stride is None for a variable on which the address does
    not depend linearly.
    """
    terms, _ = address_terms(tensor, indices, layout)
    known: dict[Var, int | None] = {a: k for a, k in terms.items() if isinstance(a, Var)}
    for atom in terms:
        if not isinstance(atom, Var):
            known |= dict.fromkeys(free_vars(with_positions(atom)) - known.keys())
    return known


def is_one_run(outer: int | None, inner: int | None, extent: int) -> bool:
    """Whether one loop can replace two nested loops with these strides.  `extent` is the inner
    extent.
    """
    return outer is not None and inner is not None and outer == inner * extent


def accesses(
    group: Group, op: Compute, keep: Iterable[Compute] = ()
) -> list[dict[Var, int] | None]:
    """Strides of every read of the expanded `op`, then of its write."""
    return [strides(t, indices, group.layout(t)) for t, indices in places(op, keep)]


def places(op: Compute, keep: Iterable[Compute] = ()) -> list[tuple[Tensor, tuple[Expr, ...]]]:
    """The tensor and the indices of each read of the expanded `op`, then of its write."""
    reads: list[tuple[Tensor, tuple[Expr, ...]]] = [
        (node.buffer, node.indices)
        for body in expand(op, keep)
        for node in post_order(body)
        if isinstance(node, ir.Load) and isinstance(node.buffer, Tensor)
    ]
    return [*reads, (op.outputs[0], tuple(a.var for a in op.axis))]


Divisions = frozenset[tuple[int, int]]
"""Pairs (k, d), one for each quotient or remainder: it divides a sum by d, and k is the coefficient
of the variable in this sum.
"""


def divisions(op: Compute, keep: Iterable[Compute] = ()) -> dict[Var, Divisions]:
    """Divisions by constants in the expanded `op`, for each axis of `op`."""
    by_axis: dict[Var, set[tuple[int, int]]] = {a.var: set() for a in op.axis}
    for body in expand(op, keep):
        for node in post_order(simplify(body)):
            if not isinstance(node, ir.Binary) or node.op not in ("floordiv", "floormod"):
                continue
            if not isinstance(node.b, ir.Const) or node.dtype is not i64:
                continue
            for atom, k in affine_form(node.a)[0].items():
                if isinstance(atom, Var) and atom in by_axis:
                    by_axis[atom].add((k, int(node.b.value)))
    return {v: frozenset(pairs) for v, pairs in by_axis.items()}


def cycle(divided: Divisions, step: int = 1) -> int:
    """Number of steps, each of size `step`, after which all remainders repeat."""
    return math.lcm(1, *(d // math.gcd(d, k * step) for k, d in divided))


def condition_vars(op: Compute, keep: Iterable[Compute] = ()) -> set[Var]:
    """Variables in the conditions of the selects in the expanded `op`."""
    variables: set[Var] = set()
    for body in expand(op, keep):
        for node in post_order(body):
            if isinstance(node, ir.Select):
                variables |= free_vars(node.cond)
    return variables
