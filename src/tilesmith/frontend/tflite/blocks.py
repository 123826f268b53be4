"""TFLite's operators that move blocks of space into channels or into the batch, and back."""

from __future__ import annotations

from tilesmith.frontend.common.blocks import batch_to_space, divided, space_to_batch
from tilesmith.frontend.common.lists import listed
from tilesmith.frontend.common.options import OptionNode
from tilesmith.frontend.common.slots import Result
from tilesmith.frontend.tflite.registry import stored_op
from tilesmith.graph.nodes import Value
from tilesmith.ir import extents
from tilesmith.ir.types import Dim


def _image_and_block(n: OptionNode) -> tuple[Value, int]:
    x, block = n.input(0), n.option("block_size")
    if x.type.rank != 4 or block < 1:
        n.bad(f"expected an input of rank 4 and a block of 1 or more, found {x.type}, {block}")
    return x, block


@stored_op("SPACE_TO_DEPTH")
def space_to_depth(n: OptionNode) -> Result:
    x, k = _image_and_block(n)
    batch, height, width, channels = x.type.shape
    h, w = (divided(n, d, k) for d in (height, width))
    y = x.reshape(batch, h, k, w, k, channels).transpose(0, 1, 3, 2, 4, 5)
    return y.reshape(batch, h, w, extents.product((channels, k * k)))


@stored_op("DEPTH_TO_SPACE")
def depth_to_space(n: OptionNode) -> Result:
    x, k = _image_and_block(n)
    batch, h, w, channels = x.type.shape
    inner = divided(n, channels, k * k)
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
def space_to_batch_nd(n: OptionNode) -> Result:
    return space_to_batch(n, *_blocks(n), n.stored_zero)


@stored_op("BATCH_TO_SPACE_ND")
def batch_to_space_nd(n: OptionNode) -> Result:
    return batch_to_space(n, *_blocks(n))
