"""Products whose rows are a batch whose size is known at run time only.

A batch is expected to be small, mostly 1.  A schedule for one row has no rows to fill a register
tile, and too little work to share among threads.  With it, many rows take several times as long as
they need.
"""

from __future__ import annotations

from tilesmith.graph.nodes import Graph
from tilesmith.ir.expr import Var
from tilesmith.ir.symbols import expected
from tilesmith.ir.types import same_dim
from tilesmith.ops.structure import product_of_loads
from tilesmith.strategy.group import group_tensors
from tilesmith.strategy.versions import Versions

FEW = 4
"""Largest expected batch with a second version: its register tiles are too low for large ones."""

MANY = 64
"""Rows for which the second version is scheduled: more than the highest register tile has."""


def batch_versions(body: Graph) -> Versions | None:
    """Versions for few rows (as expected) and for many.  None if the group is no product, if its
    rows are not the batch (pixels of an image), or if the batch is expected to be large.
    """
    if not all(n.op.is_primitive() for n in body.nodes):
        return None
    group = group_tensors(body)
    products = [st for st in group.stages if product_of_loads(st)]
    if len(products) != 1 or len(group.outputs) != 1:
        return None
    extents = [a.extent for a in products[0].axis if not same_dim(a.extent, 1)]
    batch = next((n for n in extents if isinstance(n, Var)), None)
    if batch is None or batch.sizes is None or len(extents) > 2 or batch.sizes.high <= FEW:
        return None
    usual = expected(batch)
    return Versions(batch, usual, few=usual, many=MANY) if 0 < usual <= FEW else None
