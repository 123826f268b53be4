"""Strided transposed convolutions become plain convolutions that compute each phase of the result.

Spreading the input with zeros wastes all but one of stride^n multiplications (n: spatial axes).
Position `j * stride + r` of the full result needs only the kernel positions that are r modulo the
stride.  The positions with the same r are a phase.  All phases are computed by one small
convolution at stride 1, as `stride` times as many output channels for each axis.  They are then
interleaved (Shi et al., "Real-Time Single Image and Video Super-Resolution Using an Efficient
Sub-Pixel Convolutional Neural Network", 2016) and cropped as the pads say:

    conv_transpose(x, w)  ->  slice(reshape(transpose(reshape(conv(x, phases(w))))))

In a single convolution, all phases have as many taps as the largest phase.  The convolution also
computes positions that the crop removes.  If that is much more work, each phase becomes a separate
convolution with its own taps and pads:

    conv_transpose(x, w)  ->  slice(reshape(transpose(reshape(concat(conv(x, w[phase]), ...)))))

An axis on which x has a single element is treated in the same way, whatever its stride.  If the
weights are constant, `phases(w)` is folded.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product

from tilesmith.graph.nodes import Graph, Node, Value
from tilesmith.graph.passes.rewriter import Result, Rewriter
from tilesmith.ops.conv import Conv, ConvTranspose
from tilesmith.ops.shape import Reshape, Transpose
from tilesmith.ops.slicing import Concat, Flip, Pad, Slice

CHANNELS = 16
"""Assumed length of the vectors in which output channels are computed."""
APART = 0.95
"""Separate phases are used if their work is less than this fraction of the work of one convolution.
It is below 1, since separate phases are several small kernels that each read the whole image.
"""


def sub_pixel(graph: Graph) -> Graph:
    """`graph` without strided transposed convolutions, and without those whose image has a single
    element along an axis.  Dilated ones stay, since they are rare.
    """
    if not any(isinstance(n.op, ConvTranspose) for n in graph.nodes):
        return graph
    return Rewriter(graph, {ConvTranspose: (_phases,)}).run()


def _phases(r: Rewriter, node: Node) -> Result:
    op = node.op
    assert isinstance(op, ConvTranspose)
    x, w = node.inputs
    out = node.outputs[0].type
    if not (x.type.is_static and w.type.is_static and out.is_static):
        return None
    n = x.type.rank - 2
    kernel = w.type.static_shape[2:]
    # The stride has no effect on a single element.  With the kernel's extent as stride, each tap is
    # a phase.
    strides = tuple(
        k if d == 1 else s
        for k, d, s in zip(kernel, x.type.static_shape[2:], op.strides or (1,) * n, strict=True)
    )
    if all(s == 1 for s in strides) or any(d != 1 for d in op.dilations):
        return None
    begins = op.pads[:n] if op.pads else (0,) * n
    axes = [
        _phases_of(*sizes)
        for sizes in zip(
            x.type.static_shape[2:], kernel, strides, begins, out.static_shape[2:], strict=True
        )
    ]
    taps = [-(-k // s) for k, s in zip(kernel, strides, strict=True)]
    if _apart_is_less(x.type.static_shape[2:], out.static_shape[1] // op.groups, taps, axes):
        y = _apart(r, node, axes, strides)
        return _window(r, y, (0,) * n, out.static_shape[2:])
    # For a single element, the channels of a phase are adjacent, so that the product is the result
    # with channels last.  Otherwise the phases are adjacent, as in the rows of the result.
    outside = all(d == 1 for d in x.type.static_shape[2:])
    phases = _phase_weights(r, w, op.groups, strides, taps, outside)
    around = tuple(t - 1 for t in taps)
    y = r.add(Conv(pads=around * 2, groups=op.groups), x, phases)
    full = _interleave(r, y, op.groups, strides, outside)
    return _window(r, full, begins, out.static_shape[2:])


@dataclass(frozen=True, slots=True)
class _Phase:
    """One phase of the result along one axis.  Each of its positions sums over kernel positions
    that are a stride apart.

    first: the first kernel position.
    taps: number of kernel positions.
    count: number of result positions.
    pads: padding before and after x.
    """

    first: int
    taps: int
    count: int
    pads: tuple[int, int]


def _phases_of(size: int, kernel: int, stride: int, begin: int, out: int) -> list[_Phase]:
    """The phases of a result with `out` positions that begins at position `begin` of the full
    result.

    size, kernel: extents of x and of the kernel.

    Position `i * stride + q` of this result belongs to phase q.  It is the sum of
    `x[i + shift - t] * w[first + t * stride]` over t, with
    `shift, first = divmod(q + begin, stride)`.
    """
    count = -(-out // stride)
    phases = []
    for q in range(stride):
        shift, first = divmod(q + begin, stride)
        taps = max(-(-(kernel - first) // stride), 0)
        before = taps - 1 - shift
        phases.append(_Phase(first, taps, count, (before, count - size - before + taps - 1)))
    return phases


def _apart_is_less(
    shape: Sequence[int], channels: int, taps: Sequence[int], axes: Sequence[Sequence[_Phase]]
) -> bool:
    """Whether separate phases are much less work than one convolution.

    shape: shape of the image.
    channels: number of output channels of one phase and one group.
    """
    if any(not p.taps for phases in axes for p in phases):
        return False  # a phase without taps: stride exceeds kernel
    together = math.prod((d + t - 1) * t for d, t in zip(shape, taps, strict=True))
    apart = math.prod(sum(p.count * p.taps for p in phases) for phases in axes)
    count = math.prod(len(phases) for phases in axes)
    return apart * _lanes(channels) < APART * together * _lanes(channels * count)


def _lanes(channels: int) -> int:
    return -(-channels // CHANNELS) * CHANNELS


def _apart(
    r: Rewriter, node: Node, axes: Sequence[Sequence[_Phase]], strides: Sequence[int]
) -> Value:
    """The result of `node`, computed by one convolution per phase.  Each axis of the result has up
    to `stride - 1` excess positions at its end.
    """
    op = node.op
    assert isinstance(op, ConvTranspose)
    x, w = node.inputs
    n = len(axes)
    ic, ocg, *_ = w.type.static_shape
    icg = ic // op.groups
    results = []
    for phase in product(*axes):
        firsts = tuple(p.first for p in phase)
        ends = tuple(p.first + (p.taps - 1) * s + 1 for p, s in zip(phase, strides, strict=True))
        part = r.add(Slice(firsts, ends, tuple(range(2, 2 + n)), tuple(strides)), w)
        taps = tuple(p.taps for p in phase)
        part = r.add(Reshape((op.groups, icg, ocg, *taps)), part)
        part = r.add(Transpose((0, 2, 1, *range(3, n + 3))), part)
        part = r.add(Flip(tuple(range(3, n + 3))), part)
        part = r.add(Reshape((op.groups * ocg, icg, *taps)), part)
        pads = (*(p.pads[0] for p in phase), *(p.pads[1] for p in phase))
        results.append(r.add(Conv(pads=pads, groups=op.groups), x, part))
    return _interleave(r, r.add(Concat(1), *results), 1, strides, True)


def _phase_weights(
    r: Rewriter,
    w: Value,
    groups: int,
    strides: Sequence[int],
    taps: Sequence[int],
    outside: bool,
) -> Value:
    """`w` of shape [IC, OC/groups, k...] as [OC * phases, IC/groups, taps...], with the taps
    mirrored.

    outside: True if the axis of phases is outside the axis of a group's channels, False if inside.
    """
    ic, ocg, *kernel = w.type.static_shape
    n = len(kernel)
    missing = [t * s - k for t, s, k in zip(taps, strides, kernel, strict=True)]
    if any(missing):
        w = r.add(Pad((*[0] * (n + 4), *missing)), w)
    icg = ic // groups
    pairs = [size for t, s in zip(taps, strides, strict=True) for size in (t, s)]
    w = r.add(Reshape((groups, icg, ocg, *pairs)), w)
    tap_axes = [3 + 2 * a for a in range(n)]
    stride_axes = [a + 1 for a in tap_axes]
    rows = (*stride_axes, 2) if outside else (2, *stride_axes)
    w = r.add(Transpose((0, *rows, 1, *tap_axes)), w)
    w = r.add(Flip(tuple(range(n + 3, 2 * n + 3))), w)
    count = groups * ocg
    for s in strides:
        count *= s
    return r.add(Reshape((count, icg, *taps)), w)


def _interleave(r: Rewriter, y: Value, groups: int, strides: Sequence[int], outside: bool) -> Value:
    """`y` of shape [N, groups * C * phases, d...] as [N, groups * C, d * stride...].

    outside: True if the axis of phases is outside the axis of channels C, False if inside.
    """
    batch, size, *dims = y.type.static_shape
    n = len(dims)
    channels = size // (groups * math.prod(strides))
    rows = (*strides, channels) if outside else (channels, *strides)
    y = r.add(Reshape((batch, groups, *rows, *dims)), y)
    first, channel = (2, 2 + n) if outside else (3, 2)
    order = [axis for a in range(n) for axis in (3 + n + a, first + a)]
    y = r.add(Transpose((0, 1, channel, *order)), y)
    extents = [d * s for d, s in zip(dims, strides, strict=True)]
    return r.add(Reshape((batch, groups * channels, *extents)), y)


def _window(r: Rewriter, full: Value, begins: Sequence[int], extents: Sequence[int]) -> Value:
    """The part of `full` with these `extents` that begins at `begins`, which may be negative.
    Elements outside of `full` are 0.
    """
    have = full.type.static_shape[2:]
    n = len(have)
    before = [max(-b, 0) for b in begins]
    after = [max(b + e - h, 0) for b, e, h in zip(begins, extents, have, strict=True)]
    if any(before) or any(after):
        full = r.add(Pad((0, 0, *before, 0, 0, *after)), full)
    starts = tuple(b + p for b, p in zip(begins, before, strict=True))
    if any(starts) or full.type.static_shape[2:] != tuple(extents):
        ends = tuple(s + e for s, e in zip(starts, extents, strict=True))
        full = r.add(Slice(starts, ends, tuple(range(2, 2 + n)), (1,) * n), full)
    return full
