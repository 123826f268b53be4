"""Strided transposed convolutions as plain ones: every phase of the result at its own time.

Spreading the input with zeros wastes all but one of stride^n multiplications.  Position
`j * stride + r` of the full result takes only the kernel positions that are r modulo the stride, so
the phases r are `stride` times as many output channels of a small convolution at stride 1, which
are then interleaved (Shi et al., "Real-Time Single Image and Video Super-Resolution Using an
Efficient Sub-Pixel Convolutional Neural Network", 2016) and cropped as the pads say:

    conv_transpose(x, w)  ->  slice(reshape(transpose(reshape(conv(x, phases(w))))))

An axis on which x has a single position is treated so as well, whatever its stride.  With constant
weights, `phases(w)` is folded.
"""

from __future__ import annotations

from collections.abc import Sequence

from tilesmith.graph.nodes import Graph, Node, Value
from tilesmith.graph.rewriter import Result, Rewriter
from tilesmith.ops.conv import Conv, ConvTranspose
from tilesmith.ops.shape import Reshape, Transpose
from tilesmith.ops.slicing import Flip, Pad, Slice


def sub_pixel(graph: Graph) -> Graph:
    """`graph` without transposed convolutions that stride or enlarge a single position, but for
    dilated ones, which are rare.
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
    # No stride spreads a single position: with the kernel's extent for one, each tap is a phase.
    strides = tuple(
        k if d == 1 else s
        for k, d, s in zip(kernel, x.type.static_shape[2:], op.strides or (1,) * n, strict=True)
    )
    if all(s == 1 for s in strides) or any(d != 1 for d in op.dilations):
        return None
    taps = [-(-k // s) for k, s in zip(kernel, strides, strict=True)]
    phases = _phase_weights(r, w, op.groups, strides, taps)
    around = tuple(t - 1 for t in taps)
    y = r.add(Conv(pads=around * 2, groups=op.groups), x, phases)
    full = _interleave(r, y, out.static_shape[1], strides)
    begins = op.pads[:n] if op.pads else (0,) * n
    return _window(r, full, begins, out.static_shape[2:])


def _phase_weights(
    r: Rewriter, w: Value, groups: int, strides: Sequence[int], taps: Sequence[int]
) -> Value:
    """w [IC, OC/groups, k...] as [OC * phases, IC/groups, taps...], the taps mirrored."""
    ic, ocg, *kernel = w.type.static_shape
    n = len(kernel)
    missing = [t * s - k for t, s, k in zip(taps, strides, kernel, strict=True)]
    if any(missing):
        w = r.add(Pad((*[0] * (n + 4), *missing)), w)
    icg = ic // groups
    pairs = [size for t, s in zip(taps, strides, strict=True) for size in (t, s)]
    w = r.add(Reshape((groups, icg, ocg, *pairs)), w)
    tap_axes = [3 + 2 * a for a in range(n)]
    w = r.add(Transpose((0, 2, *(a + 1 for a in tap_axes), 1, *tap_axes)), w)
    w = r.add(Flip(tuple(range(n + 3, 2 * n + 3))), w)
    count = groups * ocg
    for s in strides:
        count *= s
    return r.add(Reshape((count, icg, *taps)), w)


def _interleave(r: Rewriter, y: Value, channels: int, strides: Sequence[int]) -> Value:
    """y [N, channels * phases, d...] as [N, channels, d * stride...]."""
    batch, _, *dims = y.type.static_shape
    n = len(dims)
    y = r.add(Reshape((batch, channels, *strides, *dims)), y)
    order = [axis for a in range(n) for axis in (2 + n + a, 2 + a)]
    y = r.add(Transpose((0, 1, *order)), y)
    extents = [d * s for d, s in zip(dims, strides, strict=True)]
    return r.add(Reshape((batch, channels, *extents)), y)


def _window(r: Rewriter, full: Value, begins: Sequence[int], extents: Sequence[int]) -> Value:
    """The part of `full` that starts at `begins` (which may be negative), zeros outside it."""
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
