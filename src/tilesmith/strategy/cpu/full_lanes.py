"""Products of two variable factors whose last axis fills few lanes of a vector.

There are two remedies.  Lanes run along another axis, and the factors are copied to make this axis
contiguous.  Or a convolution becomes a matrix product, whose columns are the window positions of
all images.
"""

from __future__ import annotations

import math

from tilesmith.graph.nodes import Node
from tilesmith.graph.passes.columns import Choice
from tilesmith.ir.symbols import expected_size
from tilesmith.ir.target import Target
from tilesmith.ir.types import TensorType
from tilesmith.ops.conv import Conv
from tilesmith.ops.matmul import MatMul
from tilesmith.perf.cycles import dram_rate

from .contraction import Contraction, analyse, contraction_of, product_cycles

GAIN = 0.7
"""Upper bound on the ratio of predicted cycles, new to old, for which a product gets another lane
axis or becomes a matrix product.  A large saving is required, since neighbouring kernels may have
to reorder their results too.
"""


def with_full_lanes(c: Contraction, target: Target) -> Contraction:
    """`c`, with its lanes moved to another axis of `w` if this is faster.  The move must save more
    time than it takes to reorder `w` and the result.  The lanes of a constant `w` are on such an
    axis already.

    The last axis fills few lanes in narrow images, and in the gradient of a weight, where it is a
    window.  In a depthwise convolution, lanes run along the channels if the result is smaller than
    both factors.
    """
    return _best_lanes(c, target)[0]


def columns_choice(target: Target) -> Choice:
    """The choice which convolutions of two variables become matrix products.  One factor of such a
    product is the matrix of windows.

    All sizes must be numbers.  The product with all copies must take less time than the
    convolution.  A plain convolution needs no copy of its result if the readers of the result
    exchange its first two axes.
    """

    def choice(node: Node, is_exchanged: bool) -> bool:
        c = contraction_of(node.op.tensors(*(v.type for v in node.inputs)), frozenset())
        if c is None or c.vector is None:
            return False
        dtype = node.outputs[0].dtype
        x, w, y = (v.type.static_shape for v in (*node.inputs, *node.outputs))
        if isinstance(node.op, Conv):
            steps, places = math.prod(w[1:]), y[0] * math.prod(y[2:])
            op, left = MatMul(), (w[0], steps)
            result = 0 if is_exchanged else w[0] * places
            copied = (steps * places, result)
        else:
            steps, places = w[0], x[0] * math.prod(x[2:])
            op, left = MatMul(transpose_a=True), (steps, math.prod(w[1:]))
            # These elements are reordered, with images outermost, and then added.
            under = left[1] * places
            copied = (steps * places, under, under)
        types = (TensorType(dtype, shape) for shape in (left, (steps, places)))
        product = contraction_of(op.tensors(*types), frozenset())
        if product is None or product.vector is None:
            return False
        copying = sum(_copying(n, dtype.bytes, target) for n in copied)
        return product_cycles(product, target) + copying < GAIN * _best_lanes(c, target)[1]

    return choice


def _best_lanes(c: Contraction, target: Target) -> tuple[Contraction, float]:
    """The contraction with lanes along the better axis, and its cycles."""
    own = product_cycles(c, target)
    other = analyse(c.op, frozenset(), None)
    if other is None or other.vector is None or other.vector is c.vector:
        return c, own
    if c.is_batched:
        return c, own
    size = c.op.outputs[0].dtype.bytes
    x, w = other.x.buffer.shape, other.w.buffer.shape
    result = tuple(a.extent for a in c.op.axis)
    if other.is_batched:
        count, lane = expected_size(result), other.vector.var
        if count > min(expected_size(x), expected_size(w)):
            return c, own  # the producer and the reader would have to reorder as well
        if not all(any(i is lane for i in load.indices) for load in (other.x, other.w)):
            return c, own  # lanes would gather elements from groups of several channels
        # `x` is copied in any case for its halo; reordering in that copy costs more.
        either = _copying(expected_size(x), size, target)
        copied = _copying(expected_size(w), size, target) + _exchange(count, size, target)
        cost = product_cycles(other, target) + either + copied
        return (other, cost) if cost < GAIN * (own + either) else (c, own)
    count = expected_size(w)
    blocks = _is_transposed_in_blocks(other, target.vector_lanes(size))
    packed = _transposing(count, size, target) if blocks else _exchange(count, size, target)
    cost = product_cycles(other, target) + packed + _exchange(expected_size(result), size, target)
    return (other, cost) if cost < GAIN * own else (c, own)


def _is_transposed_in_blocks(c: Contraction, lanes: int) -> bool:
    """Whether packing can transpose full vectors of a row-major `w` in registers, which reads each
    line once.  The last axis of `w` must be a reduction axis.  This axis and the vector axis must
    each have at least `lanes` elements.
    """
    last = c.w.indices[-1]
    axes = (c.vector, next((a for a in c.op.reduce_axis if a.var is last), None))
    return all(a is not None and isinstance(a.extent, int) and a.extent >= lanes for a in axes)


def _exchange(count: int, size: int, target: Target) -> float:
    """Cycles to copy `count` elements of `size` bytes so that another axis is innermost.
    Neighbouring elements are read from different cache lines.  If the tensor exceeds L2, each read
    misses.
    """
    model = target.model
    missed = model.jump_cycles[-1] if count * size > model.l2_bytes else 0.0
    return count * (model.copy_cycles + missed)


def _transposing(count: int, size: int, target: Target) -> float:
    """Cycles to transpose `count` elements of `size` bytes in blocks.  Each vector is loaded,
    shuffled log2(block size) times, and stored.
    """
    model, lanes = target.model, target.vector_lanes(size)
    passes = (2 + math.log2(lanes)) / model.vector_ports
    return count / lanes * passes + _moving(count, size, target)


def _copying(count: int, size: int, target: Target) -> float:
    """Cycles of a copy of `count` elements of `size` bytes in short runs."""
    return count * target.model.copy_cycles + _moving(count, size, target)


def _moving(count: int, size: int, target: Target) -> float:
    """Cycles to read and write `count` elements of `size` bytes in DRAM; 0 if L2 holds the
    elements.
    """
    moved = count * size
    return 2 * moved / dram_rate(target) if moved > target.model.l2_bytes else 0.0
