"""Products of quantised operands become products of integers.

    conv(f32(a) * s, f32(b) * t)  ->  f32(conv(i16(a), i16(b), to=i32)) * (s * t)
    matmul(a, b)                  ->  matmul(i16(a), i16(b), to=i32)

Here `a` and `b` are numbers of type i32 that fit 16 bits.  In quantised models they are 8-bit
numbers minus their zero points.  Sums of integers are exact, while sums of floats are rounded.  A
product of floats is rewritten if bounds of its operands prove that its sums fit 32 bits.  A product
of i32 needs no proof, since its sums wrap as before.  Padding adds zeros, the number that a zero
point represents.  `factors` chooses how the operands are stored.
"""

from __future__ import annotations

import math

import numpy as np

from tilesmith.graph.nodes import Graph, Node, Value
from tilesmith.graph.passes.factors import Choice as FactorChoice
from tilesmith.graph.passes.factors import always_pairs, product
from tilesmith.graph.passes.rewriter import Result, Rewriter
from tilesmith.graph.passes.winograd import Choice, has_form
from tilesmith.ir.dtypes import f32, i16, i32
from tilesmith.ops.conv import Conv
from tilesmith.ops.elementwise import Add, Cast, Mul, Sub
from tilesmith.ops.matmul import MatMul
from tilesmith.ops.shape import Reshape, Transpose

Bounds = tuple[int, int]


def narrow_products(graph: Graph, factors: FactorChoice = always_pairs) -> Graph:
    """`graph` with narrow operands for products of i32 whose operands fit 16 bits; the same object
    if there are no such products.

    factors: chooses the storage types of products with constant weights.
    """

    def narrow(r: Rewriter, n: Node) -> Result:
        return _narrow(r, n, factors)

    return Rewriter(graph, {MatMul: (narrow,), Conv: (narrow,)}).run()


def integer_products(
    graph: Graph, on_floats: Choice = lambda node: None, factors: FactorChoice = always_pairs
) -> Graph:
    """`graph` with products of scaled integers computed in integers; the same object if there are
    none.

    on_floats: gives a tile size if a convolution is faster by Winograd's algorithm on floats, else
        None.
    factors: as in `narrow_products`.
    """

    def conv(r: Rewriter, n: Node) -> Result:
        assert isinstance(n.op, Conv)
        if any(_scaled(r, v) is None for v in n.inputs):
            return None
        is_faster = has_form(n.op, *n.inputs) and on_floats(n) is not None
        return None if is_faster else _unscaled(r, n, factors)

    def matmul(r: Rewriter, n: Node) -> Result:
        return _unscaled(r, n, factors)

    return Rewriter(graph, {MatMul: (matmul,), Conv: (conv,)}).run()


def _narrow(r: Rewriter, n: Node, factors: FactorChoice) -> Result:
    """Rewrites a product of i32 operands."""
    op = n.op
    assert isinstance(op, (MatMul, Conv))
    if op.to is not None or n.outputs[0].dtype is not i32:
        return None
    x, w = n.inputs
    limits = [_bounds(r, v) for v in n.inputs]
    return product(r, op, x, w, limits[1], factors) if all(map(_fits, limits)) else None


def _unscaled(r: Rewriter, n: Node, factors: FactorChoice) -> Result:
    """Rewrites a product of f32 operands that are integers times scales."""
    op = n.op
    assert isinstance(op, (MatMul, Conv))
    if op.to is not None or n.outputs[0].dtype is not f32:
        return None
    x, w = (_scaled(r, v) for v in n.inputs)
    if x is None or w is None:
        return None
    (a, s), (b, t) = x, w
    limits = [_bounds(r, v) for v in (a, b)]
    terms = _terms(op, b)
    largest = math.prod(max(map(abs, bounds)) for bounds in limits)
    if not all(map(_fits, limits)) or terms is None or terms * largest > i32.max:
        return None
    if not s.type.is_static or s.type.size != 1:
        return None
    factor = _per_channel(r, op, n, t, b)
    if factor is None:
        return None
    scale = r.add(Mul(), r.add(Reshape(()), s), factor)
    return r.add(Mul(), r.add(Cast(f32), product(r, op, a, b, limits[1], factors)), scale)


def _fits(bounds: Bounds) -> bool:
    return i16.min <= bounds[0] and bounds[1] <= i16.max


def _scaled(r: Rewriter, v: Value) -> tuple[Value, Value] | None:
    """The two factors of `v`: integers and a scale.  None if `v` is no such product."""
    node = r.producer(v, Mul)
    if node is None:
        return None
    for whole, scale in (node.inputs, node.inputs[::-1]):
        cast = r.producer(whole, Cast)
        if cast is not None and cast.inputs[0].dtype is i32 and whole.type == v.type:
            return cast.inputs[0], scale
    return None


def _terms(op: MatMul | Conv, w: Value) -> int | None:
    """The number of products that each result element sums; None if it is symbolic."""
    if isinstance(op, MatMul):
        if w.type.rank < 2:
            return None
        inner = [w.shape[-1 if op.transpose_b else -2]]
    else:
        inner = [*w.shape[1:]]
    known = [n for n in inner if isinstance(n, int)]
    return math.prod(known) if len(known) == len(inner) else None


def _per_channel(r: Rewriter, op: MatMul | Conv, n: Node, scale: Value, w: Value) -> Value | None:
    """The scale of `w` in a shape that broadcasts to the result; None if the scale differs
    between terms of one sum.
    """
    if not scale.type.is_static:
        return None
    shape = (1,) * (w.type.rank - scale.type.rank) + scale.type.static_shape
    channel = 0
    if isinstance(op, MatMul):
        channel = w.type.rank - (2 if op.transpose_b else 1)
    if any(size != 1 for axis, size in enumerate(shape) if axis != channel):
        return None
    after = 0 if isinstance(op, MatMul) else n.outputs[0].type.rank - 2
    return r.add(Reshape((shape[channel], *(1,) * after)), scale)


_DEEPEST = 8
"""Upper bound on the length of a chain of nodes through which bounds are followed.  The chain of
a dequantisation is shorter.
"""


def _bounds(r: Rewriter, v: Value, depth: int = _DEEPEST) -> Bounds:
    """Bounds of the integer elements of `v`.  Beyond a chain of `depth` nodes, the bounds of
    the type are used.
    """
    whole = int(v.dtype.min), int(v.dtype.max)
    array = r.array(v)
    if array is not None:
        return (int(np.min(array)), int(np.max(array))) if array.size else (0, 0)
    node = r.producer(v, Cast, Sub, Add, Reshape, Transpose)
    if node is None or depth == 0 or not all(i.dtype.is_int for i in node.inputs):
        return whole
    operands = [_bounds(r, i, depth - 1) for i in node.inputs]
    if isinstance(node.op, (Sub, Add)):
        (a, b), (c, d) = operands
        low, high = (a + c, b + d) if isinstance(node.op, Add) else (a - d, b - c)
    else:
        low, high = operands[0]
    return (low, high) if whole[0] <= low and high <= whole[1] else whole
