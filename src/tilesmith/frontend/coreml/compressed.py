"""Core ML's compressed weights: quantised numbers, tables of values, sparse numbers.

Most quantised weights stay compressed, and products and convolutions read the integers.  All other
forms are decompressed during import.
"""

from __future__ import annotations

import numpy as np

from tilesmith.frontend.common.slots import Result
from tilesmith.frontend.coreml.node import MilNode
from tilesmith.frontend.coreml.registry import mil_op
from tilesmith.graph.nodes import Value
from tilesmith.ir.dtypes import f32
from tilesmith.ops.quantize import Dequantize, Quantize


def _known(n: MilNode, name: str) -> np.ndarray:
    """A stored argument."""
    value = n.input(name)
    array = n.builder.data(value).read() if n.builder.is_constant(value) else n.known(value)
    return n.bad(f"{name}: expected a constant") if array is None else array


def _whole(array: np.ndarray) -> np.ndarray:
    """Integers of any width as i64."""
    return array.astype(np.int64) if array.dtype.kind not in "fb" else array


@mil_op("constexpr_affine_dequantize")
def affine_dequantize(n: MilNode) -> Result:
    q, scale, zero = n.input("quantized_data"), n.input("scale"), n.input("zero_point")
    return _dequantized(n, q, scale, zero, n.int("axis", 0))


@mil_op("dequantize")
def dequantize(n: MilNode) -> Result:
    return _dequantized(n, n.input("input"), n.input("scale"), n.optional("zero_point"),
                        n.int("axis", 0))  # fmt: skip


def _dequantized(n: MilNode, q: Value, scale: Value, zero: Value | None, axis: int) -> Value:
    """(q - zero) * scale, in the type of `scale`: a scalar, or a number per index of `axis`."""
    dims = () if scale.type.rank == 0 else scale.type.shape
    operands = [q, scale] if zero is None else [q, scale, n.expand(zero, dims)]
    return n.add(Dequantize(n.axis(axis, q.type.rank) if dims else 0), *operands)


@mil_op("quantize")
def quantize(n: MilNode) -> Result:
    x, scale, zero = n.input("input"), n.input("scale"), n.optional("zero_point")
    axis = n.axis(n.int("axis", 0), x.type.rank) if scale.type.rank else 0
    operands = [x.cast(f32), scale.cast(f32)]
    if zero is not None:
        operands.append(n.expand(zero, scale.type.shape))
    return n.add(Quantize(n.dtype("output_dtype"), axis), *operands)


