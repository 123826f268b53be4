"""Repetition of whole axes, as in ONNX's `Tile` and ATen's `repeat`."""

from __future__ import annotations

from collections.abc import Sequence

from tilesmith.frontend.common.node import NodeContext
from tilesmith.graph.nodes import Value
from tilesmith.ir import extents
from tilesmith.ir.types import Dim, same_dim


def tiled(n: NodeContext, x: Value, repeats: Sequence[Dim]) -> Value:
    """`x` with each axis repeated; `repeats` has one number per axis.

    Copies get a separate axis, so that whole rows are copied and no remainder is computed for each
    element: [d0, d1] -> [1, d0, 1, d1] -> [r0, d0, r1, d1] -> [r0 d0, r1 d1].
    """
    apart: list[Dim] = []
    wide: list[Dim] = []
    for extent, count in zip(x.type.shape, repeats, strict=True):
        if same_dim(count, 1):
            apart, wide = [*apart, extent], [*wide, extent]
        elif same_dim(extent, 1):
            apart, wide = [*apart, 1], [*wide, count]
        else:
            apart, wide = [*apart, 1, extent], [*wide, count, extent]
    full = x.reshape(*tuple(apart)).expand(*tuple(wide))
    joined = tuple(extents.product(pair) for pair in zip(x.type.shape, repeats, strict=True))
    return full.reshape(*joined)
