"""Normalisations, all composite: means and variances are reductions, the rest is elementwise.

Formulas follow the ONNX operator specification, so that results agree with models trained
elsewhere.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from tilesmith.ir.types import Dim

from . import rules
from .base import GraphBuilder, Op
from .functions import exp, log, maximum, reciprocal, sqrt, where
from .gather import OneHot
from .pool import AvgPool
from .reduce import ArgMax, ReduceL1, ReduceL2


def widened(x: Any) -> Any:
    """`x` in the type in which sums of `x` are computed: f32 for 16-bit floats."""
    return x.cast(rules.accumulator(x.type.dtype))


def _per_channel(v: Any, rank: int) -> Any:
    """A vector [C] as [C, 1, ...], so that it broadcasts over the spatial axes of [N, C, ...]."""
    if v.type.rank != 1:
        rules.reject("normalization", "a vector per channel", v.type)
    return v if rank == 2 else v.reshape(*v.type.shape, *[1] * (rank - 2))


def moments(x: Any, axes: tuple[int, ...]) -> tuple[Any, Any, Any]:
    """The mean, x minus the mean, and the variance, over `axes`, which stay with extent 1."""
    mean = x.mean(axes, keepdims=True)
    centred = x - mean
    return mean, centred, (centred * centred).mean(axes, keepdims=True)


def _inverse_deviation(variance: Any, epsilon: float) -> Any:
    return reciprocal(sqrt(variance + epsilon))


@dataclass(frozen=True)
class Softmax(Op):
    """exp(x) / sum(exp(x)) along `axis`, shifted by the maximum so that it does not overflow.

    The sum is at least 1, so one reciprocal per row is safe.  It is far cheaper than a division per
    element.
    """

    axis: int = -1

    def decompose(self, b: GraphBuilder, *inputs: Any) -> Any:
        x = rules.only(self.name, inputs)
        axes = (rules.normalize_axis(self.name, self.axis, x.type.rank),)
        e = exp(x - x.max(axes, keepdims=True))
        return e * reciprocal(e.sum(axes, keepdims=True))

    def reference(self, *inputs: np.ndarray) -> np.ndarray:
        x = rules.exact(inputs[0])
        e = np.exp(x - x.max(self.axis, keepdims=True, initial=-np.inf))
        return (e / e.sum(self.axis, keepdims=True)).astype(inputs[0].dtype)


@dataclass(frozen=True)
class MaskedSoftmax(Op):
    """Softmax along `axis` with zeros for a row that is masked out entirely: all its elements are
    minus infinity.  The formula of softmax would give NaN.
    """

    axis: int = -1

    def decompose(self, b: GraphBuilder, *inputs: Any) -> Any:
        x = rules.only(self.name, inputs)
        axes = (rules.normalize_axis(self.name, self.axis, x.type.rank),)
        highest = x.max(axes, keepdims=True)
        finite = maximum(highest, -x.type.dtype.largest)
        e = exp(x - finite)  # exp(-inf - finite) is 0
        total = e.sum(axes, keepdims=True)
        divisor = maximum(total, 1)  # only a row of -inf has a sum below 1
        return e * reciprocal(divisor)

    def reference(self, *inputs: np.ndarray) -> np.ndarray:
        x = rules.exact(inputs[0])
        highest = x.max(self.axis, keepdims=True, initial=-np.finfo(x.dtype).max)
        e = np.exp(x - highest)
        total = e.sum(self.axis, keepdims=True)
        return (e / np.maximum(total, 1)).astype(inputs[0].dtype)


@dataclass(frozen=True)
class LogSoftmax(Op):
    """log(softmax(x)) along `axis`."""

    axis: int = -1

    def decompose(self, b: GraphBuilder, *inputs: Any) -> Any:
        x = rules.only(self.name, inputs)
        axes = (rules.normalize_axis(self.name, self.axis, x.type.rank),)
        shifted = x - x.max(axes, keepdims=True)
        total = exp(shifted).sum(axes, keepdims=True)
        return shifted - log(total)

    def reference(self, *inputs: np.ndarray) -> np.ndarray:
        x = rules.exact(inputs[0])
        # a row with plus infinity gives NaN, as in `decompose`
        shifted = x - x.max(self.axis, keepdims=True, initial=-np.inf)
        total = np.log(np.exp(shifted).sum(self.axis, keepdims=True))
        return (shifted - total).astype(inputs[0].dtype)


@dataclass(frozen=True)
class Hardmax(Op):
    """1 at the first maximum along `axis`, 0 elsewhere."""

    axis: int = -1

    def decompose(self, b: GraphBuilder, *inputs: Any) -> Any:
        x = rules.only(self.name, inputs)
        axis = rules.normalize_axis(self.name, self.axis, x.type.rank)
        depth = x.type.shape[axis]
        values = b.constant(np.asarray([0, 1], x.type.dtype.numpy))
        return b.add(OneHot(depth, axis), b.add(ArgMax(axis, False), x), values)

    def reference(self, *inputs: np.ndarray) -> np.ndarray:
        x = rules.exact(inputs[0])
        result = np.zeros_like(inputs[0])
        first = x.argmax(self.axis, keepdims=True)
        np.put_along_axis(result, first, result.dtype.type(1), self.axis)
        return result


@dataclass(frozen=True)
class BatchNorm(Op):
    """(x - mean) / sqrt(var + epsilon) * scale + bias, with the statistics given per channel (axis
    1).

    Inputs: x, scale, bias, mean, var.  Written as x * factor + offset, which folds into a preceding
        convolution.
    """

    epsilon: float = 1e-5

    def decompose(self, b: GraphBuilder, *inputs: Any) -> Any:
        rules.check_count(self.name, inputs, 5)
        x, scale, bias, mean, var = inputs
        rank = max(x.type.rank, 2)
        factor = scale * _inverse_deviation(var, self.epsilon)
        offset = bias - mean * factor
        y = x.cast(factor.type.dtype) * _per_channel(factor, rank)
        return (y + _per_channel(offset, rank)).cast(x.type.dtype)

    def reference(self, *inputs: np.ndarray) -> np.ndarray:
        x, *statistics = map(rules.exact, inputs)
        around = (-1, *[1] * (x.ndim - 2))
        scale, bias, mean, var = (s.reshape(around) for s in statistics)
        return ((x - mean) / np.sqrt(var + self.epsilon) * scale + bias).astype(inputs[0].dtype)


@dataclass(frozen=True)
class LayerNorm(Op):
    """(x - mean) / sqrt(variance + epsilon) * scale + bias over the axes from `axis` on.

    Inputs: x, scale, optional bias.

    with_stats: whether mean and 1 / deviation are outputs, too (f32 for 16-bit x).
    """

    axis: int = -1
    epsilon: float = 1e-5
    with_stats: bool = False

    def decompose(self, b: GraphBuilder, *inputs: Any) -> Any:
        rules.check_count(self.name, inputs, 2, 3)
        x, rank = inputs[0], inputs[0].type.rank
        axes = tuple(range(rules.normalize_axis(self.name, self.axis, rank), rank))
        wide = widened(x)
        mean, centred, variance = moments(wide, axes)
        inverse = _inverse_deviation(variance, self.epsilon)
        y = (centred * inverse).cast(x.type.dtype)
        y = y * inputs[1] + inputs[2] if len(inputs) == 3 else y * inputs[1]
        return (y, mean, inverse) if self.with_stats else y

    def reference(self, *inputs: np.ndarray) -> np.ndarray | tuple[np.ndarray, ...]:
        x, scale, *bias = map(rules.exact, inputs)
        axes = tuple(range(self.axis % x.ndim, x.ndim))
        mean, inverse = (
            x.mean(axes, keepdims=True),
            1 / np.sqrt(x.var(axes, keepdims=True) + self.epsilon),
        )
        y = (x - mean) * inverse * scale + (bias[0] if bias else 0.0)
        if not self.with_stats:
            return y.astype(inputs[0].dtype)
        statistics = rules.widen_array(inputs[0]).dtype
        return y.astype(inputs[0].dtype), mean.astype(statistics), inverse.astype(statistics)


@dataclass(frozen=True)
class RmsNorm(Op):
    """x / sqrt(mean(x^2) + epsilon) * scale over the axes from `axis` on (arXiv:1910.07467).
    Inputs: x, scale.
    """

    axis: int = -1
    epsilon: float = 1e-5

    def decompose(self, b: GraphBuilder, *inputs: Any) -> Any:
        rules.check_count(self.name, inputs, 2)
        x, rank = inputs[0], inputs[0].type.rank
        axes = tuple(range(rules.normalize_axis(self.name, self.axis, rank), rank))
        wide = widened(x)
        mean_square = (wide * wide).mean(axes, keepdims=True)
        y = wide * _inverse_deviation(mean_square, self.epsilon)
        return y.cast(x.type.dtype) * inputs[1]

    def reference(self, *inputs: np.ndarray) -> np.ndarray:
        x, scale = map(rules.exact, inputs)
        axes = tuple(range(self.axis % x.ndim, x.ndim))
        mean = np.mean(x**2, axes, keepdims=True)
        return (x / np.sqrt(mean + self.epsilon) * scale).astype(inputs[0].dtype)


@dataclass(frozen=True)
class InstanceNorm(Op):
    """Each channel of each image, normalised over its spatial axes.

    Inputs: x [N, C, ...], scale [C], bias [C].

    epsilon: added to the variance.
    """

    epsilon: float = 1e-5

    def decompose(self, b: GraphBuilder, *inputs: Any) -> Any:
        rules.check_count(self.name, inputs, 3)
        x, scale, bias = inputs
        rank = x.type.rank
        if rank < 3:
            rules.reject(self.name, "an input of rank 3 or more (N, C, spatial)", x.type)
        _, centred, variance = moments(widened(x), tuple(range(2, rank)))
        y = centred * _inverse_deviation(variance, self.epsilon)
        y = y.cast(x.type.dtype) * _per_channel(scale, rank)
        return y + _per_channel(bias, rank)

    def reference(self, *inputs: np.ndarray) -> np.ndarray:
        return GroupNorm(inputs[0].shape[1], self.epsilon).reference(*inputs)


@dataclass(frozen=True)
class GroupNorm(Op):
    """Channels in `groups` groups, each normalised over its channels and spatial axes
    (arXiv:1803.08494).

    Inputs: x [N, C, ...], scale [C], bias [C].

    epsilon: added to the variance.
    """

    groups: int
    epsilon: float = 1e-5

    def decompose(self, b: GraphBuilder, *inputs: Any) -> Any:
        rules.check_count(self.name, inputs, 3)
        x, scale, bias = inputs
        shape, rank = x.type.shape, x.type.rank
        if rank < 2:
            rules.reject(self.name, "an input of rank 2 or more (N, C, ...)", x.type)
        if self.groups < 1:
            rules.reject(self.name, "1 group or more", self.groups)
        group = rules.divided(self.name, shape[1], self.groups, "a channel count")
        split = (shape[0], self.groups, group, *shape[2:])
        grouped = widened(x).reshape(*split)
        _, centred, variance = moments(grouped, tuple(range(2, len(split))))
        y = centred * _inverse_deviation(variance, self.epsilon)
        y = y.reshape(*shape).cast(x.type.dtype)
        return y * _per_channel(scale, rank) + _per_channel(bias, rank)

    def reference(self, *inputs: np.ndarray) -> np.ndarray:
        x, scale, bias = map(rules.exact, inputs)
        rows = x.reshape(x.shape[0], self.groups, -1)
        deviation = np.sqrt(rows.var(-1, keepdims=True) + self.epsilon)
        y = ((rows - rows.mean(-1, keepdims=True)) / deviation).reshape(x.shape)
        around = (-1, *[1] * (x.ndim - 2))
        return (y * scale.reshape(around) + bias.reshape(around)).astype(inputs[0].dtype)


@dataclass(frozen=True)
class MeanVarianceNorm(Op):
    """(x - mean) / (deviation + 1e-9) over `axes`."""

    axes: tuple[int, ...] = (0, 2, 3)

    def decompose(self, b: GraphBuilder, *inputs: Any) -> Any:
        rules.check_count(self.name, inputs, 1)
        axes = rules.normalize_axes(self.name, self.axes, inputs[0].type.rank)
        _, centred, variance = moments(widened(inputs[0]), axes)
        deviation = sqrt(variance) + 1e-9
        return (centred / deviation).cast(inputs[0].type.dtype)

    def reference(self, *inputs: np.ndarray) -> np.ndarray:
        x = rules.exact(inputs[0])
        mean, deviation = x.mean(self.axes, keepdims=True), x.std(self.axes, keepdims=True)
        return ((x - mean) / (deviation + 1e-9)).astype(inputs[0].dtype)


@dataclass(frozen=True)
class LpNormalization(Op):
    """x divided by its l1 or l2 norm (`p`) along `axis`; if the norm is 0, the result is 0."""

    axis: int = -1
    p: int = 2

    def decompose(self, b: GraphBuilder, *inputs: Any) -> Any:
        x = rules.only(self.name, inputs)
        axes = (rules.normalize_axis(self.name, self.axis, x.type.rank),)
        if self.p not in (1, 2):
            rules.reject(self.name, "p 1 or 2", self.p)
        norm = b.add(ReduceL1(axes) if self.p == 1 else ReduceL2(axes), x)
        return x / where(norm.equals(0.0), 1.0, norm)

    def reference(self, *inputs: np.ndarray) -> np.ndarray:
        x = rules.exact(inputs[0])
        norm = np.linalg.norm(x, self.p, self.axis, keepdims=True)
        return np.divide(x, norm, out=np.zeros_like(x), where=norm != 0).astype(inputs[0].dtype)


@dataclass(frozen=True)
class Lrn(Op):
    """Local response normalisation across channels: x / (bias + alpha / size * sum of
    squares)^beta.

    The sum covers the own channel, floor((size - 1) / 2) before and ceil((size - 1) / 2) after it.
    """

    size: int
    alpha: float = 1e-4
    beta: float = 0.75
    bias: float = 1.0

    def decompose(self, b: GraphBuilder, *inputs: Any) -> Any:
        x = rules.only(self.name, inputs)
        shape: tuple[Dim, ...] = x.type.shape
        if len(shape) < 2:
            rules.reject(self.name, "an input of rank 2 or more (N, C, ...)", x.type)
        before, after = (self.size - 1) // 2, self.size // 2
        # An average pool slides over the channels as a spatial axis.  Zeros of the padding count.
        squares = (x * x).reshape(shape[0], 1, shape[1], rules.product(shape[2:]))
        pool = AvgPool((self.size, 1), (1, 1), (before, 0, after, 0), count_include_pad=True)
        mean = b.add(pool, squares).reshape(*shape)
        base = mean * self.alpha + self.bias
        return x / base**self.beta

    def reference(self, *inputs: np.ndarray) -> np.ndarray:
        x = rules.exact(inputs[0])
        squares = np.zeros_like(x)
        for c in range(x.shape[1]):
            near = x[:, max(c - (self.size - 1) // 2, 0) : c + self.size // 2 + 1]
            squares[:, c] = (near**2).sum(1)
        y = x / (self.bias + self.alpha / self.size * squares) ** self.beta
        return y.astype(inputs[0].dtype)
