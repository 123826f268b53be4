"""Operators written as loops on a CPU: their loops are mapped to threads and vectors.

The outermost independent loops are shared among threads if there is enough work, and innermost ones
run in vector lanes.
"""

from __future__ import annotations

from dataclasses import replace

from tilesmith.graph.nodes import Graph
from tilesmith.ir.dtypes import i64
from tilesmith.ir.expr import Const, Var, const, free_vars, reads_memory
from tilesmith.ir.loop_tables import ForKind
from tilesmith.ir.simplify import simplify
from tilesmith.ir.symbols import as_dim, expected_size
from tilesmith.ir.target import Target
from tilesmith.loop.nodes import For, Func, If, Stmt
from tilesmith.loop.visit import children, rebuild, walk
from tilesmith.strategy.irregular import irregular_nest, is_mapped, with_value


def lower_irregular(body: Graph, target: Target, name: str) -> Func:
    """The kernel of an operator written as loops."""
    func = irregular_nest(body, name)
    if is_mapped(body):
        return func
    pairs = ((body.outputs[o], body.inputs[i]) for o, i in body.in_place)
    # Buffers that are updated in place don't count: only a small part is accessed.
    left = {v for pair in pairs for v in pair}
    values = dict.fromkeys((*body.inputs, *body.outputs))
    elements = sum(expected_size(v.type.shape) for v in values if v not in left)
    size = max(elements, _iterations(func.body))
    lanes = target.vector_lanes(max(v.dtype.bytes for v in values))
    return replace(func, body=_mapped(func.body, size >= target.parallel_elements, lanes))


def _iterations(stmt: Stmt) -> int:
    """Executions of the innermost bodies; a loop whose extent is not constant counts once."""
    inner = sum(map(_iterations, children(stmt)))
    if not isinstance(stmt, For):
        return inner
    names = free_vars(stmt.extent)
    is_known = not reads_memory(stmt.extent) and all(v.sizes is not None for v in names)
    return max(inner, 1) * (expected_size([as_dim(stmt.extent)]) if is_known else 1)


def _mapped(stmt: Stmt, shared: bool, lanes: int) -> Stmt:
    """`stmt` with its independent loops vectorised, and the outermost shared among threads if
    `shared`.
    """
    if not isinstance(stmt, For):
        return rebuild(stmt, lambda s: _mapped(s, shared, lanes), lambda e: e)
    extent = stmt.extent.value if isinstance(stmt.extent, Const) else None
    independent = stmt.kind == "parallel"
    kind = "parallel" if shared and independent else "serial"
    innermost = not any(isinstance(s, For) for s in walk(stmt.body))
    if independent and innermost and extent is not None and extent > 1:
        return _vectors(stmt, kind, min(lanes, int(extent)))
    return replace(stmt, kind=kind, body=_mapped(stmt.body, False, lanes))


def _vectors(loop: For, kind: ForKind, width: int) -> Stmt:
    """`loop` in vectors of `width` iterations; the tail has a predicate."""
    outer, lane = Var(f"{loop.var.name}o", i64), Var(f"{loop.var.name}i", i64)
    number = outer * width + lane
    body = with_value(loop.body, loop.var, loop.start + number)
    guarded = If(number < loop.extent, body, likely=True)
    vector = For(lane, const(0), const(width), "vectorized", guarded)
    count = (loop.extent + (width - 1)) // width
    return For(outer, const(0), simplify(count), kind, vector)
