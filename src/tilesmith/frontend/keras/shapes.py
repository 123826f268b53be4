"""Keras' layers that change shapes and resample images, and layers that prepare inputs."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tilesmith.frontend.common.repeating import tiled
from tilesmith.frontend.keras.convolutions import rank_of
from tilesmith.frontend.keras.node import KerasNode, Tensor, with_axis
from tilesmith.frontend.keras.registry import layer
from tilesmith.graph.nodes import Value
from tilesmith.ir import extents
from tilesmith.ir.dtypes import i32, i64
from tilesmith.ir.expr import as_expr
from tilesmith.ir.symbols import as_dim
from tilesmith.ir.types import Dim, same_dim
from tilesmith.ops import functions as fn
from tilesmith.ops import gather, slicing
from tilesmith.ops import resize as rs


def reshaped(n: KerasNode, x: Value, dims: Sequence[Dim]) -> Value:
    """`x` reshaped to `dims`.  One of these may be -1; it follows from the others."""
    dims = list(dims)
    open_ = [i for i, d in enumerate(dims) if same_dim(d, -1)]
    for place in open_[:1]:
        whole, part = extents.reduced(
            extents.product(x.type.shape), extents.product(dims[:place] + dims[place + 1 :])
        )
        if same_dim(part, 0):
            n.bad("expected a shape with elements")
        dims[place] = as_dim(as_expr(whole) // part)
    return n.reshape(x, dims)


@layer("Reshape")
def reshape(n: KerasNode) -> Value:
    x = n.input()
    return reshaped(n, x, (x.type.shape[0], *n.option("target_shape", kind=list)))


@layer("Flatten")
def flatten(n: KerasNode) -> Value:
    x = n.input()
    if n.is_first and x.type.rank > 2:
        x = x.transpose(0, *range(2, x.type.rank), 1)
    return n.reshape(x, (x.type.shape[0], extents.product(x.type.shape[1:])))


@layer("Permute")
def permute(n: KerasNode) -> Value:
    x = n.input()
    return x.transpose(*n.axes((0, *n.integers("dims", x.type.rank - 1)), x.type.rank))


@layer("RepeatVector")
def repeat_vector(n: KerasNode) -> Value:
    rows, width = n.input().type.shape
    return n.expand(with_axis(n, n.input(), 1), (rows, n.positive("n", 1)[0], width))


def _borders(n: KerasNode, name: str) -> tuple[list[int], list[int]]:
    """The numbers of elements before and after each spatial axis, from option `name`."""
    rank, entry = rank_of(n), n.option(name)
    pairs = [entry] * rank if isinstance(entry, int) else list(entry)
    if rank == 1 and len(pairs) == 2:
        pairs = [pairs]
    both = [[p, p] if isinstance(p, int) else list(p) for p in pairs]
    if len(both) != rank or any(len(p) != 2 or min(p) < 0 for p in both):
        n.bad(f"{name!r}: expected {rank} pairs of numbers, found {entry!r}")
    return [p[0] for p in both], [p[1] for p in both]


@layer(*(f"ZeroPadding{r}D" for r in (1, 2, 3)))
def zero_padding(n: KerasNode) -> Value:
    before, after = _borders(n, "padding")
    pads = (0, 0, *before, 0, 0, *after)
    return n.as_given(n.add(slicing.Pad(pads), n.channels_first(n.input())))


@layer(*(f"Cropping{r}D" for r in (1, 2, 3)))
def cropping(n: KerasNode) -> Value:
    before, after = _borders(n, "cropping")
    pads = (0, 0, *(-b for b in before), 0, 0, *(-a for a in after))
    return n.as_given(n.add(slicing.Pad(pads), n.channels_first(n.input())))


@layer(*(f"UpSampling{r}D" for r in (1, 2, 3)))
def up_sampling(n: KerasNode) -> Value:
    rank, x = rank_of(n), n.channels_first(n.input())
    factors, how = n.positive("size", rank, 2), n.option("interpolation", "nearest")
    if how == "nearest":
        dims = x.type.shape
        apart = [d for i, d in enumerate(dims[2:]) for d in (d, factors[i])]
        ones = [d for d in dims[2:] for d in (d, 1)]
        y = n.expand(n.reshape(x, (*dims[:2], *ones)), (*dims[:2], *apart))
        sizes = [extents.product((d, f)) for d, f in zip(dims[2:], factors)]
        return n.as_given(n.reshape(y, (*dims[:2], *sizes)))
    sizes = [extents.product((d, f)) for d, f in zip(x.type.shape[2:], factors)]
    return n.as_given(resized(n, x, sizes, how))


def resized(n: KerasNode, x: Value, sizes: Sequence[Dim], how: str, smooth: bool = False) -> Value:
    """Images `x` [N, C, H, W] with new `sizes`.

    how: Keras' name of the interpolation.
    smooth: whether the filter is widened where images shrink (antialiasing).
    """
    modes = {"bilinear": "linear", "bicubic": "cubic", "nearest": "nearest"}
    if how not in modes:
        n.unsupported(f"interpolation {how!r}; {', '.join(modes)} are supported")
    near = how == "nearest"
    op = rs.Resize(
        (*x.type.shape[:2], *sizes),
        (),
        modes[how],
        "tf_half_pixel_for_nn" if near else "half_pixel",
        "floor" if near else "round_prefer_floor",
        -0.5 if n.major < 3 else -0.75,
        exclude_outside=how == "bicubic" and n.major < 3,
        antialias=smooth and not near,
    )
    return n.add(op, x)


@layer("Resizing")
def resizing(n: KerasNode) -> Value:
    x = n.input()
    x = n.channels_first(x if x.dtype.is_float else x.cast(n.computes))
    sizes = n.positive("height", 1)[0], n.positive("width", 1)[0]
    if n.option("pad_to_aspect_ratio", False):
        n.unsupported("pad_to_aspect_ratio")
    if n.option("crop_to_aspect_ratio", False):
        x = _cropped(n, x, sizes)
    y = resized(
        n, x, sizes, n.option("interpolation", "bilinear"), bool(n.option("antialias", False))
    )
    return n.as_given(y)


def _cropped(n: KerasNode, x: Value, sizes: tuple[int, int]) -> Value:
    """Crop images around their centres to the largest part with the aspect ratio of `sizes`."""
    own = n.extent(x, 2), n.extent(x, 3)
    part = min(own[0], own[1] * sizes[0] // sizes[1]), min(own[1], own[0] * sizes[1] // sizes[0])
    return _centre(n, x, part)


def _centre(n: KerasNode, x: Value, sizes: tuple[int, int]) -> Value:
    starts = tuple((n.extent(x, a) - s) // 2 for a, s in zip((2, 3), sizes))
    ends = tuple(a + s for a, s in zip(starts, sizes))
    return n.add(slicing.Slice(starts, ends, (2, 3), (1, 1)), x)


@layer("CenterCrop")
def center_crop(n: KerasNode) -> Value:
    x, sizes = n.input().cast(n.computes), (n.positive("height", 1)[0], n.positive("width", 1)[0])
    x = n.channels_first(x)
    if n.extent(x, 2) >= sizes[0] and n.extent(x, 3) >= sizes[1]:
        return n.as_given(_centre(n, x, sizes))
    return n.as_given(resized(n, _cropped(n, x, sizes), sizes, "bilinear"))


@layer("Rescaling", masked=True)
def rescaling(n: KerasNode) -> Value:
    x = n.input().cast(n.computes)
    scale, offset = (n.const(n.option(k, d), x.dtype) for k, d in (("scale", 1), ("offset", 0)))
    return x * scale + offset


@layer("Masking")
def masking(n: KerasNode) -> Tensor:
    x, last = n.input(), n.input().type.rank - 1
    counts = x.differs(n.option("mask_value", 0.0, float)).cast(i32).max((last,)) > 0
    return Tensor(fn.where(with_axis(n, counts, -1), x, 0.0), counts)


@layer("Discretization")
def discretization(n: KerasNode) -> Value:
    limits = n.option("bin_boundaries", None)
    if not isinstance(limits, list) or not all(isinstance(v, (int, float)) for v in limits):
        n.unsupported("boundaries that are not in the configuration")
    x = n.input()
    x = x if x.dtype.is_float else x.cast(n.computes)
    above = with_axis(n, x, -1) >= n.const(limits, x.dtype)
    entry = above.cast(i64).sum((x.type.rank,))
    return _encoded(n, entry, len(limits) + 1, n.option("output_mode", "int"))


@layer("CategoryEncoding")
def category_encoding(n: KerasNode) -> Value:
    weights = n.argument("count_weights", 1, None)
    mode = n.option("output_mode", "multi_hot")
    return _encoded(n, n.input().cast(i64), n.positive("num_tokens", 1)[0], mode, weights)


def _encoded(
    n: KerasNode, entry: Value, count: int, mode: str, weights: Value | None = None
) -> Value:
    """Categories as `mode` says: as numbers, or encoded along an axis of `count` elements."""
    if mode == "int":
        return entry
    if mode not in ("one_hot", "multi_hot", "count"):
        n.unsupported(f"output_mode {mode!r}")
    to = n.computes
    zero_one = n.const(np.array([0, 1]), to)
    if mode == "one_hot" and entry.type.rank > 1 and same_dim(entry.type.shape[-1], 1):
        entry = n.reshape(entry, entry.type.shape[:-1])
    hot = n.add(gather.OneHot(count), entry, zero_one)
    if mode == "one_hot" or hot.type.rank == 1:
        return hot
    if weights is not None:
        hot = hot * with_axis(n, weights.cast(to), -1)
    axis = (hot.type.rank - 2,)
    return hot.sum(axis) if mode == "count" else hot.max(axis)


def repeated(n: KerasNode, x: Value, repeats: Sequence[int]) -> Value:
    """`x` tiled along each axis; missing axes are added in front."""
    rank = max(len(repeats), x.type.rank)
    x = n.reshape(x, (*[1] * (rank - x.type.rank), *x.type.shape))
    return tiled(n, x, (*[1] * (rank - len(repeats)), *repeats))
