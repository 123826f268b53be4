"""Keras' normalisations, in their inference form.  Sums and moments are f32 at least."""

from __future__ import annotations

from collections.abc import Sequence

from tilesmith.frontend.keras.node import KerasNode
from tilesmith.frontend.keras.registry import layer
from tilesmith.graph.nodes import Value
from tilesmith.ir.dtypes import f32
from tilesmith.ops import functions as fn
from tilesmith.ops import norm


def wide(x: Value) -> Value:
    """`x` in f32 at least."""
    return x.cast(f32) if x.dtype.bits < 32 or not x.dtype.is_float else x


def axes_of(n: KerasNode, rank: int, default: object = -1) -> tuple[int, ...]:
    """The layer's axes in order."""
    axis = n.option("axis", default)
    return tuple(sorted(n.axes((axis,) if isinstance(axis, int) else tuple(axis), rank)))


def _along(n: KerasNode, x: Value, v: Value | None, axes: Sequence[int]) -> Value | None:
    """A parameter with one axis for each of `axes` of `x`, reshaped to broadcast with `x`."""
    if v is None:
        return None
    dims = [d if i in axes else 1 for i, d in enumerate(x.type.shape)]
    return n.reshape(v, dims)


def _affine(x: Value, scale: Value | None, offset: Value | None) -> Value:
    x = x if scale is None else x * scale
    return x if offset is None else x + offset


@layer("BatchNormalization", masked=True)
def batch_normalization(n: KerasNode) -> Value:
    x = wide(n.input())
    (axis,) = axes_of(n, x.type.rank)
    scale, center = bool(n.option("scale", True)), bool(n.option("center", True))
    gamma, beta, mean, variance = n.optional(scale, center, True, True, to=x.dtype)
    assert mean is not None and variance is not None
    one, zero = (n.expand(n.const(v, x.dtype), mean.type.shape) for v in (1, 0))
    order = (0, axis, *(a for a in range(1, x.type.rank) if a != axis))
    if axis == 0 or n.shape(mean) != (n.extent(x, axis),):
        n.bad(f"expected one mean per channel of axis {axis} above 0, found {mean.type}")
    op = norm.BatchNorm(float(n.option("epsilon", 1e-3)))
    y = n.add(op, x.transpose(*order), gamma or one, beta or zero, mean, variance)
    back = sorted(range(x.type.rank), key=order.__getitem__)
    return y.transpose(*back).cast(n.computes)


@layer("LayerNormalization", masked=True)
def layer_normalization(n: KerasNode) -> Value:
    x = wide(n.input())
    axes, epsilon = axes_of(n, x.type.rank), float(n.option("epsilon", 1e-3))
    scale, center = bool(n.option("scale", True)), bool(n.option("center", True))
    rms = bool(n.option("rms_scaling", False))
    gamma, beta = n.optional(scale or rms, center and not rms, to=x.dtype)
    if axes == tuple(range(axes[0], x.type.rank)) and not rms:
        one = n.expand(n.const(1, x.dtype), x.type.shape[axes[0] :])
        operands = [gamma or one] if beta is None else [gamma or one, beta]
        return n.add(norm.LayerNorm(axes[0], epsilon), x, *operands).cast(n.computes)
    centred = x if rms else x - x.mean(axes, keepdims=True)
    spread = x - x.mean(axes, keepdims=True)
    y = centred * fn.rsqrt((spread * spread).mean(axes, keepdims=True) + epsilon)
    return _affine(y, *(_along(n, x, v, axes) for v in (gamma, beta))).cast(n.computes)


@layer("RMSNormalization", masked=True)
def rms_normalization(n: KerasNode) -> Value:
    x = wide(n.input())
    axes, epsilon = axes_of(n, x.type.rank), float(n.option("epsilon", 1e-6))
    y = x * fn.rsqrt((x * x).mean(axes, keepdims=True) + epsilon)
    return _affine(y, _along(n, x, n.weight(0, x.dtype), axes), None).cast(n.computes)


@layer("GroupNormalization", masked=True)
def group_normalization(n: KerasNode) -> Value:
    x, dims = wide(n.input()), n.input().type.shape
    (axis,) = axes_of(n, x.type.rank)
    channels, groups = n.extent(x, axis), n.option("groups", 32, int)
    groups = channels if groups == -1 else groups
    if groups < 1 or channels % groups:
        n.bad(f"'groups': expected a divisor of {channels} channels, found {groups}")
    scale, center = bool(n.option("scale", True)), bool(n.option("center", True))
    gamma, beta = n.optional(scale, center, to=x.dtype)
    parts = n.reshape(x, (*dims[:axis], groups, channels // groups, *dims[axis + 1 :]))
    axes = tuple(a for a in range(1, x.type.rank + 1) if a != axis)
    centred = parts - parts.mean(axes, keepdims=True)
    variance = (centred * centred).mean(axes, keepdims=True)
    y = centred * fn.rsqrt(variance + float(n.option("epsilon", 1e-3)))
    y = n.reshape(y, dims)
    return _affine(y, *(_along(n, x, v, (axis,)) for v in (gamma, beta))).cast(n.computes)


@layer("UnitNormalization", masked=True)
def unit_normalization(n: KerasNode) -> Value:
    return unit(n.input(), axes_of(n, n.input().type.rank))


def unit(x: Value, axes: Sequence[int]) -> Value:
    """`x` divided by its Euclidean norm along `axes`."""
    return x * fn.rsqrt(fn.maximum((x * x).sum(axes, keepdims=True), 1e-12))


@layer("Normalization", masked=True)
def normalization(n: KerasNode) -> Value:
    x = n.input().cast(n.computes)
    axis = n.option("axis", -1)
    axes = () if axis is None else axes_of(n, x.type.rank)
    mean, variance = n.option("mean", None), n.option("variance", None)
    if mean is None or variance is None:
        mean, variance = n.weight(0), n.weight(1)
    else:
        mean, variance = n.const(mean, x.dtype), n.const(variance, x.dtype)
    mean, variance = (
        n.expand(v, [x.type.shape[a] for a in axes]) if v.type.rank < len(axes) else v
        for v in (mean, variance)
    )
    mean, variance = (
        n.reshape(v, ()) if not axes else _along(n, x, v, axes) for v in (mean, variance)
    )
    assert mean is not None and variance is not None
    deviation = fn.maximum(fn.sqrt(variance), 1e-7)
    return x * deviation + mean if n.option("invert", False) else (x - mean) / deviation
