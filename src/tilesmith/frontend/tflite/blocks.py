"""TFLite's operators that move blocks of space into channels or into the batch, and back."""

from __future__ import annotations

import math

from tilesmith.frontend.common.lists import listed
from tilesmith.frontend.common.options import OptionNode
from tilesmith.frontend.common.slots import Result
from tilesmith.frontend.tflite.registry import stored_op
from tilesmith.graph.nodes import Value
from tilesmith.ir import extents
from tilesmith.ir.types import Dim
from tilesmith.ops import slicing


def _divided(n: OptionNode, extent: Dim, by: int) -> Dim:
    what = "an extent"
    return n.builder.divided(n.kind, extent, by, what, n.loc)


def _image_and_block(n: OptionNode) -> tuple[Value, int]:
    x, block = n.input(0), n.option("block_size")
    if x.type.rank != 4 or block < 1:
        n.bad(f"expected an input of rank 4 and a block of 1 or more, found {x.type}, {block}")
    return x, block


@stored_op("SPACE_TO_DEPTH")
def space_to_depth(n: OptionNode) -> Result:
    x, k = _image_and_block(n)
    batch, height, width, channels = x.type.shape
    h, w = (_divided(n, d, k) for d in (height, width))
    y = x.reshape(batch, h, k, w, k, channels).transpose(0, 1, 3, 2, 4, 5)
    return y.reshape(batch, h, w, extents.product((channels, k * k)))


@stored_op("DEPTH_TO_SPACE")
def depth_to_space(n: OptionNode) -> Result:
    x, k = _image_and_block(n)
    batch, h, w, channels = x.type.shape
    inner = _divided(n, channels, k * k)
    y = x.reshape(batch, h, w, k, k, inner).transpose(0, 1, 3, 2, 4, 5)
    return y.reshape(batch, extents.product((h, k)), extents.product((w, k)), inner)


def _blocks(n: OptionNode) -> tuple[Value, tuple[int, ...], tuple[Dim, ...], tuple[Dim, ...]]:
    """The input, the block sizes of its spatial axes, and the borders before and after them."""
    x, blocks = n.input(0), n.int_list(n.input(1), "block_shape")
    m = len(blocks)
    borders = n.dims(listed(n.input(2)), "borders")
    if x.type.rank <= m or len(borders) != 2 * m or any(b < 1 for b in blocks):
        n.bad(
            f"expected blocks of 1 or more and two borders for each, found {list(blocks)} and "
            f"{n.input(2).type} for {x.type}"
        )
    return x, blocks, borders[::2], borders[1::2]


@stored_op("SPACE_TO_BATCH_ND")
def space_to_batch(n: OptionNode) -> Result:
    x, blocks, before, after = _blocks(n)
    m, rest = len(blocks), [0] * (x.type.rank - len(blocks) - 1)
    x = n.add(slicing.Pad((0, *before, *rest, 0, *after, *rest), "constant", n.stored_zero), x)
    batch, *dims = x.type.shape
    places = [_divided(n, d, b) for d, b in zip(dims, blocks, strict=False)]
    pairs = [d for pair in zip(places, blocks, strict=True) for d in pair]
    y = x.reshape(batch, *pairs, *dims[m:])
    inner = range(2 * m + 1, 2 * m + 1 + len(dims) - m)
    y = y.transpose(*range(2, 2 * m + 1, 2), 0, *range(1, 2 * m + 1, 2), *inner)
    return y.reshape(extents.product((batch, *blocks)), *places, *dims[m:])


@stored_op("BATCH_TO_SPACE_ND")
def batch_to_space(n: OptionNode) -> Result:
    x, blocks, before, after = _blocks(n)
    m = len(blocks)
    batch, *dims = x.type.shape
    outer = _divided(n, batch, math.prod(blocks))
    y = x.reshape(*blocks, outer, *dims)
    inner = range(2 * m + 1, 2 * m + 1 + len(dims) - m)
    pairs = [a for i in range(m) for a in (m + 1 + i, i)]
    y = y.transpose(m, *pairs, *inner)
    wide = [extents.product(pair) for pair in zip(dims, blocks, strict=False)]
    y = y.reshape(outer, *wide, *dims[m:])
    ends = tuple(extents.difference(d, c) for d, c in zip(wide, after, strict=True))
    return n.add(slicing.Slice(before, ends, tuple(range(1, m + 1)), (1,) * m), y)