@mil_op("constexpr_blockwise_shift_scale")
def blockwise_shift_scale(n: MilNode) -> Result:
    """Dequantise blocks.  Scales and offsets have an entry for each block of the data.

    A block's extent along an axis is the data's extent divided by that of the scales.
    """
    q, scale, offset = n.input("data"), n.input("scale"), n.optional("offset")
    dims, counts = n.shape(q), n.shape(scale)
    if len(dims) != len(counts) or any(c < 1 or d % c for d, c in zip(dims, counts, strict=True)):
        n.bad(f"expected scales that divide the extents of {q.type}, found {scale.type}")
    operands = [scale] if offset is None else [scale, offset]
    varying = [a for a, c in enumerate(counts) if c > 1]
    if len(varying) <= 1 and all(counts[a] == dims[a] for a in varying):
        vectors = (n.reshape(v, tuple(counts[a] for a in varying)) for v in operands)
        return n.add(Dequantize(*varying), q, *vectors)
    blocked = [a for a in varying if counts[a] < dims[a]]
    if len(blocked) == 1 and all(counts[a] == d for a, d in enumerate(dims) if a not in blocked):
        (axis,) = blocked
        return n.add(Dequantize(axis, dims[axis] // counts[axis]), q, *operands)
    spread = [_spread(_known(n, name), dims) for name in ("scale", "offset") if n.has(name)]
    data = _whole(_known(n, "data"))
    data = data if offset is None else data - _whole(spread[1])
    return n.const((data * spread[0].astype(np.float64)).astype(scale.dtype.numpy))


def _spread(array: np.ndarray, dims: tuple[int, ...]) -> np.ndarray:
    """Each block's number, repeated for all elements of the block."""
    for axis, (count, extent) in enumerate(zip(array.shape, dims, strict=True)):
        array = np.repeat(array, extent // count, axis)
    return array


# Tables


@mil_op("constexpr_lut_to_dense")
def lut_to_dense(n: MilNode) -> Result:
    """Indices select numbers from a table, or vectors along an axis.  Each block has its table."""
    indices, lut = _whole(_known(n, "indices")), _known(n, "lut")
    if n.has("shape"):  # the indices are packed, the lowest bit first
        dims = n.ints("shape")
        indices = _unpacked(n, indices.astype(np.uint8), dims, (lut.size - 1).bit_length())
        lut = lut.reshape(*[1] * len(dims), -1, 1)
    return n.const(_looked_up(n, indices, lut))


def _unpacked(n: MilNode, data: np.ndarray, dims: tuple[int, ...], bits: int) -> np.ndarray:
    """Unpack integers of `bits` bits into the shape `dims`."""
    count = int(np.prod(dims, dtype=object))
    if not 1 <= bits <= 8 or data.size != -(-count * bits // 8):
        n.bad(f"expected numbers of {bits} bits in the shape {list(dims)}, found {data.size} bytes")
    single = np.unpackbits(data.reshape(-1), bitorder="little")[: count * bits]
    return np.packbits(single.reshape(count, bits), axis=1, bitorder="little").reshape(dims)


def _looked_up(n: MilNode, indices: np.ndarray, lut: np.ndarray) -> np.ndarray:
    """The numbers or vectors that `indices` select.

    lut: [number of tables along each axis of the indices..., entries, size of a vector].
    """
    *counts, entries, width = lut.shape
    dims = indices.shape
    is_fit = len(counts) == len(dims) and not any(d % max(c, 1) for d, c in zip(dims, counts))
    if not is_fit or (indices.size and int(indices.max()) >= entries):
        n.bad(f"expected indices of {entries} entries in tables that divide {list(dims)}, found "
              f"tables {list(lut.shape)}")  # fmt: skip
    axes = (range(d) for d in dims)
    blocks = np.ix_(
        *(np.asarray(a) // (d // c) for a, d, c in zip(axes, dims, counts, strict=True))
    )
    vectors = lut[(*blocks, indices.astype(np.int64))]
    if width == 1:
        return np.ascontiguousarray(vectors[..., 0])
    axis = n.axis(n.int("vector_axis"), len(dims))
    moved = np.moveaxis(vectors, -1, axis + 1)
    return np.ascontiguousarray(moved.reshape(*dims[:axis], dims[axis] * width, *dims[axis + 1 :]))


# Sparse numbers


def _mask(n: MilNode, name: str) -> np.ndarray:
    mask = _known(n, name)
    if n.has("shape"):
        mask = _unpacked(n, mask.view(np.uint8), n.ints("shape"), 1)
    return mask.astype(bool)


def _dense(n: MilNode, mask: np.ndarray, numbers: np.ndarray) -> np.ndarray:
    """Zeros with `numbers` where the mask is true, in row-major order."""
    if numbers.ndim != 1 or numbers.size != np.count_nonzero(mask):
        n.bad(f"expected {np.count_nonzero(mask)} numbers, found shape {list(numbers.shape)}")
    dense = np.zeros(mask.shape, numbers.dtype)
    dense[mask] = numbers
    return dense


@mil_op("constexpr_sparse_to_dense")
def sparse_to_dense(n: MilNode) -> Result:
    return n.const(_dense(n, _mask(n, "mask"), _known(n, "nonzero_data")))


@mil_op("constexpr_lut_to_sparse")
def lut_to_sparse(n: MilNode) -> Result:
    mask, lut = _mask(n, "indices_mask"), _known(n, "lut")
    if lut.shape[-1] != 1:
        n.unsupported("sparse vectors of a table")
    indices = _dense(n, mask, _whole(_known(n, "indices_nonzero_data")))
    return n.const(mask.astype(np.uint8)), n.const(_looked_up(n, indices, lut)[mask])


@mil_op("constexpr_sparse_blockwise_shift_scale")
def sparse_blockwise_shift_scale(n: MilNode) -> Result:
    mask, scale = _mask(n, "data_mask"), _known(n, "scale")
    dense = _dense(n, mask, _whole(_known(n, "nonzero_data")))
    if n.has("offset"):
        dense = dense - _whole(_spread(_known(n, "offset"), mask.shape))
    made = dense * _spread(scale, mask.shape).astype(np.float64)
    return n.const(mask.astype(np.uint8)), n.const(made[mask].astype(scale.dtype))
