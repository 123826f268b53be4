"""Bags of indices that lie one behind the other in a list."""

from __future__ import annotations

from tilesmith.graph.nodes import Value
from tilesmith.ir import extents
from tilesmith.ir.dtypes import i64
from tilesmith.ir.types import Dim
from tilesmith.ops import scan, scatter, slicing

from .node import NodeContext


def bags_of(n: NodeContext, starts: Value, count: Dim) -> Value:
    """The bag of each of `count` indices, i64 [count].

    starts: the position of the first index of each bag, i64 [bags].
    """
    # Count the bags that begin at or before each position.  An empty last bag may begin at `count`.
    marks = n.expand(n.const([0], i64), (extents.total((count, 1)),))
    ones = n.expand(n.const([1], i64), starts.type.shape)
    marks = n.add(scatter.ScatterElements(0, "add"), marks, starts, ones)
    begun = n.add(slicing.Slice((0,), (count,), (0,), (1,)), n.add(scan.CumSum(0), marks))
    return begun - 1
