"""Blocks of space that become entries of the batch or channels, and back."""

from __future__ import annotations

import math
from collections.abc import Sequence

from tilesmith.frontend.common.node import NodeContext
from tilesmith.graph.nodes import Value
from tilesmith.ir import extents
from tilesmith.ir.types import Dim
from tilesmith.ops import shape, slicing


def divided(n: NodeContext, extent: Dim, by: int) -> Dim:
    """An extent divided by a block's size.  A run refuses a remainder."""
    return n.builder.divided(n.label, extent, by, "an extent", n.loc)


def space_to_batch(
    n: NodeContext,
    x: Value,
    blocks: Sequence[int],
    before: Sequence[Dim],
    after: Sequence[Dim],
    border: float = 0,
) -> Value:
    """Images [N, ...], padded by `border`, as a batch [blocks * N, ...] of every block's pixels at
    one place.

    blocks, before, after: for each axis after the first, the size of blocks and the borders.
        Further axes have none.
    """
    m, rest = len(blocks), [0] * (x.type.rank - len(blocks) - 1)
    x = n.add(slicing.Pad((0, *before, *rest, 0, *after, *rest), "constant", border), x)
    batch, *dims = x.type.shape
    places = [divided(n, d, b) for d, b in zip(dims, blocks, strict=False)]
    pairs = [d for pair in zip(places, blocks, strict=True) for d in pair]
    y = x.reshape(batch, *pairs, *dims[m:])
    inner = range(2 * m + 1, 2 * m + 1 + len(dims) - m)
    y = y.transpose(*range(2, 2 * m + 1, 2), 0, *range(1, 2 * m + 1, 2), *inner)
    return y.reshape(extents.product((batch, *blocks)), *places, *dims[m:])


def batch_to_space(
    n: NodeContext, x: Value, blocks: Sequence[int], before: Sequence[Dim], after: Sequence[Dim]
) -> Value:
    """The images that `space_to_batch` had, without their borders."""
    m = len(blocks)
    batch, *dims = x.type.shape
    outer = divided(n, batch, math.prod(blocks))
    y = x.reshape(*blocks, outer, *dims)
    inner = range(2 * m + 1, 2 * m + 1 + len(dims) - m)
    pairs = [a for i in range(m) for a in (m + 1 + i, i)]
    y = y.transpose(m, *pairs, *inner)
    wide = [extents.product(pair) for pair in zip(dims, blocks, strict=False)]
    y = y.reshape(outer, *wide, *dims[m:])
    ends = tuple(extents.difference(d, c) for d, c in zip(wide, after, strict=True))
    return n.add(slicing.Slice(tuple(before), ends, tuple(range(1, m + 1)), (1,) * m), y)


def first_reorganisation(n: NodeContext, x: Value, size: int) -> Value:
    """Blocks of `size` x `size` pixels of images [N, C, H, W] as channels, in the order of the
    first Darknet.  It read the memory of x as an image with larger sides and fewer channels.
    """
    batch, channels, height, width = x.type.shape
    fewer = divided(n, channels, size * size)
    large = x.reshape(batch, fewer, *(extents.product((d, size)) for d in (height, width)))
    y = n.add(shape.SpaceToDepth(size), large)
    sides = divided(n, height, size), divided(n, width, size)
    return y.reshape(batch, extents.product((channels, size * size)), *sides)
