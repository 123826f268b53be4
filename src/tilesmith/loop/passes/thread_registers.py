"""Loops for a writer of scalar code whose registers have no addresses.

    for i in range(4):                    for i in unrolled(4):
        r[i] = x[i]               ->          r[i] = x[i]
    for j in vectorized(8): S             for j in range(8): S

A loop whose variable is part of an index into registers is unrolled.  Memory that other loops
index, too, becomes the thread's own memory with addresses.
"""

from __future__ import annotations

from collections.abc import Iterator

from tilesmith.ir.expr import Const, Expr, Load, Var, free_vars, post_order, rebuilt
from tilesmith.ir.loop_tables import LOOP_KINDS

from ..nodes import Allocate, Buffer, For, Func, Stmt, Store
from ..visit import exprs, map_stmt, walk

MOST_COPIES = 256
"""Copies of a loop's body that code may have; a larger array is not for registers."""


def unroll_registers(func: Func) -> Func:
    """`func` with serial, unrolled and bound loops only, where all indices into registers are
    constants once the unrolled ones are copied; the same object when nothing changes.
    """
    constant = {
        s.var: int(s.extent.value)
        for s in walk(func.body)
        if isinstance(s, For)
        and not LOOP_KINDS[s.kind].level
        and isinstance(s.extent, Const)
        and s.extent.value <= MOST_COPIES
    }
    addressed: set[Buffer] = set()
    expanded: set[Var] = set()
    for buffer, indices in _register_accesses(func):
        variables = {v for i in indices for v in free_vars(i)}
        if variables <= constant.keys() and not any(_reads(i) for i in indices):
            expanded |= variables
        else:
            addressed.add(buffer)
    expanded |= {s.var for s in walk(func.body) if isinstance(s, For) and s.kind == "unrolled"}

    def stmt(s: Stmt) -> Stmt:
        if isinstance(s, For) and not LOOP_KINDS[s.kind].level:
            copied = s.var in expanded and isinstance(s.extent, Const)
            kind = "unrolled" if copied else "serial"
            return s if s.kind == kind else For(s.var, s.start, s.extent, kind, s.body)
        return s

    body = map_stmt(func.body, f_stmt=stmt)
    body = _with_addresses(body, addressed) if addressed else body
    if body is func.body:
        return func
    return Func(func.name, func.params, func.outputs, body, func.attrs)


def _register_accesses(func: Func) -> Iterator[tuple[Buffer, tuple[Expr, ...]]]:
    for s in walk(func.body):
        if isinstance(s, Store) and s.buffer.scope == "register":
            yield s.buffer, s.indices
    for e in exprs(func.body):
        for node in post_order(e):
            buffer = node.buffer if isinstance(node, Load) else None
            if isinstance(buffer, Buffer) and buffer.scope == "register":
                yield buffer, node.indices  # type: ignore[attr-defined]  # it is a load


def _reads(e: Expr) -> bool:
    return any(isinstance(n, Load) for n in post_order(e))


def _with_addresses(body: Stmt, buffers: set[Buffer]) -> Stmt:
    made = {b: Buffer(b.name, b.dtype, b.shape, "stack") for b in buffers}

    done: dict[Expr, Expr] = {}

    def expr(root: Expr) -> Expr:
        for node in post_order(root, done):
            e = rebuilt(node, done)
            if isinstance(e, Load) and e.buffer in made:
                e = Load(made[e.buffer], e.indices, e.mask)  # type: ignore[index]  # loop IR
            done[node] = e
        return done[root]

    def stmt(s: Stmt) -> Stmt:
        if isinstance(s, Allocate) and s.buffer in made:
            return Allocate(made[s.buffer], s.body)
        if isinstance(s, Store) and s.buffer in made:
            return Store(made[s.buffer], s.indices, s.value, s.mask)
        return s

    return map_stmt(body, f_expr=expr, f_stmt=stmt)
