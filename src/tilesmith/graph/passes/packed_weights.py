"""Constant weights of few bits stay packed if their product is limited by memory bandwidth.

    matmul(x, dequantize(q, scale, zero_point))  ->  packed_matmul(x, words, scales, zero_points)

Folding would replace `q` by floats, which are 4 to 16 times as large.  A product of few rows takes
as long as reading its weights.  So its weights stay packed, and each run decodes them in registers.
A prediction (`Choice`) decides whether this is faster.  If the number of rows is symbolic, one
program serves few and many rows.

Here `dequantize` is the operator of this name, or the expansion that importers write for scales per
channel: `mul(cast(sub(cast(q), zero_point)), scale)`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from tilesmith.graph.nodes import Data, Graph, Node, Value
from tilesmith.graph.passes.rewriter import Result, Rewriter
from tilesmith.ir.dtypes import DType, f32, i32, u32
from tilesmith.ir.types import TensorType
from tilesmith.ops.elementwise import Cast, Mul, Sub
from tilesmith.ops.matmul import MatMul
from tilesmith.ops.packed import DequantizeBlocks, PackedMatMul, packed_words
from tilesmith.ops.shape import Transpose

Choice = Callable[[Node, int], bool]
"""Whether a product is faster on packed weights.  Arguments: the product, and the bits of a weight.
"""

LONGEST_CHUNK = 128
"""Upper bound on the products that are added before scaling.  Codes are not centred at zero, so
longer sums of codes would round more than sums of floats.
"""

SHORTEST_CHUNK = 8
"""Lower bound on the products in a chunk, since scaling costs as much as a few products."""


@dataclass(frozen=True, slots=True, eq=False)
class _Weights:
    """A quantised matrix.

    q: integers [K, N], or [N, K] if `turned`, for products that sum over K.
    scale, zero: scales and zero points, of q's rank; `zero` is None if all zero points are 0.
    axis, block: as in `DequantizeBlocks`.
    turned: whether q's first axis counts the columns of the matrix.
    """

    q: Value
    scale: Value
    zero: Value | None
    axis: int
    block: int
    turned: bool


def packed_weights(graph: Graph, choice: Choice) -> Graph:
    """`graph` with packed words for quantised constants of products; the same object if there are
    none.
    """

    def rule(r: Rewriter, n: Node) -> Result:
        return _packed(r, n, choice)

    return Rewriter(graph, {MatMul: (rule,)}).run()


def _packed(r: Rewriter, n: Node, choice: Choice) -> Result:
    op = n.op
    assert isinstance(op, MatMul)
    x, w = n.inputs
    if op.to is not None or op.transpose_a or x.type.rank < 2 or w.type.rank != 2:
        return None
    if not x.dtype.is_float or x.dtype.bits > 32:
        return None
    weights = _quantized(r, w, op.transpose_b)
    if weights is None:
        return None
    q = weights.q
    columns, inner = q.type.static_shape if weights.turned else q.type.static_shape[::-1]
    block = weights.block or inner
    chunk = _chunk(block, inner)
    if weights.block and weights.axis % 2 != int(weights.turned):
        return None  # a block must be along the axis of the sums
    if chunk < min(SHORTEST_CHUNK, inner) or not choice(n, q.dtype.bits):
        return None
    blocks, bits = -(-inner // block), q.dtype.bits
    offset = -int(q.dtype.min)
    scales = _per_block(r, weights.scale, weights.turned, (blocks, columns))
    zeros: np.ndarray | None = np.zeros((blocks, columns), np.int64)
    if weights.zero is not None:
        zeros = _per_block(r, weights.zero, weights.turned, (blocks, columns))
    if scales is None or zeros is None:
        return None
    zeros = _stored(zeros + offset)
    same = zeros.dtype == np.uint8 and bool((zeros == zeros.flat[0]).all())
    packed = PackedMatMul(bits, block, chunk, int(zeros.flat[0]) if same else 0)
    words = _words(r, weights, bits, packed, (-(-inner // chunk), packed.words, columns))
    return r.add(packed, x, words, *map(r.constant, (scales,) if same else (scales, zeros)))


def _stored(zeros: np.ndarray) -> np.ndarray:
    """Zero points in one byte each if they fit, else as floats."""
    fits = zeros.dtype.kind == "i" and zeros.min() >= 0 and zeros.max() <= np.iinfo(np.uint8).max
    return zeros.astype(np.uint8 if fits else np.float32)


def _words(
    r: Rewriter, weights: _Weights, bits: int, op: PackedMatMul, shape: tuple[int, ...]
) -> Value:
    """The constant of packed words, which is computed when it is stored."""
    source = r.data(weights.q)
    offset, turned, chunk = -int(weights.q.dtype.min), weights.turned, op.chunk

    def load() -> np.ndarray:
        codes = (source.read().astype(np.int16) + offset).astype(np.uint8)
        return packed_words(codes.T if turned else codes, bits, chunk)

    return r.lazy_constant(TensorType(u32, shape), Data(load))


def _chunk(block: int, inner: int) -> int:
    if block >= inner:
        return min(inner, LONGEST_CHUNK)
    return next(n for n in range(min(block, LONGEST_CHUNK), 0, -1) if block % n == 0)


def _quantized(r: Rewriter, w: Value, transposed: bool) -> _Weights | None:
    turn = r.producer(w, Transpose)
    while turn is not None:
        if turn.op.attributes["perm"] != (1, 0):
            return None
        w, transposed = turn.inputs[0], not transposed
        turn = r.producer(w, Transpose)
    node = r.producer(w, DequantizeBlocks, Mul)
    if node is None:
        return None
    if isinstance(node.op, DequantizeBlocks):
        q, scale, *zero = node.inputs
        weights = _Weights(
            q, scale, zero[0] if zero else None, node.op.axis, node.op.block, transposed
        )
    else:
        parts = _parts(r, node)
        if parts is None:
            return None
        weights = _Weights(*parts, axis=0, block=0, turned=transposed)
    known = (weights.q, weights.scale, *([] if weights.zero is None else [weights.zero]))
    if not all(map(r.is_constant, known)) or not _is_narrow(weights.q.dtype):
        return None
    return weights if weights.scale.dtype.bits <= 32 else None


def _parts(r: Rewriter, node: Node) -> tuple[Value, Value, Value | None] | None:
    """q, scale and zero point of `(f32(i32(q) - zero_point)) * scale`."""
    for whole, scale in (node.inputs, node.inputs[::-1]):
        cast = r.producer(whole, Cast)
        if cast is None or cast.inputs[0].dtype is not i32 or whole.dtype is not f32:
            continue
        number, zero = cast.inputs[0], None
        less = r.producer(number, Sub)
        if less is not None:
            number, zero = less.inputs
            wide = r.producer(zero, Cast)
            zero = zero if wide is None else wide.inputs[0]
        wide = r.producer(number, Cast)
        if wide is not None and wide.inputs[0].type.rank == 2:
            return wide.inputs[0], scale, zero
    return None


def _is_narrow(d: DType) -> bool:
    return d.is_int and d.bits in (2, 4, 8)


def _per_block(r: Rewriter, v: Value, turned: bool, shape: tuple[int, int]) -> np.ndarray | None:
    """The scale or zero point of each block and column; None if `v` varies inside a block."""
    array = r.array(v)
    assert array is not None
    array = array.reshape((1,) * (2 - array.ndim) + array.shape) if array.ndim < 2 else array
    array = array.T if turned else array
    if array.ndim != 2 or array.shape[0] not in (1, shape[0]):
        return None
    if v.dtype.is_int:
        array = array.astype(np.int64)
    return np.ascontiguousarray(np.broadcast_to(array, shape))
