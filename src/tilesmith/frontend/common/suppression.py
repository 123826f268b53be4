"""Suppression of boxes that overlap better boxes.  Only a run knows how many boxes are kept."""

from __future__ import annotations

from tilesmith.frontend.common.computed import taken
from tilesmith.frontend.common.node import NodeContext
from tilesmith.graph.nodes import Value
from tilesmith.ir import extents
from tilesmith.ir.dtypes import i64
from tilesmith.ops import scan
from tilesmith.ops.suppression import CountAbove, NonMaxSuppression


def suppressed(
    n: NodeContext,
    boxes: Value,
    scores: Value,
    limits: tuple[Value, Value, Value],
    centred: bool = False,
) -> Value:
    """The kept boxes as (batch, class, box), i64 [count, 3].  The best box of a class is first.

    boxes: f32 [batch, boxes, 4].
    scores: f32 [batch, classes, boxes].
    limits: the maximum number of boxes of a class, i64 [1]; the overlap above which a box is
        dropped, f32 [1]; the score above which a box is a candidate, f32 [1].
    centred: as in `NonMaxSuppression`.
    """
    if boxes.type.rank != 3 or scores.type.rank != 3:
        n.bad(f"expected boxes [B,N,4] and scores [B,C,N], found {boxes.type} and {scores.type}")
    most, overlap, least = limits
    counts = n.add(CountAbove(), scores, least)
    of_classes = counts.sum((-1,)).sum((-1,)).cast(i64).reshape(-1)
    ends = n.add(scan.CumSum(0), of_classes)
    bound = extents.product(scores.type.shape)
    (candidates,) = n.measured(of_classes.sum((0,)).reshape(1), bounds=[bound])
    op = NonMaxSuppression(candidates, centred)
    chosen, many = n.add(op, boxes, scores, least, counts, ends, most, overlap)
    (length,) = n.measured(many, bounds=[chosen.type.shape[0]])
    return taken(n, chosen, 0, n.positions(length))
