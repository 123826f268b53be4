"""Keras' convolutions and pools.  Tilesmith's operators have the channels as second axis."""

from __future__ import annotations

from collections.abc import Sequence

from tilesmith.frontend.common.windows import Geometry, add_bias, convolve
from tilesmith.frontend.keras.activations import activated
from tilesmith.frontend.keras.node import KerasNode, with_axis
from tilesmith.frontend.keras.registry import layer
from tilesmith.graph.nodes import Value
from tilesmith.ops import conv as cv
from tilesmith.ops import pool, slicing

_PADDING = ("valid", "same", "causal")


def geometry(n: KerasNode, x: Value, kernel: Sequence[int], strides: Sequence[int]) -> Geometry:
    """The windows of a layer over `x` [N, C, spatial...]."""
    rank = len(kernel)
    if x.type.rank != rank + 2:
        n.bad(f"expected images of {rank + 2} axes, found {x.type}")
    dilations = n.positive("dilation_rate", rank, 1)
    g = Geometry(x.type.shape[2:], tuple(kernel), tuple(strides), dilations, (0,) * (2 * rank))
    padding = n.option("padding", "valid")
    if padding not in _PADDING:
        n.bad(f"'padding': expected one of {', '.join(_PADDING)}, found {padding!r}")
    if padding == "same":
        g.pads = g.same_pads()
    if padding == "causal":
        g.pads = (g.reach[0] - 1, 0)
    return g


def filters(n: KerasNode, index: int, rank: int) -> Value:
    """Weight number `index` with the last two axes in front: from [kernel..., inputs, outputs] to
    [outputs, inputs, kernel...].  For transposed convolutions, inputs and outputs change places.
    """
    w = n.weight(index)
    if w.type.rank != rank + 2:
        n.bad(f"expected filters of {rank + 2} axes, found {w.type}")
    if n.major < 2 and n.is_first:  # with channels first, Keras 1 stores filters in this form
        return w
    return w.transpose(rank + 1, rank, *range(rank))


def _finished(n: KerasNode, y: Value, bias: int) -> Value:
    y = add_bias(n, y, n.weight(bias) if n.option("use_bias", True) else None)
    if n.kind.startswith("Separable") and n.is_first:
        return activated(n, y, n.option("activation", None))
    return activated(n, n.as_given(y), n.option("activation", None))


def rank_of(n: KerasNode) -> int:
    return int(next(c for c in n.kind if c in "123"))


@layer("Conv1D", "Conv2D", "Conv3D")
def convolution(n: KerasNode) -> Value:
    rank = rank_of(n)
    if n.option("quantization_config", None) or n.option("lora_rank", None):
        n.unsupported("quantised weights or LoRA; save the model without them")
    x, w = n.channels_first(n.input()), filters(n, 0, rank)
    g = geometry(n, x, n.shape(w)[2:], n.positive("strides", rank, 1))
    return _finished(n, convolve(n, x, w, g, n.option("groups", 1, int)), 1)


def depthwise(n: KerasNode, x: Value, rank: int) -> Value:
    """The convolution of each channel of `x`, [N, C, ...], with its own filters."""
    w = filters(n, 0, rank)
    factor, channels, *kernel = n.shape(w)
    w = n.reshape(w.transpose(1, 0, *range(2, rank + 2)), (channels * factor, 1, *kernel))
    g = geometry(n, x, kernel, n.positive("strides", rank, 1))
    return convolve(n, x, w, g, channels)


@layer("DepthwiseConv1D", "DepthwiseConv2D")
def depthwise_convolution(n: KerasNode) -> Value:
    return _finished(n, depthwise(n, n.channels_first(n.input()), rank_of(n)), 1)


@layer("SeparableConv1D", "SeparableConv2D")
def separable_convolution(n: KerasNode) -> Value:
    rank = rank_of(n)
    y = depthwise(n, n.channels_first(n.input()), rank)
    y = n.add(cv.Conv(), y, filters(n, 1, rank))
    return _finished(n, y, 2)


