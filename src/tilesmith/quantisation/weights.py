"""Weights as integers: symmetric, one scale per channel of the result or per group of inputs."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tilesmith.ir.dtypes import DType, i8, int4

from .layers import Layer


@dataclass(frozen=True, slots=True, eq=False)
class QuantisedWeights:
    """Weights as integers times scales.

    integers: the integers, in the shape of the weights.
    scales: f32; one per index of `axis` or, with blocks, in the shape of the weights with one per
        block.
    axis: the axis along which scales vary.
    block: number of indices along `axis` that share a scale; 0: each index has its own.
    to: element type of the integers.
    """

    integers: np.ndarray
    scales: np.ndarray
    axis: int
    block: int
    to: DType

    @property
    def values(self) -> np.ndarray:
        """The weights that the integers represent, f32."""
        wide = self.integers.astype(np.float32)
        if self.block:
            spread = np.repeat(self.scales, self.block, self.axis)
            return wide * spread.take(range(wide.shape[self.axis]), self.axis)
        return wide * self.scales.reshape(-1, *[1] * (wide.ndim - self.axis - 1))


def per_channel(layer: Layer) -> QuantisedWeights:
    """Weights of 8 bits, one scale per channel of the result.  A channel of zeros has scale 1."""
    w, axis = layer.weights, layer.channel_axis
    others = tuple(a for a in range(w.ndim) if a != axis)
    largest = np.abs(w).max(others, keepdims=True)
    scales = _scales(largest, i8)
    integers = np.clip(np.rint(w / scales), -i8.max, i8.max).astype(np.int8)
    return QuantisedWeights(integers, scales.reshape(-1), axis, 0, i8)


def _scales(largest: np.ndarray, to: DType) -> np.ndarray:
    """Scales with which the largest integer represents `largest`."""
    scales = (largest / np.float32(to.max)).astype(np.float32)
    return np.where(scales >= np.finfo(np.float32).tiny, scales, np.float32(1))


def in_groups(layer: Layer, group: int, moments: np.ndarray | None = None) -> QuantisedWeights:
    """Weights of a product in 4 bits, with one scale for each group of inputs of a channel.

    group: number of inputs in a group.
    moments: second moments of the layer's input, [K, K].  With them, the rounding error of each row
        of weights is compensated by the following rows, as far as their inputs are correlated
        (Frantar et al., GPTQ, 2022).  Without them, each weight is rounded to the nearest.
    """
    axis = 1 - layer.channel_axis
    w = (layer.weights if axis == 0 else layer.weights.T).astype(np.float32)  # [K, N]
    integers = np.zeros(w.shape, np.float32)
    if moments is None:
        scales = np.stack([_group_scales(w[i : i + group]) for i in range(0, len(w), group)])
        wide = np.repeat(scales, group, 0)[: len(w)]
        integers = _rounded(w, wide)
    else:
        scales = _with_feedback(w, group, moments, integers)
    if axis == 1:
        integers, scales = integers.T, scales.T
    stored = np.ascontiguousarray(integers).astype(int4.numpy)
    return QuantisedWeights(stored, np.ascontiguousarray(scales), axis, group, int4)


_SHRINKS = np.linspace(1.0, 0.6, 9)
"""Fractions of the largest weight of a group that are tried as its range."""
_DAMPING = 0.01
"""Number that is added to the diagonal of the moments, relative to the diagonal's mean, so that the
matrix can be inverted.
"""


def _rounded(w: np.ndarray, scales: np.ndarray) -> np.ndarray:
    return np.clip(np.rint(w / scales), int4.min, int4.max)


def _group_scales(w: np.ndarray) -> np.ndarray:
    """The scales of least squared error for a group of rows, one per column."""
    largest = np.abs(w).max(0)
    best, least = _scales(largest, int4), np.full(largest.shape, np.inf)
    for share in _SHRINKS:
        scales = _scales(largest * np.float32(share), int4)
        error = np.square(_rounded(w, scales) * scales - w).sum(0)
        best = np.where(error < least, scales, best)
        least = np.minimum(error, least)
    return best.astype(np.float32)


def _with_feedback(
    w: np.ndarray, group: int, moments: np.ndarray, integers: np.ndarray
) -> np.ndarray:
    """Round `w` into `integers` row by row, and spread the error of each row over the following
    rows of `w`.  Returns the scales of the groups.
    """
    h = moments.astype(np.float64)
    diagonal = np.diagonal(h).copy()
    diagonal[diagonal == 0] = 1.0  # a second moment of 0 means that the input is always zero
    np.fill_diagonal(h, diagonal + _DAMPING * diagonal.mean())
    spread = np.linalg.cholesky(np.linalg.inv(h)).T.astype(np.float32)
    scales = []
    for start in range(0, len(w), group):
        stop = min(start + group, len(w))
        scales.append(_group_scales(w[start:stop]))
        errors = np.zeros((stop - start, w.shape[1]), np.float32)
        for i in range(start, stop):
            integers[i] = _rounded(w[i], scales[-1])
            errors[i - start] = (w[i] - integers[i] * scales[-1]) / spread[i, i]
            w[i + 1 : stop] -= np.outer(spread[i, i + 1 : stop], errors[i - start])
        w[stop:] -= spread[start:stop, stop:].T @ errors
    return np.stack(scales)
