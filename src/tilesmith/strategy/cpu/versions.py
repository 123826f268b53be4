"""Kernels in two versions where an extent is known at run time only: batches of rows, copies of a
short row.

- A batch of a product is expected to be small, mostly 1.  A schedule for one row has no rows to
  fill a register tile, and too little work to share among threads.  If this schedule runs many
  rows, they take several times as long as necessary.
- Many copies of a short row, side by side, fill vectors: lanes run along all copies.  With one or a
  few copies such a vector would be almost empty, and each lane would compute its own index.  Often
  there is one copy of each row, and only axes around the rows are repeated (an image whose channels
  are innermost).  Without the axis of copies, these rows form one long row.
"""

from __future__ import annotations

from tilesmith.graph.nodes import Graph
from tilesmith.ir.expr import Var, free_vars
from tilesmith.ir.symbols import expected
from tilesmith.ir.types import same_dim
from tilesmith.strategy.access import expand
from tilesmith.strategy.group import Group, group_tensors
from tilesmith.strategy.versions import Versions
from tilesmith.te.tensor import Compute

FEW = 4
"""Largest expected batch for which there are two versions: larger batches need register tiles of
more rows in any case.
"""

MANY = 64
"""Rows for which the second version is scheduled: more than any register tile has."""

LONG = 16
"""Fewest elements of a row that counts as long: it fills vectors by itself.  Up to this number,
copies of a short row count as few.  One vector over copies takes about as long as this number of
short rows (measured on Zen 5 with rows of 3 elements).
"""


def _with_one_result(body: Graph) -> Group | None:
    """The tensor expressions of a group of primitive operators with one result."""
    is_plain = all(n.op.is_primitive() for n in body.nodes) and len(body.outputs) == 1
    return group_tensors(body) if is_plain else None


def batch_versions(body: Graph) -> Versions | None:
    """Versions for few rows (as expected) and for many.  None if the group is not a product, if its
    rows count something other than the batch (such as pixels), or if the batch is expected to be
    large.
    """
    group = _with_one_result(body)
    if group is None or len(group.products) != 1:
        return None
    extents = [a.extent for a in group.products[0].axis if not same_dim(a.extent, 1)]
    batch = next((n for n in extents if isinstance(n, Var)), None)
    if batch is None or batch.sizes is None or len(extents) > 2 or batch.sizes.high <= FEW:
        return None
    usual = expected(batch)
    return Versions(batch, usual, few=usual, many=MANY) if 0 < usual <= FEW else None


def repeated_rows(body: Graph) -> Versions | None:
    """Versions of a group that repeats a row, by the number of copies.

    A row shorter than `LONG` has three versions: for one copy, few copies and many copies.  A row
    of symbolic length has two: for one copy, and for several.  None for a group that does not
    repeat a row.
    """
    group = _with_one_result(body)
    op = None if group is None else group.outputs[0].op
    if group is None or not isinstance(op, Compute) or any(st.reduce_axis for st in group.stages):
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
