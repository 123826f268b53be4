"""Fourier transforms, and images from columns, where an axis or a size is computed by the model."""

from __future__ import annotations

import math

from tilesmith.frontend.common.numbers import Numbers
from tilesmith.frontend.onnx.computed import along, iota, of_dims, split_at
from tilesmith.frontend.onnx.node import OnnxNode
from tilesmith.graph.nodes import Value
from tilesmith.ir import extents
from tilesmith.ir.dtypes import f64, i64
from tilesmith.ir.expr import as_expr
from tilesmith.ir.symbols import as_dim
from tilesmith.ir.types import Dim
from tilesmith.ops import elementwise as ew
from tilesmith.ops import gather, matmul, reduce, shape, slicing
from tilesmith.ops.functions import where
from tilesmith.ops.runtime_shape import Reinterpret


def transformed(
    n: OnnxNode, x: Value, axis: Value, length: Value | None, inverse: bool, onesided: bool
) -> Value:
    """The discrete Fourier transform along a computed axis, or of a computed length."""
    dims, rank = x.type.shape, x.type.rank
    parts = n.extent(x, -1)
    if not x.dtype.is_float or parts not in (1, 2):
        n.bad(f"expected floats [...,1] or [...,2], found {x.type}")
    lines, (before, extent, rest) = split_at(n, x, axis)
    after = as_dim(as_expr(rest) // parts)
    lines = n.add(Reinterpret((before, extent, after, parts)), lines)
    real = inverse and onesided
    own = of_dims(n, (extent,))
    period = Numbers.of(n, length) if length is not None else (own - 1) * 2 if real else own
    half = period.divided(2) + 1
    taken, wanted = (half if real else period), (half if onesided and not real else period)
    (count,) = n.measured(wanted.value, zero=period.below(1).cast(i64).value)
    y = _products(n, lines, period, taken, count, inverse, real)
    number = Numbers.of(n, axis)
    order = of_dims(n, range(rank - 1))
    is_axis = order.equals(number.below(0).chooses(number + rank, number))
    sizes = is_axis.chooses(of_dims(n, (count,)), of_dims(n, dims[:-1]))
    return n.add(Reinterpret((*n.measured(sizes.value), 1 if real else 2)), y)


def _products(
    n: OnnxNode,
    lines: Value,
    period: Numbers,
    taken: Numbers,
    count: Dim,
    inverse: bool,
    real: bool,
) -> Value:
    """lines [b, d, a, parts] to [b, count, a, 1 or 2], by products with sines and cosines.

    period: the length of the transform.
    taken: how many of the d elements are read; there may be fewer, others are 0.
    """
    extent, parts = lines.type.shape[1], n.extent(lines, 3)
    k, j = along(iota(n, extent), 0, 2), along(iota(n, count), 1, 2)
    angle = (k * j).modulo(period).cast(f64) * 2 * math.pi
    angle = angle.divided(period.cast(f64))
    weight = k.below(taken).cast(f64)
    if real:  # all frequencies but the first and the middle one stand for two
        middle = (k * 2).equals(period).either(k.equals(0))
        weight = weight * middle.chooses(1.0, angle * 0.0 + 2.0)
    if inverse:
        weight = weight.divided(period.cast(f64))
    cosines, sines = (
        (angle.mapped(op) * weight).cast(lines.dtype).value for op in (ew.Cos(), ew.Sin())
    )

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
    found = [n.add(shape.Unsqueeze((3,)), v) for v in ((first,) if real else (first, second))]
    joined = n.add(slicing.Concat(3), *found) if len(found) > 1 else found[0]
    return joined.transpose(0, 2, 1, 3)


def frames(n: OnnxNode, signal: Value, step: Value, length: Numbers) -> Value:
    """signal [b, n, parts] cut into frames of a computed length and step: [b, frames, length,
    parts].
    """
    own = of_dims(n, (signal.type.shape[1],))
    given = Numbers.of(n, step)
    many = (own - length).divided(given) + 1
    wrong = given.below(1).either(own.below(length)).cast(i64)
    known = [None, *n.elements(length.value, "frame_length")]
    count, size = n.measured(many.joined(length).value, known, zero=wrong.value)
    places = along(iota(n, count) * given, 0, 2) + along(iota(n, size), 1, 2)
    return n.add(gather.Gather(1), signal, places.value)


def images(
    n: OnnxNode,
    x: Value,
    image: Value,
    block: Value,
    strides: tuple[int, ...],
    pads: tuple[int, ...],
    dilations: tuple[int, ...],
) -> Value:
    """Col2Im for computed sizes: each pixel sums the elements of the blocks that it lies in.

    x [batch, channels * elements of a block, blocks].
    """
    axes = image.type.size
    strides, dilations = strides or (1,) * axes, dilations or (1,) * axes
    begins = (pads or (0,) * 2 * axes)[:axes]
    both = [sum((pads or (0,) * 2 * axes)[a::axes]) for a in range(axes)]
    whole, kernel = Numbers.of(n, image), Numbers.of(n, block)
    room = whole + both - (kernel - 1) * [*dilations] - 1
    blocks = room.divided([*strides]) + 1
    batch, rows, columns = x.type.shape
    area, size, many = (v.summed(0, reduce.ReduceProd).shaped(1) for v in (kernel, whole, blocks))
    channels = of_dims(n, (rows,)).divided(area.most(1))
    wrong = (channels * area - of_dims(n, (rows,))).joined(many - of_dims(n, (columns,)))
    found = n.measured(channels.joined(area, size, whole).value, zero=wrong.value)
    channel, taps, pixels = found[:3]
    pixel, tap = along(iota(n, pixels), 0, 2), along(iota(n, taps), 1, 2)
    place, inside = tap * 0, None
    for a in reversed(range(axes)):
        i, k = pixel.modulo(whole[a].most(1)), tap.modulo(kernel[a].most(1))
        pixel, tap = pixel.divided(whole[a].most(1)), tap.divided(kernel[a].most(1))
        ahead = i + begins[a] - k * dilations[a]
        at = ahead.divided(strides[a])
        fits = (at * strides[a]).equals(ahead).both((at * 0 - 1).below(ahead)).both(
            at.below(blocks[a]))  # fmt: skip
        inside = fits if inside is None else inside.both(fits)
        scale = of_dims(n, (1,))
        for later in range(a + 1, axes):
            scale = scale * blocks[later]
        place = place + at * scale
    assert inside is not None
    tap = along(iota(n, taps), 1, 2)
    flat = inside.chooses(tap * of_dims(n, (columns,)) + place, 0)
    split = n.add(Reinterpret((batch, channel, extents.product((taps, columns)))), x)
    chosen = n.add(gather.Gather(2), split, flat.value)
    chosen = where(inside.value, chosen, 0)
    summed = chosen.sum((3,))
    return n.add(Reinterpret((batch, channel, *found[3:])), summed)
