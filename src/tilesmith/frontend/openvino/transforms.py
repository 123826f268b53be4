"""OpenVINO's transforms: sums by equations, samples of images, Fourier transforms, patches."""

from __future__ import annotations

from tilesmith.frontend.common.blocks import batch_to_space, space_to_batch
from tilesmith.frontend.common.networks import LayerNode
from tilesmith.frontend.common.slots import Result
from tilesmith.frontend.common.windows import geometry
from tilesmith.frontend.openvino.elements import element_type, openvino_layer
from tilesmith.frontend.openvino.layers import window_of
from tilesmith.graph.nodes import Value
from tilesmith.ir import extents
from tilesmith.ir.dtypes import f32
from tilesmith.ir.types import Dim
from tilesmith.ops import columns, deform, einsum, fourier, linalg, sample, slicing
from tilesmith.ops import elementwise as ew
from tilesmith.ops import functions as fn


@openvino_layer("Einsum")
def einsum_of(n: LayerNode) -> Result:
    return n.add(einsum.Einsum(n.attr_string("equation")), *n.inputs)


@openvino_layer("GridSample")
def grid_sample(n: LayerNode) -> Result:
    modes = {"bilinear": "linear", "bicubic": "cubic", "nearest": "nearest"}
    mode = modes[n.attr_string("mode", "bilinear", among=tuple(modes))]
    padding = n.attr_string("padding_mode", "zeros", among=("zeros", "border", "reflection"))
    op = sample.GridSample(mode, padding, n.attr_flag("align_corners", False))
    return n.add(op, n.input(0), n.input(1))


@openvino_layer("Eye")
def eye(n: LayerNode) -> Result:
    rows, columns_ = (n.one_extent(n.input(i), "an extent") for i in (0, 1))
    shift = int(n.scalar(n.input(2), "the diagonal"))
    is_one = (n.positions(columns_, 2, 1) - n.positions(rows, 2, 0)).equals(shift)
    batch = () if n.optional(3) is None else n.extents(n.input(3), "the batch")
    return n.expand(is_one.cast(element_type(n, "output_type")), (*batch, rows, columns_))


@openvino_layer("Inverse")
def inverse(n: LayerNode) -> Result:
    """The inverses of matrices, or of their transposes.  A run refuses a singular matrix."""
    x = n.input()
    rank, rows = x.type.rank, x.type.shape[-1]
    one = n.positions(rows, 2, 0).equals(n.positions(rows, 2, 1)).cast(x.dtype)
    y = n.add(linalg.Solve(), x, n.expand(one, x.type.shape))
    is_turned = n.attr_flag("adjoint", False)
    return y.transpose(*range(rank - 2), rank - 1, rank - 2) if is_turned else y


@openvino_layer("GRN")
def global_response_normalisation(n: LayerNode) -> Result:
    x = n.input()
    return x / fn.sqrt((x * x).sum((1,), keepdims=True) + n.attr_float("bias"))


# Fourier transforms


def _axes(n: LayerNode, rank: int) -> tuple[tuple[int, ...], list[int]]:
    """The axes of a signal of `rank` axes, and the length along each; 0: the signal's own."""
    axes = n.axes(n.int_list(n.input(1), "axes"), rank)
    if n.optional(2) is None:
        return axes, [0] * len(axes)
    lengths = n.int_list(n.input(2), "the sizes")
    if len(lengths) != len(axes) or any(v < 1 and v != -1 for v in lengths):
        n.bad(f"expected {len(axes)} sizes from 1, found {list(lengths)}")
    return axes, [max(v, 0) for v in lengths]


@openvino_layer("DFT", "IDFT")
def dft(n: LayerNode) -> Result:
    x = n.input(0)
    for axis, length in zip(*_axes(n, x.type.rank - 1), strict=True):
        x = n.add(fourier.Dft(axis, length, n.layer.kind == "IDFT"), x)
    return x


@openvino_layer("RDFT")
def real_dft(n: LayerNode) -> Result:
    """Half of the frequencies of real signals."""
    x = n.input(0)
    axes, lengths = _axes(n, x.type.rank)
    y = n.reshape(x, (*x.type.shape, 1))
    y = n.add(fourier.Dft(axes[-1], lengths[-1], onesided=True), y)
    for axis, length in zip(axes[:-1], lengths[:-1], strict=True):
        y = n.add(fourier.Dft(axis, length), y)
    return y


@openvino_layer("IRDFT")
def inverse_real_dft(n: LayerNode) -> Result:
    x = n.input(0)
    axes, lengths = _axes(n, x.type.rank - 1)
    for axis, length in zip(axes[:-1], lengths[:-1], strict=True):
        x = n.add(fourier.Dft(axis, length, True), x)
    y = n.add(fourier.Dft(axes[-1], lengths[-1], True, True), x)
    return n.reshape(y, y.type.shape[:-1])


