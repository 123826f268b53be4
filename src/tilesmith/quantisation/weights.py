"""Weights in integers: symmetric, one scale per channel of the result or per group of inputs."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tilesmith.ir.dtypes import DType, i8

from .layers import Layer


@dataclass(frozen=True, slots=True, eq=False)
class QuantisedWeights:
    """Weights as integers times scales.

    integers: in the shape of the weights.
    scales: f32, one per place of `axis`, or of the shape of the weights with one per block.
    axis: that along which scales vary.
    block: places along `axis` that share a scale; 0: one.
    to: element type of the integers.
    """

    integers: np.ndarray
    scales: np.ndarray
    axis: int
    block: int
    to: DType

    @property
    def values(self) -> np.ndarray:
        """The weights that they stand for, f32."""
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
    """Scales for which `largest` is the largest integer."""
    found = (largest / np.float32(to.max)).astype(np.float32)
    return np.where(found >= np.finfo(np.float32).tiny, found, np.float32(1))
