"""Keep reductions in the order of their loops: a vectorised loop that adds to one element is
unrolled.

    for k in vectorized(8):               for k in unrolled(8):
        s[i] = s[i] + x[i, k]      ->         s[i] = s[i] + x[i, k]

This pass runs for `accuracy="strict"`.  A vectorised loop would first add the lanes to each other.
"""

from __future__ import annotations

from tilesmith.ir.expr import Const, Load, Var, free_vars, post_order

from ..nodes import Allocate, For, Func, Stmt, Store
from ..visit import bound_vars, map_stmt, own_exprs, walk


def order_reductions(func: Func) -> Func:
    """Unroll the vectorised loops of reductions in `func` (stage "nest").  A loop whose extent is
    not constant becomes serial.  Returns the same object if there are no such loops.
    """

    def in_order(stmt: Stmt) -> Stmt:
        if isinstance(stmt, For) and stmt.kind == "vectorized" and _accumulates(stmt):
            kind = "unrolled" if isinstance(stmt.extent, Const) else "serial"
            return For(stmt.var, stmt.start, stmt.extent, kind, stmt.body)
        return stmt

    body = map_stmt(func.body, f_stmt=in_order)
    return func.with_body(body)


def _accumulates(loop: For) -> bool:
    """Whether several iterations of `loop` update one element."""
    varies: set[Var] = {loop.var}
    private = {s.buffer for s in walk(loop.body) if isinstance(s, Allocate)}
    for s in walk(loop.body):
        if bound_vars(s) and any(varies & free_vars(e) for e in own_exprs(s)):
            varies.update(bound_vars(s))
        elif isinstance(s, Store) and s.buffer not in private:
            same = not any(varies & free_vars(i) for i in s.indices)
            reads = (n for n in post_order(s.value) if isinstance(n, Load))
            if same and any(n.buffer is s.buffer for n in reads):
                return True
    return False
