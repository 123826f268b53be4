"""Fourier transforms, and images from columns, when the model computes an axis or a size."""

from __future__ import annotations

import math

from tilesmith.frontend.common.computed import along, split_at
from tilesmith.frontend.common.lists import joined, listed
from tilesmith.frontend.onnx.node import OnnxNode
from tilesmith.graph.nodes import Value
from tilesmith.ir.dtypes import f64, i64
from tilesmith.ir.expr import as_expr
from tilesmith.ir.symbols import as_dim
from tilesmith.ir.types import Dim
from tilesmith.ops import elementwise as ew
from tilesmith.ops import gather, matmul, shape, slicing
from tilesmith.ops.functions import apply, where
from tilesmith.ops.runtime_shape import Reinterpret


def transformed(
    n: OnnxNode, x: Value, axis: Value, length: Value | None, inverse: bool, onesided: bool
) -> Value:
    """The discrete Fourier transform along a computed axis, or with a computed length."""
    dims, rank = x.type.shape, x.type.rank
    parts = n.extent(x, -1)
    if not x.dtype.is_float or parts not in (1, 2):
        n.bad(f"expected floats [...,1] or [...,2], found {x.type}")
    lines, (before, extent, rest) = split_at(n, x, axis)
    after = as_dim(as_expr(rest) // parts)
    lines = n.add(Reinterpret((before, extent, after, parts)), lines)
    real = inverse and onesided
    own = n.of_dims((extent,))
    period = listed(length) if length is not None else (own - 1) * 2 if real else own
    half = period / 2 + 1
    taken, wanted = (half if real else period), (half if onesided and not real else period)
    (count,) = n.measured(wanted, zero=(period < 1).cast(i64))
    y = _products(n, lines, period, taken, count, inverse, real)
    number = listed(axis)
    order = n.of_dims(range(rank - 1))
    is_axis = order.equals(where(number < 0, number + rank, number))
    sizes = where(is_axis, n.of_dims((count,)), n.of_dims(dims[:-1]))
    return n.add(Reinterpret((*n.measured(sizes), 1 if real else 2)), y)


def _products(
    n: OnnxNode,
    lines: Value,
    period: Value,
    taken: Value,
    count: Dim,
    inverse: bool,
    real: bool,
) -> Value:
    """Transform axis d of `lines` by products with sines and cosines.

    Maps [b, d, a, parts] to [b, count, a, 1 or 2].

    period: the length of the transform.
    taken: number of elements to read along d; if d is smaller, the missing elements are 0.
    """
    extent, parts = lines.type.shape[1], n.extent(lines, 3)
    k, j = along(n.positions(extent), 0, 2), along(n.positions(count), 1, 2)
    angle = ((k * j % period).cast(f64) * 2) * math.pi
    angle = angle / period.cast(f64)
    weight = (k < taken).cast(f64)
    if real:  # every frequency but the first and the middle one stands for a conjugate pair
        middle = (k * 2).equals(period) | k.equals(0)
        weight = weight * where(middle, 1.0, angle * 0.0 + 2.0)
    if inverse:
        weight = weight / period.cast(f64)
    cosines, sines = ((apply(op, angle) * weight).cast(lines.dtype) for op in (ew.Cos(), ew.Sin()))

    def product(part: int, matrix: Value) -> Value:
        cut = n.add(slicing.Slice((part,), (part + 1,), (3,), (1,)), lines)
        cut = n.add(shape.Squeeze((3,)), cut).transpose(0, 2, 1)
        return n.add(matmul.MatMul(), cut, matrix)

    first = product(0, cosines)
    if not inverse:
        second = -product(0, sines)
    else:
        second = product(0, sines)
    if parts == 2:
        plus, minus = ew.Add(), ew.Sub()
        first = n.add(minus if inverse else plus, first, product(1, sines))
        second = n.add(plus, second, product(1, cosines))
    products = [n.add(shape.Unsqueeze((3,)), v) for v in ((first,) if real else (first, second))]
    joined = n.add(slicing.Concat(3), *products) if len(products) > 1 else products[0]
    return joined.transpose(0, 2, 1, 3)


def frames(n: OnnxNode, signal: Value, step: Value, length: Value) -> Value:
    """Frames [b, frames, length, parts] of a signal [b, n, parts], for a computed length."""
    own = n.of_dims((signal.type.shape[1],))
    stride = listed(step)
    many = (own - length) / stride + 1
    wrong = ((stride < 1) | (own < length)).cast(i64)
    known = [None, *n.elements(length, "frame_length")]
    count, size = n.measured(joined(many, length), known, zero=wrong)
    places = along(n.positions(count) * stride, 0, 2) + along(n.positions(size), 1, 2)
    return n.add(gather.Gather(1), signal, places)