@layer("Conv1DTranspose", "Conv2DTranspose", "Conv3DTranspose")
def transposed_convolution(n: KerasNode) -> Value:
    rank = rank_of(n)
    x, w = n.channels_first(n.input()), n.weight(0)
    if w.type.rank != rank + 2:
        n.bad(f"expected filters of {rank + 2} axes, found {w.type}")
    w = w.transpose(rank + 1, rank, *range(rank))  # [kernel..., out, in] to [in, out, kernel...]
    g = geometry(n, x, n.shape(w)[2:], n.positive("strides", rank, 1))
    extra = n.option("output_padding", None)
    extra = None if extra is None else n.integers("output_padding", rank)
    same = n.option("padding", "valid") == "same"
    cuts: list[tuple[int, int]] = []
    for i, (r, s) in enumerate(zip(g.reach, g.strides)):
        # elements to cut off: the padding of the convolution whose transpose this is
        if extra is None:
            cut = r - s if same else min(r - s, 0)
        else:
            cut = (r // 2 * 2 if same else 0) - extra[i]
        cuts.append((max(cut, 0) // 2, cut - max(cut, 0) // 2))
    y = n.add(cv.ConvTranspose(g.strides, (), g.dilations), x, w)
    pads = (0, 0, *(-c[0] for c in cuts), 0, 0, *(-c[1] for c in cuts))
    return _finished(n, n.add(slicing.Pad(pads), y) if any(pads) else y, 1)


@layer(*(f"{k}Pooling{r}D" for k in ("Max", "Average") for r in (1, 2, 3)))
def pooling(n: KerasNode) -> Value:
    rank, x = rank_of(n), n.channels_first(n.input())
    size = n.positive("pool_size", rank, 2)
    strides = size if n.option("strides", None) is None else n.positive("strides", rank)
    g = geometry(n, x, size, strides)
    make = pool.MaxPool if n.kind.startswith("Max") else pool.AvgPool
    return n.as_given(n.add(make(g.kernel, g.strides, g.pads), x))


@layer(*(f"Global{k}Pooling{r}D" for k in ("Max", "Average") for r in (1, 2, 3)))
def global_pooling(n: KerasNode) -> Value:
    x, keep, mask = n.input(), bool(n.option("keepdims", False)), n.mask()
    axes = tuple(range(2, x.type.rank) if n.is_first else range(1, x.type.rank - 1))
    if n.kind.startswith("GlobalMax"):
        return x.max(axes, keepdims=keep)
    if mask is None or n.kind != "GlobalAveragePooling1D":
        return x.mean(axes, keepdims=keep)
    weights = with_axis(n, mask.cast(x.dtype), 1 if n.is_first else 2)
    return (x * weights).sum(axes, keepdims=keep) / weights.sum(axes, keepdims=keep)


@layer(*(f"Adaptive{k}Pooling{r}D" for k in ("Max", "Average") for r in (1, 2, 3)))
def adaptive_pooling(n: KerasNode) -> Value:
    """Pools with a fixed number of windows.

    For n elements and m windows, window i has the elements from floor(i n / m) to, but not
    including, ceil((i + 1) n / m).
    """
    rank, x = rank_of(n), n.channels_first(n.input())
    sizes = n.positive("output_size", rank)
    is_max = n.kind.startswith("AdaptiveMax")
    for axis, size in enumerate(sizes, 2):
        extent = n.extent(x, axis)
        parts = []
        for i in range(size):
            ends = i * extent // size, -(-(i + 1) * extent // size)
            part = n.add(slicing.Slice((ends[0],), (ends[1],), (axis,), (1,)), x)
            reduce = part.max if is_max else part.mean
            parts.append(reduce((axis,), keepdims=True))
        x = parts[0] if size == 1 else n.add(slicing.Concat(axis), *parts)
    return n.as_given(x)
