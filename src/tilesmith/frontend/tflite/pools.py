"""TFLite's pools of floats and its normalisation over neighbouring channels."""

from __future__ import annotations

from tilesmith.frontend.common.slots import Result
from tilesmith.frontend.common.windows import Geometry, channels_last, channels_second
from tilesmith.frontend.tflite.activations import activate
from tilesmith.frontend.tflite.convolutions import check_floats, geometry
from tilesmith.frontend.tflite.node import TfliteNode
from tilesmith.frontend.tflite.registry import tflite_op
from tilesmith.graph.nodes import Value
from tilesmith.ir import extents
from tilesmith.ops import functions as fn
from tilesmith.ops import pool

_LARGEST = 1 << 20
"""Upper bound on the radius.  A larger radius means that the model is damaged."""


def windows(n: TfliteNode, x: Value) -> Geometry:
    """The windows of a pool over images [N, H, W, C]."""
    if x.type.rank != 4:
        n.bad(f"expected images of 4 axes, found {x.type}")
    kernel = n.option("filter_height"), n.option("filter_width")
    if min(kernel) < 1:
        n.bad(f"expected a window of at least 1 x 1, found {kernel[0]} x {kernel[1]}")
    return geometry(n, x.type.shape[1:3], kernel, dilated=False)


def maxima(n: TfliteNode, x: Value) -> Value:
    """MAX_POOL_2D without its activation."""
    g = windows(n, x)
    return channels_last(n.add(pool.MaxPool(g.kernel, g.strides, g.pads), channels_second(x)))


def _means(n: TfliteNode, x: Value) -> Value:
    """Means of windows, in which padding does not count."""
    g = windows(n, x)
    return channels_last(n.add(pool.AvgPool(g.kernel, g.strides, g.pads), channels_second(x)))


@tflite_op("MAX_POOL_2D")
def max_pool_2d(n: TfliteNode) -> Result:
    check_floats(n, n.input(0))
    return activate(n, maxima(n, n.input(0)))


@tflite_op("AVERAGE_POOL_2D")
def average_pool_2d(n: TfliteNode) -> Result:
    check_floats(n, n.input(0))
    return activate(n, _means(n, n.input(0)))


@tflite_op("L2_POOL_2D")
def l2_pool_2d(n: TfliteNode) -> Result:
    x = n.input(0)
    check_floats(n, x)
    return activate(n, fn.sqrt(_means(n, x * x)))


@tflite_op("LOCAL_RESPONSE_NORMALIZATION")
def local_response_normalization(n: TfliteNode) -> Result:
    x, radius = n.input(0), n.option("radius")
    check_floats(n, x)
    if x.type.rank != 4 or not 0 <= radius < _LARGEST:
        n.bad(f"expected images of 4 axes and a radius of at least 0, found {x.type} and {radius}")
    bias, beta = n.option("bias"), n.option("beta")
    if radius == 0:
        return x * bias**-beta
    # TFLite's kernels leave out the last channel of the window: `radius` before, one less after.
    batch, h, w, channels = x.type.shape
    squares = n.reshape(x * x, (batch, 1, extents.product((h, w)), channels))
    window = pool.AvgPool(
        (1, 2 * radius), (1, 1), (0, radius, 0, radius - 1), count_include_pad=True
    )
    sums = n.reshape(n.add(window, squares), x.type.shape) * (2 * radius * n.option("alpha"))
    return x * (sums + bias) ** -beta
