"""Where the reads of a group land in memory, as strides per loop axis."""

from __future__ import annotations

from collections.abc import Iterable

from tilesmith.ir.affine import as_affine
from tilesmith.ir.expr import Expr, Load, Select, Var, const, free_vars, post_order, substitute
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


def address(
    tensor: Tensor, indices: tuple[Expr, ...], layout: Layout
) -> tuple[dict[Var, int], int] | None:
    """Where an access lands, in elements: a stride per variable, and the place where all are 0.

    None when that is not affine.
    """
    shape = layout.physical_shape(tensor.shape)
    flat: Expr = const(0)
    for index, extent in zip(layout.map_indices(indices), shape, strict=True):
        flat = flat * extent + index
    affine = as_affine(simplify(flat))
    if affine is None:
        return None
    found: dict[Var, int] = {}
    for atom, coefficient in affine[0].items():
        if not isinstance(atom, Var):
            return None
        found[atom] = coefficient
    return found, affine[1]


def strides(tensor: Tensor, indices: tuple[Expr, ...], layout: Layout) -> dict[Var, int] | None:
    """Elements between neighbours along each variable of an access; None when it is not affine."""
    found = address(tensor, indices, layout)
    return None if found is None else found[0]


def accesses(
    group: Group, op: Compute, keep: Iterable[Compute] = ()
) -> list[dict[Var, int] | None]:
    """Strides of every read of the expanded `op`, then of its write."""
    result = [
        strides(node.buffer, node.indices, group.layout(node.buffer))
        for body in expand(op, keep)
        for node in post_order(body)
        if isinstance(node, Load) and isinstance(node.buffer, Tensor)
    ]
    out = op.outputs[0]
    result.append(strides(out, tuple(a.var for a in op.axis), group.layout(out)))
    return result


def condition_vars(op: Compute, keep: Iterable[Compute] = ()) -> set[Var]:
    """Variables on which a select between elements depends."""
    found: set[Var] = set()
    for body in expand(op, keep):
        for node in post_order(body):
            if isinstance(node, Select):
                found |= free_vars(node.cond)
    return found
