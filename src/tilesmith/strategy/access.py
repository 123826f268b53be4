"""Where the reads of a group land in memory, as strides per loop axis."""

from __future__ import annotations

import math
from collections.abc import Iterable

from tilesmith.ir.affine import Affine, affine_form
from tilesmith.ir.dtypes import i64
from tilesmith.ir.expr import (
    Binary,
    Const,
    Expr,
    Load,
    Select,
    Var,
    const,
    free_vars,
    post_order,
    substitute,
)
from tilesmith.ir.layout import Layout
from tilesmith.ir.simplify import simplify
from tilesmith.te.tensor import Compute, Tensor

from .group import Group


def expand(op: Compute, keep: Iterable[Compute] = ()) -> tuple[Expr, ...]:
    """The bodies of `op` with every producer stage but those in `keep` (and reductions) inlined."""
    kept = set(keep)
    memo: dict[Expr, Expr] = {}

    def inline(e: Expr) -> Expr:
        for node in post_order(e):
            if node in memo:
                continue
            rebuilt = (
                node.with_children(tuple(memo[c] for c in node.children)) if node.children else node
            )
            if isinstance(rebuilt, Load) and isinstance(rebuilt.buffer, Tensor):
                producer = rebuilt.buffer.op
                if (
                    isinstance(producer, Compute)
                    and producer not in kept
                    and not producer.reduce_axis
                ):
                    body = inline(producer.body[rebuilt.buffer.index])
                    vars_ = [a.var for a in producer.axis]
                    rebuilt = substitute(body, dict(zip(vars_, rebuilt.indices, strict=True)))
            memo[node] = rebuilt
        return memo[e]

    return tuple(inline(b) for b in op.body)


def address_terms(tensor: Tensor, indices: tuple[Expr, ...], layout: Layout) -> Affine:
    """The number of the element that an access takes, as a sum of atoms."""
    shape = layout.physical_shape(tensor.shape)
    flat: Expr = const(0)
    for index, extent in zip(layout.map_indices(indices), shape, strict=True):
        flat = flat * extent + index
    return affine_form(simplify(flat))


def address(
    tensor: Tensor, indices: tuple[Expr, ...], layout: Layout
) -> tuple[dict[Var, int], int] | None:
    """Where an access lands, in elements: a stride per variable, and the place where all are 0.

    None when that is not affine.
    """
    terms, constant = address_terms(tensor, indices, layout)
    found = {atom: k for atom, k in terms.items() if isinstance(atom, Var)}
    return (found, constant) if len(found) == len(terms) else None


def strides(tensor: Tensor, indices: tuple[Expr, ...], layout: Layout) -> dict[Var, int] | None:
    """Elements between neighbours along each variable of an access; None when it is not affine."""
    found = address(tensor, indices, layout)
    return None if found is None else found[0]


def known_strides(
    tensor: Tensor, indices: tuple[Expr, ...], layout: Layout
) -> dict[Var, int | None]:
    """The same for an access that need not be affine: None for the variables on which it depends
    in other ways.
    """
    terms, _ = address_terms(tensor, indices, layout)
    found: dict[Var, int | None] = {a: k for a, k in terms.items() if isinstance(a, Var)}
    for atom in terms:
        if not isinstance(atom, Var):
            found |= dict.fromkeys(free_vars(atom))
    return found


def accesses(
    group: Group, op: Compute, keep: Iterable[Compute] = ()
) -> list[dict[Var, int] | None]:
    """Strides of every read of the expanded `op`, then of its write."""
    return [strides(t, at, group.layout(t)) for t, at in places(op, keep)]


def places(op: Compute, keep: Iterable[Compute] = ()) -> list[tuple[Tensor, tuple[Expr, ...]]]:
    """What the expanded `op` reads and at which indices, then what it writes."""
    found: list[tuple[Tensor, tuple[Expr, ...]]] = [
        (node.buffer, node.indices)
        for body in expand(op, keep)
        for node in post_order(body)
        if isinstance(node, Load) and isinstance(node.buffer, Tensor)
    ]
    return [*found, (op.outputs[0], tuple(a.var for a in op.axis))]


Divisions = frozenset[tuple[int, int]]
"""(k, d) for each quotient or remainder by d of a sum in which a variable counts k times."""


def divisions(op: Compute, keep: Iterable[Compute] = ()) -> dict[Var, Divisions]:
    """The divisions of the expanded `op` by numbers, for each axis that they depend on."""
    found: dict[Var, set[tuple[int, int]]] = {a.var: set() for a in op.axis}
    for body in expand(op, keep):
        for node in post_order(simplify(body)):
            if not isinstance(node, Binary) or node.op not in ("floordiv", "floormod"):
                continue
            if not isinstance(node.b, Const) or node.dtype is not i64:
                continue
            for atom, k in affine_form(node.a)[0].items():
                if isinstance(atom, Var) and atom in found:
                    found[atom].add((k, int(node.b.value)))
    return {v: frozenset(pairs) for v, pairs in found.items()}


def cycle(divided: Divisions, step: int = 1) -> int:
    """Steps of `step` of a variable after which all remainders come again."""
    return math.lcm(1, *(d // math.gcd(d, k * step) for k, d in divided))


def condition_vars(op: Compute, keep: Iterable[Compute] = ()) -> set[Var]:
    """Variables on which a select between elements depends."""
    found: set[Var] = set()
    for body in expand(op, keep):
        for node in post_order(body):
            if isinstance(node, Select):
                found |= free_vars(node.cond)
    return found
