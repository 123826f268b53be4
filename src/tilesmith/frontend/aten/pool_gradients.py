"""Gradients of pooling and of replication padding."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial

import numpy as np

from tilesmith.frontend.aten.convolutions import spread
from tilesmith.frontend.aten.node import AtenNode
from tilesmith.frontend.aten.pools import Numbers
from tilesmith.frontend.aten.registry import aten_op
from tilesmith.frontend.common.pools import averages
from tilesmith.graph.nodes import Value
from tilesmith.ir import extents
from tilesmith.ops import matmul as mm
from tilesmith.ops.gradients.convolutions import transposed_convolution
from tilesmith.ops.scatter import ScatterElements
from tilesmith.ops.slicing import Concat, Slice


def _max_pool_backward(
    n: AtenNode, grad_output: Value, self: Value, kernel_size: Numbers, stride: Numbers,
    padding: Numbers, dilation: Numbers, ceil_mode: bool, indices: Value, *, rank: int,
) -> Value:  # fmt: skip
    return _to_maxima(n, grad_output, self, indices, rank=rank)


def _to_maxima(n: AtenNode, grad_output: Value, self: Value, indices: Value, *, rank: int) -> Value:
    """The gradient of max pooling: each window's gradient is added at its maximum.

    indices: position of each maximum in its image.
    """
    images = extents.product(self.type.shape[:-rank])
    flat = [
        n.reshape(v, (images, extents.product(v.type.shape[-rank:])))
        for v in (grad_output, indices)
    ]
    zeros = n.full(0, (images, extents.product(self.type.shape[-rank:])), grad_output.dtype)
    return n.reshape(n.add(ScatterElements(1, "add"), zeros, flat[1], flat[0]), self.type.shape)


def _avg_pool_backward(
    n: AtenNode, grad_output: Value, self: Value, kernel_size: Numbers, stride: Numbers,
    padding: Numbers, ceil_mode: bool, count_include_pad: bool, divisor_override: int | None, *,
    rank: int,
) -> Value:  # fmt: skip
    """The gradient of average pooling.  Each window's gradient is divided by the window's divisor
    and added to all positions of the window.
    """
    kernel = spread(kernel_size, rank)
    strides, pads = spread(stride, rank) or kernel, spread(padding, rank)
    sizes, out = n.shape(self)[-rank:], n.shape(grad_output)[-rank:]
    if divisor_override is not None:
        divisors = np.full(out, divisor_override)
    else:
        divisors = np.ones((), np.int64)
        for o, size, k, s, p in zip(out, sizes, kernel, strides, pads, strict=True):
            divisors = divisors[..., None] * _counts(o, size, k, s, p, count_include_pad)
    share = grad_output / divisors.astype(grad_output.dtype.numpy)
    count = extents.product(n.shape(self)[:-rank])
    ones = n.const(np.ones((1, 1, *kernel), grad_output.dtype.numpy))
    gradient = transposed_convolution(
        n.reshape(share, (count, 1, *out)), ones, sizes, strides, pads, (1,) * rank, 1
    )
    return n.reshape(gradient, self.type.shape)


def _counts(
    out: int, size: int, kernel: int, stride: int, pad: int, includes_padding: bool
) -> np.ndarray:
    """The number of positions in each window along an axis, with padding if `includes_padding`."""
    begins = np.arange(out) * stride - pad
    ends = np.minimum(begins + kernel, size + pad)
    if includes_padding:
        return ends - begins
    return np.minimum(ends, size) - np.maximum(begins, 0)


def _adaptive_avg_pool_backward(
    n: AtenNode, grad_output: Value, self: Value, *, rank: int
) -> Value:
    """The gradient of adaptive average pooling, by the transposed matrix of `averages`."""
    sizes, out = n.shape(self)[-rank:], n.shape(grad_output)[-rank:]
    if max(out) == 1:
        share = grad_output / float(math.prod(sizes))
        return n.expand(share, self.type.shape)
    x = grad_output
    for axis, (size, bins) in enumerate(zip(sizes, out, strict=True), self.type.rank - rank):
        x = along_axis(n, x, axis, averages(size, bins).T)
    return x


def along_axis(n: AtenNode, x: Value, axis: int, matrix: np.ndarray) -> Value:
    """The product of a matrix [new extent, old extent] with each line of `x` along an axis."""
    factor, rank = n.const(matrix.astype(x.dtype.numpy)), x.type.rank
    if axis == rank - 2:
        return n.add(mm.MatMul(), factor, x)
    last = (*range(axis), *range(axis + 1, rank), axis)
    back = (*range(axis), rank - 1, *range(axis, rank - 1))
    return n.permute(n.add(mm.MatMul(transpose_b=True), n.permute(x, last), factor), back)


def _replication_backward(
    n: AtenNode, grad_output: Value, self: Value, padding: Sequence[int], *, rank: int
) -> Value:
    """The gradient of replication padding.  The gradients of padded positions are added to the
    gradient of the position at the edge.  Positions that negative padding crops get gradient 0.
    """
    x = grad_output
    for i in range(rank):
        before, after = padding[2 * i], padding[2 * i + 1]
        x = _folded_ends(n, x, x.type.rank - 1 - i, before, after)
    return x


def _folded_ends(n: AtenNode, x: Value, axis: int, before: int, after: int) -> Value:
    extent = n.extent(x, axis)

    def part(start: int, end: int) -> Value:
        return n.add(Slice((start,), (end,), (axis,), (1,)), x)

    def end_of(start: int, end: int) -> Value:
        return part(start, end).sum((axis,), keepdims=True)

    def zeros(count: int) -> Value:
        dims = tuple(count if a == axis else d for a, d in enumerate(x.type.shape))
        return n.full(0, dims, x.dtype)

    low, high = max(before, 0), extent - max(after, 0)
    if high - low == 1 and before >= 0 and after >= 0:
        return end_of(0, extent)
    parts = [zeros(-before)] if before < 0 else []
    if before > 0:
        parts.append(end_of(0, low + 1))
    parts.append(part(low + (before > 0), high - (after > 0)))
    if after > 0:
        parts.append(end_of(high - 1, extent))
    if after < 0:
        parts.append(zeros(-after))
    return parts[0] if len(parts) == 1 else n.add(Concat(axis), *parts)


for _rank in (1, 2, 3):
    aten_op(f"aten.replication_pad{_rank}d_backward.default")(
        partial(_replication_backward, rank=_rank)
    )
for _rank in (2, 3):
    aten_op(f"aten.max_pool{_rank}d_with_indices_backward.default")(
        partial(_max_pool_backward, rank=_rank)
    )
    aten_op(f"aten.adaptive_max_pool{_rank}d_backward.default")(partial(_to_maxima, rank=_rank))
    aten_op(f"aten.avg_pool{_rank}d_backward.default")(partial(_avg_pool_backward, rank=_rank))
    aten_op(f"aten._adaptive_avg_pool{_rank}d_backward.default")(
        partial(_adaptive_avg_pool_backward, rank=_rank)
    )
