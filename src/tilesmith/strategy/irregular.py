"""Operators written as loops: their accesses become addresses in the layouts of the group.

The operator marks independent loops with the kind "parallel", and uses logical indices.  Each kind
of target maps parallel loops to threads and vectors.  Loops from a user's schedule stay unchanged.
"""

from __future__ import annotations

from tilesmith.graph.nodes import Graph, Value
from tilesmith.ir.expr import Const, Expr, Load, Var, substitute
from tilesmith.ir.layout import Layout
from tilesmith.loop.nodes import Buffer, For, Func, Stmt, Store
from tilesmith.loop.visit import map_stmt
from tilesmith.strategy.group import constant_literals
from tilesmith.te.rewrite import map_loads


def is_irregular(body: Graph) -> bool:
    """True for a group that is a single operator written as loops."""
    return len(body.nodes) == 1 and body.nodes[0].op.is_irregular()


def is_mapped(body: Graph) -> bool:
    """True if the operator's loops come from a user's schedule."""
    return body.nodes[0].op.is_scheduled


def irregular_nest(body: Graph, name: str) -> Func:
    """The loop nest of an operator written as loops.  Parameters are the group's inputs, then its
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
            return with_value(s.body, s.var, s.start)
        if not isinstance(s, Store) or s.buffer not in values:
            return s
        v = values[s.buffer]
        return Store(memory[v], place(v, s.indices), s.value, s.mask)

    nest = map_stmt(written.body, f_expr=lambda e: map_loads((e,), load)[0], f_stmt=stmt)
    return Func(name, (*memory.values(), *body.symbols), tuple(outputs.values()), nest)


def _parameter(v: Value, name: str) -> Buffer:
    layout = v.layout or Layout.row_major(v.type.rank)
    return Buffer(name, v.dtype, layout.physical_shape(v.type.shape))


def with_value(stmt: Stmt, var: Var, value: Expr) -> Stmt:
    """`stmt` with a value substituted for a variable."""
    return map_stmt(stmt, f_expr=lambda e: substitute(e, {var: value}))
