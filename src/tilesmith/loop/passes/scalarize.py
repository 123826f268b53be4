"""Scalarize: make loops serial, for code generators that leave vectorisation to a compiler.

    for i in parallel(4):                   for i in range(4):
        for j in unrolled(2):      ->           for j in range(2):
            for k in vectorized(8): S               for k in range(8): S

Iterations of all kinds of loops may run one after the other, so only the kinds change.  Loops over
the blocks and threads of a device are kept.
"""

from __future__ import annotations

from tilesmith.ir.loop_tables import LOOP_KINDS

from ..nodes import For, Func, Stmt
from ..visit import map_stmt


def scalarize(func: Func) -> Func:
    """`func` with serial loops in place of all loops that are not bound to a device.  The same
    object if nothing changes.
    """
    body = map_stmt(func.body, f_stmt=_serial)
    return func.with_body(body)


def without_threads(func: Func) -> Func:
    """`func` with parallel loops replaced by serial ones; the same object if it has none."""
    return func.with_body(map_stmt(func.body, f_stmt=_without_threads))


def _without_threads(stmt: Stmt) -> Stmt:
    is_parallel = isinstance(stmt, For) and stmt.kind == "parallel"
    return _serial(stmt) if is_parallel else stmt


def _serial(stmt: Stmt) -> Stmt:
    if not isinstance(stmt, For) or stmt.kind == "serial" or LOOP_KINDS[stmt.kind].level:
        return stmt
    return For(stmt.var, stmt.start, stmt.extent, "serial", stmt.body)
