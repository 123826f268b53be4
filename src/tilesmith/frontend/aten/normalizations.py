"""Normalisations, and softmax."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TypeAlias

import numpy as np

from tilesmith.frontend.aten.node import AtenNode
from tilesmith.frontend.aten.registry import aten_op
from tilesmith.graph.nodes import Value
from tilesmith.ir import extents
from tilesmith.ir.dtypes import DType, f32, i64
from tilesmith.ir.types import Dim
from tilesmith.ops import norm
from tilesmith.ops.functions import rsqrt, where

_Softmax: TypeAlias = type[norm.Softmax] | type[norm.LogSoftmax]


def _softmax_kernel(
    n: AtenNode, self: Value, dim: int, half_to_float: bool, *, make: _Softmax
) -> Value:
    return _softmax(n, self, dim, f32 if half_to_float else None, make=make)


def _softmax(
    n: AtenNode, self: Value, dim: int, dtype: DType | None = None, *, make: _Softmax
) -> Value:
    x = n.floating(n.cast(self, dtype))
    if x.type.rank == 0:
        one = make is norm.Softmax
        return n.reshape(n.add(make(0), n.reshape(x, (1,))), ()) if one else x - x
    return n.add(make(n.axis(dim, x.type.rank, "dim")), x)


for _name, _make in (("softmax", norm.Softmax), ("log_softmax", norm.LogSoftmax)):
    aten_op(f"aten._{_name}.default")(partial(_softmax_kernel, make=_make))
    aten_op(f"aten.{_name}.int")(partial(_softmax, make=_make))


@aten_op("aten._safe_softmax.default")
def safe_softmax(n: AtenNode, self: Value, dim: int, dtype: DType | None = None) -> Value:
    """Softmax that gives zeros for a row of minus infinity, as in attention."""
    x = n.floating(n.cast(self, dtype))
    return n.add(norm.MaskedSoftmax(n.axis(dim, x.type.rank, "dim")), x)


def _filled(
    n: AtenNode, given: Value | None, number: float, dims: Sequence[Dim], dtype: DType
) -> Value:
    return n.full(number, dims, dtype) if given is None else given


def _wide(n: AtenNode, x: Value, *parameters: Value | None) -> Value:
    """`x` converted to the type of the layer's parameters.  In mixed precision only matrix
    products give 16-bit floats, so `x` may be narrower than the parameters.
    """
    types = [p.dtype for p in parameters if p is not None]
    return n.cast(x, types[0]) if types else x


@aten_op("aten.native_layer_norm.default")
def native_layer_norm(
    n: AtenNode, input: Value, normalized_shape: Sequence[Dim], weight: Value | None,
    bias: Value | None, eps: float,
) -> tuple[Value, Value, Value]:  # fmt: skip
    """The result, the mean and the reciprocal deviation."""
    dims = tuple(normalized_shape)
    wide = _wide(n, input, weight, bias)
    scale = _filled(n, weight, 1, dims, wide.dtype)
    operands = (wide, scale) if bias is None else (wide, scale, bias)
    axis = input.type.rank - len(dims)
    y = n.cast(n.add(norm.LayerNorm(axis, eps), *operands), input.dtype)
    mean, inverse = _statistics(n, input, tuple(range(axis, input.type.rank)), eps)
    return y, mean, inverse


def _statistics(n: AtenNode, x: Value, axes: tuple[int, ...], eps: float) -> tuple[Value, Value]:
    """The mean and the reciprocal deviation over `axes`, which stay as axes of extent 1."""
    mean, _, variance = norm.moments(norm.widened(x), axes)
    return mean, rsqrt(variance + eps)


@aten_op("aten.layer_norm.default")
def layer_norm(
    n: AtenNode, input: Value, normalized_shape: Sequence[Dim], weight: Value | None = None,
    bias: Value | None = None, eps: float = 1e-5, cudnn_enable: bool = True,
) -> Value:  # fmt: skip
    return native_layer_norm(n, input, normalized_shape, weight, bias, eps)[0]


@aten_op("aten.rms_norm.default", "aten._fused_rms_norm.default")
def rms_norm(
    n: AtenNode, input: Value, normalized_shape: Sequence[Dim], weight: Value | None = None,
    eps: float | None = None,
) -> Value:  # fmt: skip
    wide = _wide(n, input, weight)
    scale = _filled(n, weight, 1, tuple(normalized_shape), wide.dtype)
    if eps is None:
        eps = float(np.finfo(np.float32).eps if input.dtype.bits < 64 else np.finfo(float).eps)
    y = n.add(norm.RmsNorm(input.type.rank - len(normalized_shape), eps), wide, scale)
    return n.cast(y, input.dtype)


@aten_op("aten.native_group_norm.default")
def native_group_norm(
    n: AtenNode, input: Value, weight: Value | None, bias: Value | None, N: Dim, C: Dim, HxW: Dim,
    group: int, eps: float,
) -> tuple[Value, Value, Value]:  # fmt: skip
    """The result, and mean and reciprocal deviation [N, group]."""
    y = group_norm(n, input, group, weight, bias, eps)
    rows = n.reshape(input, (N, group, extents.product((C // group, HxW))))
    mean, inverse = _statistics(n, rows, (2,), eps)
    return y, n.reshape(mean, (N, group)), n.reshape(inverse, (N, group))


@aten_op("aten.group_norm.default")
def group_norm(
    n: AtenNode, input: Value, num_groups: int, weight: Value | None = None,
    bias: Value | None = None, eps: float = 1e-5, cudnn_enabled: bool = True,
) -> Value:  # fmt: skip
    channels = input.type.shape[1:2]
    wide = _wide(n, input, weight, bias)
    scale = _filled(n, weight, 1, channels, wide.dtype)
    offset = _filled(n, bias, 0, channels, wide.dtype)
    return n.cast(n.add(norm.GroupNorm(num_groups, eps), wide, scale, offset), input.dtype)


@aten_op("aten._native_batch_norm_legit_no_training.default")
def batch_norm_of_statistics(
    n: AtenNode, input: Value, weight: Value | None, bias: Value | None, running_mean: Value,
    running_var: Value, momentum: float, eps: float,
) -> tuple[Value, Value, Value]:  # fmt: skip
    channels = input.type.shape[1:2]
    scale = _filled(n, weight, 1, channels, running_mean.dtype)
    offset = _filled(n, bias, 0, channels, running_mean.dtype)
    y = n.add(norm.BatchNorm(eps), input, scale, offset, running_mean, running_var)
    empty = n.const(np.zeros(0, running_mean.dtype.numpy))
    return y, empty, empty


@aten_op("aten._native_batch_norm_legit.no_stats")
def batch_norm_without_statistics(
    n: AtenNode,
    input: Value,
    weight: Value | None,
    bias: Value | None,
    training: bool,
    momentum: float,
    eps: float,
) -> tuple[Value, Value, Value]:
    """The input normalised by its own statistics, and each channel's mean and reciprocal
    deviation.
    """
    return _of_batch(n, input, weight, bias, eps)[:3]


def _of_batch(
    n: AtenNode, x: Value, weight: Value | None, bias: Value | None, eps: float
) -> tuple[Value, Value, Value, Value]:
    """The normalised result of a batch, and the batch's mean, reciprocal deviation and variance."""
    channels = x.type.shape[1:2]
    axes = (0, *range(2, x.type.rank))
    wide = norm.widened(x)
    mean, _, variance = norm.moments(wide, axes)
    mean, variance = n.reshape(mean, channels), n.reshape(variance, channels)
    scale = _filled(n, weight, 1, channels, wide.dtype)
    offset = _filled(n, bias, 0, channels, wide.dtype)
    y = n.add(
        norm.BatchNorm(eps),
        x,
        n.cast(scale, wide.dtype),
        n.cast(offset, wide.dtype),
        mean,
        variance,
    )
    inverse = rsqrt(variance + eps)
    return y, mean, inverse, variance


