"""Arithmetic operations of a statement by kind: their number per point of its loops."""

from __future__ import annotations

from collections.abc import Iterator

from tilesmith.ir import expr as ir
from tilesmith.ir.expr import Expr
from tilesmith.perf.operations import KINDS, kind_of
from tilesmith.te.tensor import Reduce


def operations(body: tuple[Expr, ...]) -> dict[str, int]:
    """The number of operations of each of `KINDS` per point.

    Arithmetic on indices does not count.  Selects by indices do not count either, since lowering
    peels them or hoists them out of the loops.
    """
    counts: dict[str, int] = dict.fromkeys(KINDS, 0)
    first = body[0]
    roots = first.sources if isinstance(first, Reduce) else body
    values = list(_values(tuple(map(_guarded, roots))))
    fused = set[Expr]()
    for e in values:
        if isinstance(e, ir.Binary) and e.op in ("add", "sub") and e.dtype.is_float:
            term = next((x for x in (e.a, e.b) if _is_product(x) and x not in fused), None)
            if term is not None:
                fused.add(term)
    for e in values:
        if isinstance(e, ir.Binary) and e.dtype.is_float and e.op in ("add", "sub"):
            counts["fma" if e.a in fused or e.b in fused else "add"] += 1
        elif e not in fused and (kind := kind_of(e)) is not None:
            counts[kind] += 1
    if isinstance(first, Reduce):
        for root in map(_guarded, roots):
            sums = first.reducer.operation == "add" and root.dtype.is_float
            if sums and _is_product(root) and root not in fused:
                counts["mul"] -= 1
                counts["fma"] += 1
            else:
                counts["add" if root.dtype.is_float else "integer"] += 1
    return counts


def _guarded(e: Expr) -> Expr:
    """The value inside a guard on indices."""
    if isinstance(e, ir.Select) and isinstance(e.if_false, ir.Const) and not _reads(e.cond):
        return e.if_true
    return e


def _reads(e: Expr) -> bool:
    return any(isinstance(x, ir.Load) for x in _values((e,)))


def _values(roots: tuple[Expr, ...]) -> Iterator[Expr]:
    """The nodes that compute values, each once.  Nodes of indices, and selects by indices, are left
    out.
    """
    seen: set[Expr] = set()
    stack = list(roots)
    while stack:
        e = stack.pop()
        if e in seen:
            continue
        seen.add(e)
        if isinstance(e, ir.Select) and not _reads(e.cond):
            stack += [e.if_true, e.if_false]
            continue
        yield e
        if not isinstance(e, ir.Load):
            stack.extend(e.children)


def _is_product(e: Expr) -> bool:
    return isinstance(e, ir.Binary) and e.op == "mul" and e.dtype.is_float