@openvino_layer("STFT")
def stft(n: LayerNode) -> Result:
    """Frequencies [batch, frames, frequencies, 2], or frames after frequencies."""
    x, window = n.input(0), n.input(1)
    size = int(n.scalar(n.input(2), "the size of frames"))
    step = int(n.scalar(n.input(3), "the step of frames"))
    missing = size - n.extent(window, 0)
    if missing < 0 or step < 1:
        n.bad(
            f"expected a window within a frame of {size} and steps from 1, found {window.type} "
            f"and {step}"
        )
    if missing:
        window = n.add(slicing.Pad((missing // 2, missing - missing // 2)), window)
    batch = x.type.shape[:-1]
    signal = n.reshape(x, (extents.product(batch), x.type.shape[-1], 1))
    y = n.add(fourier.Stft(step), signal, window)
    y = y.transpose(0, 2, 1, 3) if n.attr_flag("transpose_frames", False) else y
    return n.reshape(y, (*batch, *y.type.shape[1:]))


# Windows and blocks


@openvino_layer("DeformableConvolution")
def deformable_convolution(n: LayerNode) -> Result:
    if not n.attr_flag("bilinear_interpolation_pad", False):
        n.unsupported("samples at the border that aren't interpolated with zeros outside")
    x, offset, w = (n.input(i) for i in range(3))
    g = window_of(n, x, n.shape(w)[2:])
    pads = g.numbers() or n.unsupported("padding of an open size")
    groups = n.attr_int("group", 1), n.attr_int("deformable_group", 1)
    mask = [] if n.optional(3) is None else [n.input(3)]
    return n.add(deform.DeformConv(g.strides, pads, g.dilations, *groups), x, w, offset, *mask)


@openvino_layer("ExtractImagePatches")
def patches(n: LayerNode) -> Result:
    """Windows of images as channels, [N, rows * columns * C, ...]."""
    x, kernel = n.input(), n.attr_ints("sizes")
    g = geometry(n, x, kernel, n.attr_ints("strides"), (0, 0, 0, 0), n.attr_ints("rates"))
    mode = n.attr_string("auto_pad", "valid")
    if mode in ("same_upper", "same_lower"):
        g.pads = g.same_pads(mode == "same_upper")
    pads = g.numbers() or n.unsupported("padding of an open size")
    y = n.add(columns.Im2Col(kernel, g.strides, pads, g.dilations), x)
    y = y.transpose(3, 1, 2, 0, 4, 5)
    batch, *own, rows, wide = y.type.shape
    return n.reshape(y, (batch, extents.product(own), rows, wide))


@openvino_layer("Col2Im")
def image_of_columns(n: LayerNode) -> Result:
    x = n.input(0)
    image, kernel = (n.int_list(n.input(i), "a size") for i in (1, 2))
    zeros, ones = (0,) * len(image), (1,) * len(image)
    pads = (*n.attr_ints("pads_begin", zeros), *n.attr_ints("pads_end", zeros))
    strides, dilations = n.attr_ints("strides", ones), n.attr_ints("dilations", ones)
    batched = x if x.type.rank == 3 else n.reshape(x, (1, *x.type.shape))
    y = n.add(columns.Col2Im(image, kernel, strides, pads, dilations), batched)
    return y if x.type.rank == 3 else n.reshape(y, y.type.shape[1:])


def _borders(n: LayerNode) -> tuple[Value, tuple[int, ...], tuple[Dim, ...], tuple[Dim, ...]]:
    """The input, the block sizes after its first axis, and the borders there."""
    x, blocks = n.input(0), n.int_list(n.input(1), "the blocks")
    before, after = (n.dims(n.input(i), "borders") for i in (2, 3))
    fits = len({x.type.rank, len(blocks), len(before), len(after)}) == 1
    if not fits or min(blocks) < 1 or (blocks[0], before[0], after[0]) != (1, 0, 0):
        n.bad(f"expected a block and borders of each axis, none of the batch, found {blocks}")
    return x, blocks[1:], before[1:], after[1:]


@openvino_layer("SpaceToBatch")
def blocks_to_batch(n: LayerNode) -> Result:
    return space_to_batch(n, *_borders(n))


@openvino_layer("BatchToSpace")
def blocks_of_batch(n: LayerNode) -> Result:
    return batch_to_space(n, *_borders(n))


# Colours


@openvino_layer("NV12toRGB", "NV12toBGR", "I420toRGB", "I420toBGR")
def colours(n: LayerNode) -> Result:
    """Pixels [N, rows, columns, 3] of brightness and of colours of half as many rows and columns.

    Factors: ITU-R BT.601.  A single input has the colours below the brightness.
    """
    is_nv12 = n.layer.kind.startswith("NV12")
    whole = n.input(0)
    dtype = whole.dtype
    batch, columns_ = whole.type.shape[0], whole.type.shape[2]
    if len(n.slots) > 1:
        y, rest = whole, [n.input(i) for i in range(1, len(n.slots))]
    else:
        third = n.builder.divided(n.layer.kind, whole.type.shape[1], 3, "the rows", n.loc)
        y, below = n.add(slicing.Split(1, (extents.product((third, 2)), third)), whole)
        rest = [below]
    rows = y.type.shape[1]
    half = tuple(n.builder.divided(n.layer.kind, d, 2, "a side", n.loc) for d in (rows, columns_))
    if len(rest) == 1:  # pairs of colours, or one colour below the other
        apart = (batch, *half, 2) if is_nv12 else (batch, 2, *half)
        rest = n.add(slicing.Split(3 if is_nv12 else 1, (1, 1)), n.reshape(rest[0], apart))
    u, v = rest

    def wide(part: Value) -> Value:
        apart = n.reshape(part.cast(f32), (batch, half[0], 1, half[1], 1, 1))
        full = n.expand(apart, (batch, half[0], 2, half[1], 2, 1))
        return n.reshape(full, (batch, rows, columns_, 1)) - 128.0

    light, blue, red = (y.cast(f32) - 16.0) * 1.164, wide(u), wide(v)
    parts = [light + 1.596 * red, light - 0.813 * red - 0.391 * blue, light + 2.018 * blue]
    parts = parts if n.layer.kind.endswith("RGB") else parts[::-1]
    pixels = fn.clip(n.add(slicing.Concat(3), *parts), 0, 255)
    return (pixels if dtype.is_float else n.add(ew.Round(), pixels)).cast(dtype)
