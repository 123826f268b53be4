"""Distances between rows."""

from __future__ import annotations

import math

import numpy as np

from tilesmith.frontend.aten.node import AtenNode
from tilesmith.frontend.aten.promotion import Number
from tilesmith.frontend.aten.reductions import vector_norm
from tilesmith.frontend.aten.registry import aten_op
from tilesmith.graph.nodes import Value
from tilesmith.ops import elementwise as ew
from tilesmith.ops.functions import where
from tilesmith.ops.gather import Gather


@aten_op("aten.dist.default")
def dist(n: AtenNode, self: Value, other: Value, p: Number = 2) -> Value:
    return vector_norm(n, n.add(ew.Sub(), *n.common(self, other)), p)


def _differences(n: AtenNode, x1: Value, x2: Value) -> Value:
    """The difference of each row of x1 and each row of x2, [..., rows of x1, rows of x2, width]."""
    *batch1, rows, width = x1.type.shape
    *batch2, columns, _ = x2.type.shape
    return n.reshape(x1, (*batch1, rows, 1, width)) - n.reshape(x2, (*batch2, 1, columns, width))


@aten_op("aten._cdist_forward.default")
def cdist(n: AtenNode, x1: Value, x2: Value, p: float, compute_mode: int | None = None) -> Value:
    """The distance of each row of x1 and each row of x2, [..., rows of x1, rows of x2]."""
    return vector_norm(n, _differences(n, x1, x2), p, -1)


@aten_op("aten._cdist_backward.default")
def cdist_gradient(n: AtenNode, grad: Value, x1: Value, x2: Value, p: float, cdist: Value) -> Value:
    """The gradient of x1.  A pair of rows with distance 0 contributes 0."""
    difference = _differences(n, x1, x2)
    zero = n.tensor(0.0, x1.dtype)
    distance = n.reshape(cdist, (*cdist.type.shape, 1))
    size = abs(difference)
    # The sign is the slope for p = 1.  For infinite p it is the slope of a pair's largest element,
    # and the other slopes are 0.
    slope = n.add(ew.Sign(), difference)
    if p == 0:
        slope = slope * zero
    elif math.isinf(p):
        slope = where(size.equals(distance), slope, zero)
    elif p != 1:
        ratio = size / distance
        power = ratio if p == 2 else ratio ** (p - 1)
        slope = slope * power
        none = (size if p < 1 else distance).equals(zero)
        slope = where(none, zero, slope)
    product = n.reshape(grad, (*grad.type.shape, 1)) * slope
    return product.sum((product.type.rank - 2,))


@aten_op("aten._pdist_forward.default")
def pdist(n: AtenNode, self: Value, p: float = 2) -> Value:
    """The distances of each row to all later rows, in order."""
    first, second = np.triu_indices(n.extent(self, 0), 1)
    rows = (n.add(Gather(0), self, n.const(i.astype(np.int64))) for i in (first, second))
    return vector_norm(n, n.add(ew.Sub(), *rows), p, -1)
