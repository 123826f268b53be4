"""Unrolls loops for a code generator of scalar code in which registers have no addresses.

    for i in range(4):                    for i in unrolled(4):
        r[i] = x[i]               ->          r[i] = x[i]
    for j in vectorized(8): S             for j in range(8): S

A loop whose variable is part of an index into registers is unrolled.  If an index into a buffer in
registers can't become constant, the buffer moves to the thread's private memory, which has
addresses.
"""

from __future__ import annotations

from collections.abc import Iterator

from tilesmith.ir.expr import Const, Expr, Load, Var, post_order, reads_memory, rebuilt, vars_of
from tilesmith.ir.loop_tables import LOOP_KINDS, SCOPES

from ..nodes import Allocate, Buffer, For, Func, Stmt, Store
from ..visit import exprs, map_stmt, walk
from .vector_copies import is_copy

TILE = 128
"""Number of elements of a tile of a fragment, a buffer in registers that a warp's threads share."""

MOST_COPIES = 256
"""Upper bound on the copies of a loop's body.  A larger array would not fit registers."""


def unroll_registers(func: Func) -> Func:
    """Unroll loops of `func` (stage "nest") so that each index into registers becomes constant.  An
    index into a fragment may also be the number of the thread.  Vectorised loops remain only for
    copies (see `vector_copies`).  Returns the same object if nothing changes.
    """
    filling = {x.var for s in walk(func.body) if fill_of(s) for x in walk(s) if isinstance(x, For)}
    constant = {
        s.var: int(s.extent.value)
        for s in walk(func.body)
        if isinstance(s, For)
        and s.var not in filling
        and not LOOP_KINDS[s.kind].level
        and isinstance(s.extent, Const)
        and s.extent.value <= MOST_COPIES
    }
    body = map_stmt(func.body, f_stmt=lambda s: _filled(s) if isinstance(s, For) else s)
    if body is not func.body:
        func = Func(func.name, func.params, func.outputs, body, func.attrs)
    bound = {s.var for s in walk(func.body) if isinstance(s, For) and _is_of_thread(s)}
    addressed: set[Buffer] = set()
    expanded: set[Var] = set()
    for buffer, indices in _register_accesses(func):
        variables = vars_of(indices) - bound
        if variables & filling:
            continue
        if variables <= constant.keys() and not any(reads_memory(i) for i in indices):
            expanded |= variables
        elif buffer.scope == "register":
            addressed.add(buffer)
    expanded |= {s.var for s in walk(func.body) if isinstance(s, For) and s.kind == "unrolled"}

    def stmt(s: Stmt) -> Stmt:
        if isinstance(s, For) and not LOOP_KINDS[s.kind].level:
            copied = s.var in expanded and isinstance(s.extent, Const)
            if s.kind == "vectorized" and not copied and is_copy(s.body):
                return s
            kind = "unrolled" if copied else "serial"
            return s if s.kind == kind else For(s.var, s.start, s.extent, kind, s.body)
        return s

    body = map_stmt(func.body, f_stmt=stmt)
    body = _with_addresses(body, addressed) if addressed else body
    return func.with_body(body)


def fill_of(s: Stmt) -> Store | None:
    """The store in `s`, if `s` sets all elements of a tile of a fragment to one constant; else
    None.
    """
    if not isinstance(s, For) or LOOP_KINDS[s.kind].level:
        return None
    count, inner = 1, s
    while isinstance(inner, For) and isinstance(inner.extent, Const):
        count, inner = count * int(inner.extent.value), inner.body
    is_fill = isinstance(inner, Store) and isinstance(inner.value, Const)
    if not isinstance(inner, Store) or not is_fill or count != TILE:
        return None
    return inner if SCOPES[inner.buffer.scope].owner == "warp" else None


def _filled(s: For) -> Stmt:
    """`s`.  If it fills a tile, its loops become serial, so that they are not unrolled."""
    if fill_of(s) is None:
        return s

    def plain(x: Stmt) -> Stmt:
        if isinstance(x, For) and not LOOP_KINDS[x.kind].level and x.kind != "serial":
            return For(x.var, x.start, x.extent, "serial", x.body)
        return x

    return map_stmt(s, f_stmt=plain)


def _is_of_thread(s: For) -> bool:
    return LOOP_KINDS[s.kind].level == "thread"


def _register_accesses(func: Func) -> Iterator[tuple[Buffer, tuple[Expr, ...]]]:
    for s in walk(func.body):
        if isinstance(s, Store) and not SCOPES[s.buffer.scope].is_addressed:
            yield s.buffer, s.indices
    for e in exprs(func.body):
        for node in post_order(e):
            buffer = node.buffer if isinstance(node, Load) else None
            if isinstance(buffer, Buffer) and not SCOPES[buffer.scope].is_addressed:
                yield buffer, node.indices  # type: ignore[attr-defined]  # it is a load


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