@aten_op("aten._native_batch_norm_legit_functional.default")
def batch_norm_functional(
    n: AtenNode, input: Value, weight: Value | None, bias: Value | None, running_mean: Value,
    running_var: Value, training: bool, momentum: float, eps: float,
) -> tuple[Value, ...]:  # fmt: skip
    """The result, the batch's mean and reciprocal deviation, and the updated running statistics."""
    if not training:
        results = batch_norm_of_statistics(
            n, input, weight, bias, running_mean, running_var, momentum, eps
        )
        return (*results, running_mean, running_var)
    y, mean, inverse, variance = _of_batch(n, input, weight, bias, eps)
    count = extents.product((input.type.shape[0], *input.type.shape[2:]))
    # the running variance is divided by count - 1
    rest = extents.larger(extents.difference(count, 1), 1)
    factor = n.tensor(count, variance.dtype) / rest
    unbiased = variance * factor
    is_empty = None
    if not extents.is_at_most(1, count):  # an empty batch leaves the statistics unchanged
        is_empty = n.tensor(count, i64).equals(n.tensor(0, i64))
    after = []
    for old, new in ((running_mean, mean), (running_var, unbiased)):
        moved = old * (1 - momentum) + n.cast(new * momentum, old.dtype)
        after.append(moved if is_empty is None else where(is_empty, old, moved))
    return (y, mean, inverse, *after)


@aten_op("aten.batch_norm.default")
def batch_norm(
    n: AtenNode,
    input: Value,
    weight: Value | None,
    bias: Value | None,
    running_mean: Value | None,
    running_var: Value | None,
    training: bool,
    momentum: float,
    eps: float,
    cudnn_enabled: bool = True,
) -> Value:
    if running_mean is None or running_var is None:
        return _of_batch(n, input, weight, bias, eps)[0]
    if training:
        n.unsupported("it updates its running statistics; call .eval() on the module")
    return batch_norm_of_statistics(
        n, input, weight, bias, running_mean, running_var, momentum, eps
    )[0]
