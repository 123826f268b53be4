"""Software pipelining of tiles in shared memory: blocks compute with one buffer while others are
filled.

Only targets with asynchronous copies gain.  A tile can be copied asynchronously if it holds
elements in the order of global memory, or zeros.
"""

from __future__ import annotations

from tilesmith.ir.expr import Const, Load, Select
from tilesmith.ir.target import Target
from tilesmith.strategy.intrinsics import async_copies
from tilesmith.te.tensor import Compute, Tensor

BUFFERS = (3, 2)
"""Candidate numbers of buffers per tile.  Three buffers hide twice the latency that two hide."""
RESIDENT = 2
"""Blocks that a unit must hold with all buffers: one computes while another waits at a barrier."""


def can_copy_ahead(target: Target, tensor: Tensor, size: int) -> bool:
    """Whether a block of `target` can fill tiles of `tensor` asynchronously.

    size: bytes of each copy.
    """
    copies = async_copies(target)
    return copies is not None and size in copies.sizes and _is_in_memory(tensor)


def buffers(target: Target, size: int, iterations: int) -> int:
    """Pipeline depth: the number of buffers for tiles of `size` bytes.  A block fills a tile
    asynchronously in each of `iterations` iterations.  The depth is 1 if shared memory has no room
    for more.
    """
    device = target.device
    assert device is not None
    resident = min(RESIDENT, device.unit_shared_bytes // size)
    fitting = (
        n
        for n in BUFFERS
        if n <= iterations
        and n * size <= device.shared_bytes
        and n * size * resident <= device.unit_shared_bytes
    )
    return next(fitting, 1)


def _is_in_memory(tensor: Tensor) -> bool:
    """Whether each element is an element of another tensor in memory, or zero."""
    op = tensor.op
    if not isinstance(op, Compute) or op.reduce_axis:
        return True
    value = op.body[0]
    if isinstance(value, Select) and isinstance(value.if_false, Const) and not value.if_false.value:
        value = value.if_true
    return (
        isinstance(value, Load) and isinstance(value.buffer, Tensor) and _is_in_memory(value.buffer)
    )
