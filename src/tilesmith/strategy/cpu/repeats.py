"""Short rows repeated side by side, a number of times known at run time.

Many copies of a row fill vectors: lanes run along all copies.  With one or a few copies such a
vector would be almost empty, and each lane would compute its own index.

Often a run does not repeat the rows themselves, only axes around them (an image whose channels are
innermost).  Without the axis of copies between them, rows are one long row.
"""

from __future__ import annotations

from tilesmith.graph.nodes import Graph
from tilesmith.ir.expr import Var, free_vars
from tilesmith.ir.symbols import expected
from tilesmith.ir.types import same_dim
from tilesmith.strategy.access import expand
from tilesmith.strategy.group import group_tensors
from tilesmith.strategy.versions import Versions
from tilesmith.te.tensor import Compute

LONG = 16
"""Elements of a row that fills a vector by itself, and copies of a shorter row that count as few.
A vector of copies takes about as long as so many small rows (measured on Zen 5 with rows of 3).
"""


def repeated_rows(body: Graph) -> Versions | None:
    """Versions for one, few or many copies of a row shorter than `LONG`; for other rows that may be
    repeated, for one or more copies.  None for other groups.
    """
    if not all(n.op.is_primitive() for n in body.nodes):
        return None
    group = group_tensors(body)
    op = group.outputs[0].op
    if len(group.outputs) != 1 or not isinstance(op, Compute):
        return None
    if any(st.reduce_axis for st in group.stages):
        return None
    axes = [a for a in op.axis if not same_dim(a.extent, 1)]
    if len(axes) < 2:
        return None
    copies, row = axes[-2:]
    is_open = not isinstance(row.extent, int)
    if not isinstance(copies.extent, Var) or (not is_open and expected(row.extent) >= LONG):
        return None
    if any(copies.var in free_vars(e) for e in expand(op)):
        return None
    has_one = len(axes) > 2
    if is_open:
        return Versions(copies.extent, 0, has_one=True) if has_one else None
    return Versions(copies.extent, LONG, few=2, has_one=has_one)
