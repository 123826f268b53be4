"""The contents of stored tensors: dense, packed to 4 bits, sparse, and strings."""

from __future__ import annotations

from itertools import pairwise

import numpy as np

from tilesmith.frontend.common.flatbuffer import Table
from tilesmith.frontend.common.limits import checked_shape
from tilesmith.frontend.tflite.model import Model, Tensor
from tilesmith.ir.dtypes import DType, string
from tilesmith.support.errors import ModelError, UnsupportedError

_DENSE, _CSR = 0, 1


def contents(model: Model, tensor: Tensor) -> np.ndarray | None:
    """The contents of a stored tensor; None for one that a run computes.

    A tensor of numbers stays in the file's memory if it is dense and aligned.
    """
    stored = model.buffer(tensor.buffer) if tensor.buffer else None
    if stored is None:
        is_empty = tensor.buffer and tensor.dims is not None and 0 in tensor.dims
        return np.zeros(tensor.shape, tensor.dtype.numpy) if is_empty else None
    if tensor.sparsity is not None:
        return _from_sparse(stored, tensor, tensor.sparsity)
    shape = tensor.shape
    if tensor.dtype is string:
        return _strings(stored, tensor).reshape(shape)
    return _elements(stored, tensor.dtype, int(np.prod(shape, dtype=np.int64)), tensor).reshape(
        shape
    )


def _elements(stored: np.ndarray, dtype: DType, count: int, tensor: Tensor) -> np.ndarray:
    """`count` numbers of a buffer; numbers of 4 and 2 bits are packed, the lowest bits first."""
    expected = (count * dtype.bits + 7) // 8 if dtype.bits < 8 and not dtype.is_bool else None
    size = count * dtype.numpy.itemsize if expected is None else expected
    if len(stored) != size:
        raise ModelError(
            f"tensor {tensor.name!r} of type {tensor.type_name.lower()} {list(tensor.shape)}: "
            f"expected {size} bytes, found {len(stored)}"
        )
    if expected is None:
        return stored.view(dtype.numpy) if not dtype.is_bool else stored != 0
    per_byte = 8 // dtype.bits
    shifts = np.arange(per_byte, dtype=np.uint8) * np.uint8(dtype.bits)
    fields = (stored[:, None] >> shifts) & np.uint8((1 << dtype.bits) - 1)
    numbers = fields.reshape(-1)[:count].astype(np.int8)
    if dtype.kind == "int":
        half = 1 << (dtype.bits - 1)
        numbers = (numbers ^ half) - half
    return numbers.astype(dtype.numpy)


def _strings(stored: np.ndarray, tensor: Tensor) -> np.ndarray:
    """Decode strings: their count, the offset of each and of the end, all i32, then their bytes."""
    count = int(stored[:4].view("<i4")[0]) if len(stored) >= 4 else -1
    if count < 0 or len(stored) < 4 * (count + 2):
        raise ModelError(f"tensor {tensor.name!r}: expected strings, found {len(stored)} bytes")
    offsets = stored[4 : 4 * (count + 2)].view("<i4").astype(np.int64)
    if (np.diff(offsets) < 0).any() or offsets[0] < 0 or offsets[-1] > len(stored):
        raise ModelError(f"tensor {tensor.name!r}: its strings lie outside its {len(stored)} bytes")
    raw = stored.tobytes()
    texts = [raw[a:b].decode(errors="replace") for a, b in pairwise(offsets)]
    if len(texts) != np.prod(tensor.shape, dtype=np.int64):
        raise ModelError(
            f"tensor {tensor.name!r}: expected strings of shape {list(tensor.shape)}, found {count}"
        )
    return np.array(texts, object)


def _from_sparse(stored: np.ndarray, tensor: Tensor, sparsity: Table) -> np.ndarray:
    """Dense contents of a sparse tensor.

    The tensor's axes, then its blocks' axes, are numbered and traversed in `traversal_order`.  An
    axis is dense, or lists the indices at which later axes have elements.
    """
    shape, dtype = tensor.shape, tensor.dtype
    order = [] if sparsity.traversal_order is None else [int(a) for a in sparsity.traversal_order]
    blocked = [] if sparsity.block_map is None else [int(a) for a in sparsity.block_map]
    levels = sparsity.dim_metadata or ()
    rank = len(shape)
    if (
        sorted(order) != list(range(rank + len(blocked)))
        or len(levels) != len(order)
        or any(not 0 <= b < rank for b in blocked)
    ):
        raise ModelError(f"tensor {tensor.name!r}: its description of sparse contents is damaged")
    extents = dict(
        zip(order, (_extent(level, i, order, shape) for i, level in enumerate(levels)), strict=True)
    )
    blocks = [extents[rank + i] for i in range(len(blocked))]
    # positions of the elements along each traversed axis, level by level
    positions = np.zeros((1, 0), np.int64)
    for level in levels:
        positions = _descend(positions, level, tensor)
    values = _elements(stored, dtype, len(positions), tensor)
    index = np.zeros((rank, len(positions)), np.int64)
    for column, axis in enumerate(order):
        if axis < rank:
            size = int(np.prod([b for b, a in zip(blocks, blocked, strict=True) if a == axis]))
            index[axis] += positions[:, column] * size
        else:
            index[blocked[axis - rank]] += positions[:, column]
    if (index >= np.array(shape, np.int64)[:, None]).any():
        raise ModelError(f"tensor {tensor.name!r}: its sparse contents lie outside {list(shape)}")
    dense = np.zeros(shape, dtype.numpy)
    dense[tuple(index)] = values
    return dense


def _extent(level: Table, number: int, order: list[int], shape: tuple[int, ...]) -> int:
    """The extent of traversed axis `number`: from its dense level, else from the tensor's shape."""
    if level.format == _DENSE:
        return int(level.dense_size)
    axis = order[number]
    return shape[axis] if axis < len(shape) else 1


def _descend(positions: np.ndarray, level: Table, tensor: Tensor) -> np.ndarray:
    """`positions` with one more column for the indices along the next axis."""
    rows = len(positions)
    if level.format == _DENSE:
        size = level.dense_size
        checked_shape([rows, size], f"tensor {tensor.name!r}")
        column = np.tile(np.arange(size), rows)
        return np.column_stack([np.repeat(positions, size, axis=0), column])
    segments, indices = level.array_segments, level.array_indices
    if level.format != _CSR or segments is None or indices is None:
        raise UnsupportedError(f"tensor {tensor.name!r}: sparse contents of format {level.format}")
    ends, places = segments.values.astype(np.int64), indices.values.astype(np.int64)
    counts = np.diff(ends)
    if len(ends) != rows + 1 or ends[0] != 0 or (counts < 0).any() or ends[-1] != len(places):
        raise ModelError(f"tensor {tensor.name!r}: its description of sparse contents is damaged")
    return np.column_stack([np.repeat(positions, counts, axis=0), places])
