"""Operators written as loops: their loops mapped to threads and vectors, their accesses to memory.

The operator says which loops are independent and uses logical indices.  On a CPU the outermost
independent loops are shared among threads if there is enough work, and innermost ones run in vector
lanes.  A device has a thread for each iteration of the outermost ones.  Loops that a schedule made
stay as they are.  An access is mapped to the address that the layout of its tensor gives the
element.
"""

from __future__ import annotations

from dataclasses import replace

from tilesmith.graph.nodes import Graph, Value
from tilesmith.ir.dtypes import i64
from tilesmith.ir.expr import Const, Expr, Load, Var, const, free_vars, reads_memory, substitute
from tilesmith.ir.layout import Layout
from tilesmith.ir.loop_tables import ForKind
from tilesmith.ir.simplify import simplify
from tilesmith.ir.symbols import as_dim, expected_size
from tilesmith.ir.target import Target
from tilesmith.loop.nodes import Buffer, For, Func, If, Stmt, Store
from tilesmith.loop.visit import children, map_stmt, rebuild, walk
from tilesmith.strategy.group import constant_literals
from tilesmith.te.rewrite import map_loads


def is_irregular(body: Graph) -> bool:
    """True for a group that is a single operator written as loops."""
    return len(body.nodes) == 1 and body.nodes[0].op.is_irregular()


def lower_irregular(body: Graph, target: Target, name: str) -> Func:
    """The kernel of an operator written as loops.  Its parameters are the group's inputs, then its
    outputs, then the symbols of extents.
    """
    node = body.nodes[0]
    written = node.op.loops(*(v.type for v in node.inputs))
    values = dict(zip(written.buffers, (*node.inputs, *node.outputs), strict=True))
    inputs = {v: _parameter(v, f"in{i}") for i, v in enumerate(body.inputs)}
    outputs = {v: _parameter(v, f"out{i}") for i, v in enumerate(body.outputs)}
    memory = inputs | outputs
    literals = constant_literals(body)

    def place(v: Value, indices: tuple[Expr, ...]) -> tuple[Expr, ...]:
        return v.layout.map_indices(indices) if v.layout is not None else indices

    def load(e: Load) -> Expr:
        v = values.get(e.buffer)  # type: ignore[arg-type]  # a buffer: this is loop IR
        if v is None:
            return e
        return literals[v] if v in literals else Load(memory[v], place(v, e.indices), e.mask)

    def stmt(s: Stmt) -> Stmt:
        if isinstance(s, For) and isinstance(s.extent, Const) and s.extent.value == 1:
            return _replaced(s.body, s.var, s.start)
        if not isinstance(s, Store) or s.buffer not in values:
            return s
        v = values[s.buffer]
        return Store(memory[v], place(v, s.indices), s.value, s.mask)

    nest = map_stmt(written.body, f_expr=lambda e: map_loads((e,), load)[0], f_stmt=stmt)
    if node.op.is_scheduled:
        mapped = nest
    elif target.device is not None:
        mapped = _on_device(nest)
    else:
        pairs = ((body.outputs[o], body.inputs[i]) for o, i in body.in_place)
        left = {v for pair in pairs for v in pair}  # of which little is used
        elements = sum(expected_size(v.type.shape) for v in memory if v not in left)
        size = max(elements, _iterations(nest))
        lanes = target.vector_lanes(max(v.dtype.bytes for v in memory))
        mapped = _mapped(nest, size >= target.parallel_elements, lanes)
    return Func(name, (*memory.values(), *body.symbols), tuple(outputs.values()), mapped)


def _iterations(stmt: Stmt) -> int:
    """How often the bodies of innermost loops run.  A loop whose extent depends on other loops or
    on data counts once.
    """
    inner = sum(map(_iterations, children(stmt)))
    if not isinstance(stmt, For):
        return inner
    names = free_vars(stmt.extent)
    is_known = not reads_memory(stmt.extent) and all(v.sizes is not None for v in names)
    return max(inner, 1) * (expected_size([as_dim(stmt.extent)]) if is_known else 1)


def _parameter(v: Value, name: str) -> Buffer:
    layout = v.layout or Layout.row_major(v.type.rank)
    return Buffer(name, v.dtype, layout.physical_shape(v.type.shape))


def _replaced(stmt: Stmt, var: Var, value: Expr) -> Stmt:
    return map_stmt(stmt, f_expr=lambda e: substitute(e, {var: value}))


def _mapped(stmt: Stmt, shared: bool, lanes: int) -> Stmt:
    """`stmt` with its independent loops on threads (the outermost, if `shared`) and in vectors."""
    if not isinstance(stmt, For):
        return rebuild(stmt, lambda s: _mapped(s, shared, lanes), lambda e: e)
    extent = stmt.extent.value if isinstance(stmt.extent, Const) else None
    independent = stmt.kind == "parallel"
    kind = "parallel" if shared and independent else "serial"
    innermost = not any(isinstance(s, For) for s in walk(stmt.body))
    if independent and innermost and extent is not None and extent > 1:
        return _vectors(stmt, kind, min(lanes, int(extent)))
    return replace(stmt, kind=kind, body=_mapped(stmt.body, False, lanes))


def _on_device(stmt: Stmt) -> Stmt:
    """`stmt` with its outermost independent loops, and those directly inside each other, parallel:
    a device has a thread for each of their iterations.  A thread runs what is inside alone.
    """
    if not isinstance(stmt, For):
        return rebuild(stmt, _on_device, lambda e: e)
    if stmt.kind != "parallel":
        return map_stmt(stmt, f_stmt=_in_sequence)
    inner = stmt.body
    is_nest = isinstance(inner, For) and inner.kind == "parallel"
    return replace(
        stmt, body=_on_device(inner) if is_nest else map_stmt(inner, f_stmt=_in_sequence)
    )


def _in_sequence(stmt: Stmt) -> Stmt:
    is_independent = isinstance(stmt, For) and stmt.kind == "parallel"
    return replace(stmt, kind="serial") if is_independent else stmt


def _vectors(loop: For, kind: ForKind, width: int) -> Stmt:
    """`loop` with its iterations in vectors of `width`, the tail guarded."""
    outer, lane = Var(f"{loop.var.name}o", i64), Var(f"{loop.var.name}i", i64)
    at = outer * width + lane
    body = _replaced(loop.body, loop.var, loop.start + at)
    guarded = If(at < loop.extent, body, likely=True)
    vector = For(lane, const(0), const(width), "vectorized", guarded)
    count = (loop.extent + (width - 1)) // width
    return For(outer, const(0), simplify(count), kind, vector)
