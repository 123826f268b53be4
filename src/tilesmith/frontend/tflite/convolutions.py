"""TFLite's convolutions.

Images are [N, spatial..., C], filters [O, spatial..., I].  Our operators have the channels
second.  The transposes around each of them become layouts later.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from tilesmith.frontend.common.slots import Result
from tilesmith.frontend.common.windows import (
    Geometry,
    channels_last,
    channels_second,
    convolve,
    spread_to,
)
from tilesmith.frontend.tflite.activations import activate
from tilesmith.frontend.tflite.node import TfliteNode
from tilesmith.frontend.tflite.registry import tflite_op
from tilesmith.graph.nodes import Value
from tilesmith.ir.types import Dim

_PADDING = ("SAME", "VALID")
_AXES_2D, _AXES_3D = "hw", "dhw"


def geometry(
    n: TfliteNode, dims: tuple[Dim, ...], kernel: tuple[int, ...], dilated: bool = True
) -> Geometry:
    """The windows that an operator's options describe over spatial extents `dims`.

    dilated: whether the operator has dilations.
    """
    axes = _AXES_2D if len(dims) == 2 else _AXES_3D
    strides = tuple(_step(n, f"stride_{a}") for a in axes)
    dilations = tuple(_step(n, f"dilation_{a}_factor") if dilated else 1 for a in axes)
    g = Geometry(dims, kernel, strides, dilations, (0,) * (2 * len(axes)))
    if n.choice("padding", _PADDING) == "SAME":
        g.pads = g.same_pads()
    return g


def _step(n: TfliteNode, name: str) -> int:
    step = n.option(name)
    return step if step >= 1 else n.bad(f"option {name!r}: expected at least 1, found {step}")


def check_floats(n: TfliteNode, *values: Value) -> None:
    """Raises UnsupportedError unless all values are f32."""
    for v in values:
        if v.dtype.name != "f32":
            n.unsupported(f"operands {', '.join(str(v.type) for v in values)}; f32 is supported")


def check_images(n: TfliteNode, x: Value, w: Value, rank: int) -> None:
    """Raises ModelError unless images and filters have `rank` axes."""
    if x.type.rank != rank or w.type.rank != rank:
        n.bad(f"expected images and filters of {rank} axes, found {x.type} and {w.type}")


def unchanged(x: Value) -> Value:
    """x itself."""
    return x


def plain(n: TfliteNode, x: Value, w: Value, centre: Callable[[Value], Value] = unchanged) -> Value:
    """CONV_2D without bias and activation; x [N, H, W, C], w [O, H, W, C / groups].

    centre: subtracts the zero point from the images, [N, C, H, W].
    """
    check_images(n, x, w, 4)
    channels, own = n.extent(x, 3), n.extent(w, 3)
    if own < 1 or channels % own:
        n.bad(f"expected channels that are a multiple of the filters' {own}, found {channels}")
    w = channels_second(w)
    g = geometry(n, x.type.shape[1:3], n.shape(w)[2:])
    return channels_last(convolve(n, centre(channels_second(x)), w, g, channels // own))


def depthwise(
    n: TfliteNode, x: Value, w: Value, centre: Callable[[Value], Value] = unchanged
) -> Value:
    """DEPTHWISE_CONV_2D without bias and activation; x [N, H, W, C], w [1, H, W, C * factor].

    centre: as for `plain`.
    """
    check_images(n, x, w, 4)
    channels, filters = n.extent(x, 3), n.extent(w, 3)
    if n.extent(w, 0) != 1 or channels < 1 or filters % channels:
        n.bad(f"expected filters [1, H, W, multiple of {channels}], found {w.type}")
    w = w.transpose(3, 0, 1, 2)
    g = geometry(n, x.type.shape[1:3], n.shape(w)[2:])
    return channels_last(convolve(n, centre(channels_second(x)), w, g, channels))


def volume(n: TfliteNode, x: Value, w: Value) -> Value:
    """CONV_3D without bias and activation; x [N, D, H, W, C], w [D, H, W, C, O]."""
    check_images(n, x, w, 5)
    w = w.transpose(4, 3, 0, 1, 2)
    g = geometry(n, x.type.shape[1:4], n.shape(w)[2:])
    return channels_last(convolve(n, channels_second(x), w, g))


def transposed(n: TfliteNode, x: Value, w: Value, shape: Value, dilated: bool = False) -> Value:
    """A transposed convolution without bias and activation; x [N, spatial..., C].

    w: filters [C, O, spatial...].
    shape: the shape of the result; determines how much of each border is cut off.
    """
    dims = n.extents(shape, "the shape of the result")
    if len(dims) != x.type.rank:
        n.bad(f"the shape of the result: expected {x.type.rank} extents, found {len(dims)}")
    g = geometry(n, dims[1:-1], n.shape(w)[2:], dilated)
    is_same = n.choice("padding", _PADDING) == "SAME"
    return channels_last(spread_to(n, channels_second(x), w, g, is_same))


def finished(n: TfliteNode, y: Value, bias: Value | None) -> Value:
    """Add a bias for each channel to `y` [..., C], then apply the operator's activation."""
    if bias is not None:
        if bias.type.rank != 1:
            n.bad(f"the bias: expected one number for each channel, found {bias.type}")
        y = y + bias
    return activate(n, y)


def _convolution(n: TfliteNode, make: Callable[[TfliteNode, Value, Value], Value]) -> Result:
    x, w = n.input(0), n.input(1)
    check_floats(n, x, w)
    return finished(n, make(n, x, w), n.optional(2))


tflite_op("CONV_2D")(partial(_convolution, make=plain))
tflite_op("DEPTHWISE_CONV_2D")(partial(_convolution, make=depthwise))
tflite_op("CONV_3D")(partial(_convolution, make=volume))


@tflite_op("TRANSPOSE_CONV")
def transpose_conv(n: TfliteNode) -> Result:
    shape, w, x = (n.input(i) for i in range(3))
    check_floats(n, x, w)
    check_images(n, x, w, 4)
    return finished(n, transposed(n, x, w.transpose(3, 0, 1, 2), shape), n.optional(3))


@tflite_op("CONV_3D_TRANSPOSE")
def conv_3d_transpose(n: TfliteNode) -> Result:
    shape, w, x = (n.input(i) for i in range(3))
    check_floats(n, x, w)
    check_images(n, x, w, 5)
    y = transposed(n, x, w.transpose(4, 3, 0, 1, 2), shape, dilated=True)
    return finished(n, y, n.optional(3))
