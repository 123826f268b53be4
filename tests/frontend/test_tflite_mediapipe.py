"""The custom operators of MediaPipe's models, for which LiteRT has no kernels, against formulas."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from tflite_oracle import numbers, one_graph

import tilesmith as ts
from tflite_models import GraphWriter
from tilesmith.frontend.tflite.flexbuffer import read_options
from tilesmith.support.errors import ModelError, UnsupportedError

SAME, VALID = 1, 2


def _run(
    name: str, arrays: Sequence[np.ndarray], options: bytes, outputs: int = 1, version: int = 1,
    stored: int = 99,
) -> Any:  # fmt: skip
    """The results of a custom operator; arrays from number `stored` on are constants."""

    def build(g: GraphWriter) -> None:
        inputs = [g.input(a.shape) if i < stored else g.const(a) for i, a in enumerate(arrays)]
        made = [g.tensor(()) for _ in range(outputs)]
        g.op(name, inputs, made, version=version, custom=options)
        g.output(*made)

    return ts.compile(one_graph(build))(*arrays[:stored])


def _pool(padding: int, size: int, stride: int) -> bytes:
    return struct.pack("<6i", padding, stride, stride, size, size, 0)


@pytest.mark.parametrize("padding", [SAME, VALID])
@pytest.mark.parametrize(("kernel", "stride"), [(2, 2), (3, 2), (4, 3)])
def test_transposed_convolution(padding: int, kernel: int, stride: int) -> None:
    x, w, bias = numbers(0, 1, 4, 5, 3), numbers(1, 2, kernel, kernel, 3), numbers(2, 2)
    options = struct.pack("<3i", padding, stride, stride)
    full = np.zeros((1, stride * 3 + kernel, stride * 4 + kernel, 2))
    for i, j in np.ndindex(4, 5):
        part = np.einsum("c,ohwc->hwo", x[0, i, j], w)
        full[0, i * stride : i * stride + kernel, j * stride : j * stride + kernel] += part
    cut = [max(kernel - e % stride - 1, 0) if padding == SAME else 0 for e in (3, 4)]
    h, w_ = full.shape[1] - cut[0], full.shape[2] - cut[1]
    wanted = full[:, cut[0] // 2 : cut[0] // 2 + h, cut[1] // 2 : cut[1] // 2 + w_] + bias
    result = _run("Convolution2DTransposeBias", [x, w, bias], options, stored=1)
    np.testing.assert_allclose(result, wanted, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("padding", [SAME, VALID])
def test_max_pool_and_its_inverse(padding: int) -> None:
    x = numbers(0, 2, 6, 8, 3)
    y, places = _run("MaxPoolingWithArgmax2D", [x], _pool(padding, 2, 2), outputs=2)
    windows = x.reshape(2, 3, 2, 4, 2, 3).transpose(0, 1, 3, 5, 2, 4).reshape(2, 3, 4, 3, 4)
    np.testing.assert_array_equal(y, windows.max(-1))
    np.testing.assert_array_equal(places.astype(int), windows.argmax(-1))
    back = _run("MaxUnpooling2D", [y, places], _pool(padding, 2, 2))
    kept = np.where(windows == windows.max(-1, keepdims=True), windows, 0)
    wanted = kept.reshape(2, 3, 4, 3, 2, 2).transpose(0, 1, 4, 2, 5, 3).reshape(x.shape)
    np.testing.assert_array_equal(back, wanted)


def test_max_pool_of_padded_windows() -> None:
    x = numbers(0, 1, 5, 5, 2)
    y, places = _run("MaxPoolingWithArgmax2D", [x], _pool(SAME, 3, 2), outputs=2)
    padded = np.pad(x, ((0, 0), (1, 1), (1, 1), (0, 0)), constant_values=-np.inf)
    for i, j in np.ndindex(3, 3):
        window = padded[0, 2 * i : 2 * i + 3, 2 * j : 2 * j + 3].reshape(9, 2)
        np.testing.assert_array_equal(y[0, i, j], window.max(0))
        np.testing.assert_array_equal(places[0, i, j].astype(int), window.argmax(0))


def test_a_place_outside_of_its_window_leaves_zeros() -> None:
    y = np.ones((1, 1, 2, 1), np.float32)
    places = np.array([9, -3], np.float32).reshape(1, 1, 2, 1)
    assert not _run("MaxUnpooling2D", [y, places], _pool(VALID, 2, 2)).any()


def _matrix(angle: float, x: float, y: float) -> np.ndarray:
    c, s = np.cos(angle), np.sin(angle)
    rows = [[c, -s, 0, x], [s, c, 0, y], [0, 0, 1, 0], [0, 0, 0, 1]]
    return np.array([rows], np.float32)


@pytest.mark.parametrize("width", [2, 3])
def test_transform_landmarks(width: int) -> None:
    points, matrix = numbers(0, 1, 7, width), _matrix(0.3, 1.5, -2)
    whole = np.zeros((7, 4))
    whole[:, :2], whole[:, 3] = points[0, :, :2], 1
    wanted = points.copy()
    wanted[0, :, :2] = (whole @ matrix[0].T)[:, :2]
    result = _run("TransformLandmarks", [points, matrix], b"", version=2)
    np.testing.assert_allclose(result, wanted, rtol=1e-5, atol=1e-6)
    with pytest.raises(UnsupportedError, match="version 1"):
        _run("TransformLandmarks", [points, matrix], b"", version=1)


def test_transform_image() -> None:
    flexbuffers = pytest.importorskip("flatbuffers.flexbuffers")
    x, matrix = numbers(0, 1, 9, 8, 3), _matrix(0.4, 2.2, 0.7)
    options = flexbuffers.Dumps({"output_height": 5, "output_width": 6})
    wanted = np.zeros((1, 5, 6, 3))
    for i, j in np.ndindex(5, 6):
        px, py = (matrix[0] @ [j + 0.5, i + 0.5, 0, 1])[:2] - 0.5
        if not (0 <= px <= 7 and 0 <= py <= 8):
            continue
        u, v = int(px), int(py)
        for dv, du in np.ndindex(2, 2):
            weight = abs(1 - dv - (py - v)) * abs(1 - du - (px - u))
            wanted[0, i, j] += weight * x[0, min(v + dv, 8), min(u + du, 7)]
    result = _run("TransformTensorBilinear", [x, matrix], bytes(options), version=2)
    np.testing.assert_allclose(result, wanted, rtol=1e-4, atol=1e-5)


def test_landmarks_to_matrix() -> None:
    flexbuffers = pytest.importorskip("flatbuffers.flexbuffers")
    points = numbers(0, 1, 9, 3) * 50
    subset, left, right, turn = [1, 2, 5, 7, 8, 0], 3, 6, 0.25
    options = {
        "left_rotation_idx": left, "right_rotation_idx": right, "subset_idxs": subset,
        "target_rotation_radians": turn, "output_height": 12, "output_width": 16, "scale_x": 1.5,
        "scale_y": 1.25,
    }  # fmt: skip
    dx, dy = points[0, right, :2] - points[0, left, :2]
    r = turn - np.arctan2(dy, dx)
    rotation = _matrix(r, 0, 0)[0].astype(float)
    turned = points[0, subset, :2] @ rotation[:2, :2].T
    low, high = turned.min(0), turned.max(0)
    centre = rotation[:2, :2].T @ ((low + high) / 2)
    back, scale, shift = _matrix(-r, *centre)[0].astype(float), np.eye(4), np.eye(4)
    scale[0, 0], scale[1, 1] = (high - low) * (1.5, 1.25) / (16, 12)
    shift[:2, 3] = -8, -6
    result = _run("Landmarks2TransformMatrix", [points], bytes(flexbuffers.Dumps(options)),
                  version=2)  # fmt: skip
    np.testing.assert_allclose(result[0], back @ scale @ shift, rtol=1e-4, atol=1e-3)


def test_options_are_read() -> None:
    flexbuffers = pytest.importorskip("flatbuffers.flexbuffers")
    options = {"a": -1, "b": [1, 2, 300], "c": 1.5, "d": "text", "e": True, "f": {"g": [0.5, "x"]}}
    content = bytes(flexbuffers.Dumps(options))
    assert read_options(content, "it") == options
    assert read_options(b"", "it") == {}


def test_damaged_options_are_refused() -> None:
    flexbuffers = pytest.importorskip("flatbuffers.flexbuffers")
    content = bytes(flexbuffers.Dumps({"a": [1, 2, 300], "b": {"c": "text"}}))
    random = np.random.default_rng(0)
    refused = 0
    for _ in range(2000):
        mutant = bytearray(content)
        for _ in range(random.integers(1, 4)):
            mutant[random.integers(len(mutant))] = random.integers(256)
        try:
            read_options(bytes(mutant[: random.integers(1, len(mutant) + 1)]), "it")
        except ModelError:
            refused += 1
    assert refused > 500
