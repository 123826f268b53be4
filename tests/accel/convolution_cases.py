"""Operands of convolutions, and their exact results by NumPy."""

from __future__ import annotations

import numpy as np

from tilesmith.accel.convolution import Convolution


def inputs(conv: Convolution, seed: int) -> list[np.ndarray]:
    rng = np.random.default_rng(seed)
    x = rng.integers(-128, 128, (conv.inputs, conv.height, conv.width), np.int8)
    w = rng.integers(-128, 128, (conv.outputs, conv.group, *conv.kernel), np.int8)
    scale = rng.uniform(1e-4, 1e-3, conv.outputs).astype(np.float32)
    offset = rng.uniform(-9, 9, conv.outputs).astype(np.float32)
    bias = [rng.integers(-9999, 9999, conv.outputs, np.int32)] if conv.has_bias else []
    return [x, w, np.stack([*bias, scale.view(np.int32), offset.view(np.int32)])]


def wanted(conv: Convolution, low: int, given: list[np.ndarray]) -> np.ndarray:
    x, w, factors = given
    top, left, bottom, right = conv.padding
    x = np.pad(x, ((0, 0), (top, bottom), (left, right))).astype(np.int32)
    windows = np.lib.stride_tricks.sliding_window_view(x, conv.kernel, (1, 2))
    windows = windows[:, :: conv.stride, :: conv.stride]
    parts = zip(np.split(windows, conv.groups), np.split(w, conv.groups), strict=True)
    sums = np.concatenate([np.einsum("cyxij,ocij->oyx", a, b.astype(np.int32)) for a, b in parts])
    *bias, scale, offset = factors[:, :, None, None]
    sums = sums + (bias[0] if conv.has_bias else 0)
    scale, offset = (x.view(np.float32).astype(np.float64) for x in (scale, offset))
    found = np.rint((sums.astype(np.float32) * scale + offset).astype(np.float32))
    return np.maximum(found, low).clip(-128, 127).astype(np.int8)
