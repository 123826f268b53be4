"""ncnn's models: files, forms of weights, layers and errors."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import rounding_cases

import tilesmith as ts
from tilesmith.frontend.load import inspect, load
from tilesmith.graph.evaluate import evaluate
from tilesmith.support.errors import ModelError, OpenShapesError, UnsupportedError
from written_models.ncnn import binary, written

RANDOM = np.random.default_rng(0)
X = RANDOM.standard_normal((3, 6, 5)).astype(np.float32)
W = RANDOM.uniform(-1, 1, (4, 3, 3, 3)).astype(np.float32)
B = RANDOM.standard_normal(4).astype(np.float32)
CONV = "Convolution conv 1 1 data conv 0=4 1=3 4=1 5=1 6=108 9=2 -23310=1,0.1"
INPUT = "Input data 0 1 data 0=5 1=6 2=3"
PLAIN = b"\0\0\0\0" + W.tobytes()


def convolved(w: np.ndarray = W, x: np.ndarray = X) -> np.ndarray:
    padded = np.pad(x, ((0, 0), (1, 1), (1, 1)))
    views = np.lib.stride_tricks.sliding_window_view(padded, (3, 3), (1, 2))
    y = np.einsum("chwij,ocij->ohw", views, w) + B.reshape(4, 1, 1)
    return np.where(y > 0, y, 0.1 * y)


def run(path: object, x: np.ndarray = X) -> dict[str, np.ndarray]:
    return evaluate(load(path), [x])


def test_a_model_in_two_files(tmp_path: Path) -> None:
    path = written(tmp_path, INPUT, CONV, weights=PLAIN + B.tobytes())
    exe = ts.compile(path)
    np.testing.assert_allclose(exe.run({"data": X})["conv"], convolved(), rtol=1e-4, atol=1e-5)
    weights = (tmp_path / "net.bin").rename(tmp_path / "weights")
    found = run((path, weights))["conv"]
    np.testing.assert_allclose(found, convolved(), rtol=1e-4, atol=1e-5)
    with pytest.raises(ModelError, match="expected a file of weights"):
        load(path)


def test_weights_as_half_and_by_a_table(tmp_path: Path) -> None:
    half = b"\x47\x6b\x30\x01" + W.astype("<f2").tobytes()
    path = written(tmp_path, INPUT, CONV, weights=half + B.tobytes())
    wanted = convolved(W.astype(np.float16).astype(np.float32))
    np.testing.assert_allclose(run(path)["conv"], wanted, rtol=1e-4, atol=1e-5)
    table = np.linspace(-1, 1, 256).astype("<f4")
    places = RANDOM.integers(0, 256, W.shape).astype(np.uint8)
    stored = b"\x02\x00\x00\x00" + table.tobytes() + places.tobytes() + B.tobytes()
    path = written(tmp_path, INPUT, CONV, weights=stored)
    np.testing.assert_allclose(run(path)["conv"], convolved(table[places]), rtol=1e-4, atol=1e-5)


def test_int8_weights_are_multiplied_by_integers(tmp_path: Path) -> None:
    w = RANDOM.integers(-127, 128, W.shape)
    scales, own = np.float32([100, 50, 30, 80]), np.float32([40])
    stored = b"\x38\x4b\x0d\x00" + w.astype("i1").tobytes() + B.tobytes()
    stored += scales.tobytes() + own.tobytes()
    path = written(tmp_path, INPUT, CONV + " 8=2", weights=stored)
    scaled = X * 40
    x = np.trunc(scaled + np.copysign(0.5, scaled)).clip(-127, 127)
    exact = convolved((w / (40 * scales.reshape(4, 1, 1, 1))).astype(np.float32), x)
    np.testing.assert_allclose(run(path)["conv"], exact, rtol=1e-4, atol=1e-5)


def test_inputs_of_int8_layers_round_away_from_zero(tmp_path: Path) -> None:
    x = rounding_cases.X[~np.isnan(rounding_cases.X)]
    stored = b"\x38\x4b\x0d\x00" + np.int8([1, 0, 0, 0]).tobytes() + np.float32([1, 1]).tobytes()
    layers = f"Input data 0 1 data 0={x.size} 1=1 2=1", "Convolution y 1 1 data y 0=1 1=1 6=1 8=2"
    path = written(tmp_path, *layers, weights=stored)
    wanted = rounding_cases.AWAY[~np.isnan(rounding_cases.X)].clip(-127, 127)
    np.testing.assert_array_equal(run(path, x.reshape(1, 1, -1))["y"][0, 0], wanted)


def test_layers_as_numbers_with_weights(tmp_path: Path) -> None:
    path = written(tmp_path, INPUT, CONV, weights=PLAIN + B.tobytes())
    numbers = tmp_path / "net.param.bin"
    numbers.write_bytes(binary(path.read_text()))
    np.testing.assert_array_equal(run(numbers)["1"], run(path)["conv"])
    facts = inspect(numbers)
    assert (facts.format, facts.inputs) == ("ncnn", {"0": "f32[3,6,5]"})
    assert facts.operators == {"Convolution": 1}


def test_damaged_numbers(tmp_path: Path) -> None:
    whole = binary(written(tmp_path, INPUT, CONV, weights=PLAIN + B.tobytes()).read_text())
    numbers = tmp_path / "net.param.bin"
    for size in range(4, len(whole), 4):
        numbers.write_bytes(whole[:size])
        with pytest.raises(ModelError, match=r"\.param\.bin file: expected \d+ bytes"):
            run(numbers)


def test_inputs_of_open_size(tmp_path: Path) -> None:
    path = written(tmp_path, "Input data 0 1 data", CONV, weights=PLAIN + B.tobytes())
    with pytest.raises(OpenShapesError, match="'data': f32 of unknown rank"):
        load(path)
    exe = ts.compile(path, shapes={"data": X.shape})
    np.testing.assert_allclose(exe.run({"data": X})["conv"], convolved(), rtol=1e-4, atol=1e-5)
    path = written(tmp_path, INPUT, CONV, weights=PLAIN + B.tobytes())
    exe = ts.compile(path, dynamic={"data": {1: (3, 20)}})
    x = RANDOM.standard_normal((3, 11, 5)).astype(np.float32)
    found = exe.run({"data": x})["conv"]
    np.testing.assert_allclose(found, convolved(x=x), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    "layer, wanted",
    [
        ("Permute y 1 1 data y 0=3", X.transpose(1, 2, 0)),
        ("Reshape y 1 1 data y 0=0 1=-1", X.reshape(18, 5)),
        ("Crop y 1 1 data y -23309=1,1 -23310=1,-2 -23311=1,1", X[:, 1:-2]),
        ("Crop y 1 1 data y 0=1 1=2 2=0 3=3 4=-233 5=-233", X[:, 2:, 1:4]),
        ("Reduction y 1 1 data y 0=3 1=0 3=1,2 4=0 5=1", X.mean((1, 2))),
        ("Padding y 1 1 data y 0=1 1=0 2=0 3=2 4=1", np.pad(X, ((0, 0), (1, 0), (0, 2)), "edge")),
        ("BinaryOp y 1 1 data y 0=7 1=1 2=1.5", 1.5 - X),
        ("UnaryOp y 1 1 data y 0=4", X * X),
        ("Pooling y 1 1 data y 0=1 4=1", X.mean((1, 2))),
        ("Crop y 1 1 data y -23309=1,1 -23310=1,2147483647 -23311=1,-1", X[:, :, 1:]),
        ("ReLU y 1 1 data y 0=0.25", np.where(X > 0, X, np.float32(0.25) * X)),
        ("UnaryOp y 1 1 data y 0=0", np.abs(X)),
        ("Normalize y 1 1 data y 2=0 3=3 4=1", X / np.sqrt((X * X).sum(0, keepdims=True))),
    ],
)
def test_layers_in_text_and_as_numbers(tmp_path: Path, layer: str, wanted: np.ndarray) -> None:
    path = written(tmp_path, INPUT, layer, weights=np.ones(3, np.float32).tobytes())
    np.testing.assert_allclose(run(path)["y"], wanted, rtol=1e-4, atol=1e-5)
    numbers = tmp_path / "net.param.bin"
    numbers.write_bytes(binary(path.read_text()))
    np.testing.assert_array_equal(run(numbers)["1"], run(path)["y"])


def test_facts_of_a_file(tmp_path: Path) -> None:
    path = written(tmp_path, INPUT, CONV, "Warp w 1 1 conv w", weights=PLAIN + B.tobytes())
    facts = inspect(path)
    assert facts.format == "ncnn"
    assert facts.inputs == {"data": "f32[3,6,5]"}
    assert facts.operators == {"Convolution": 1, "Warp": 1}
    assert facts.unsupported == {"Warp"}
    assert facts.weight_bytes == len(PLAIN) + B.nbytes


@pytest.mark.parametrize(
    "layer, error, message",
    [
        ("Warp y 1 1 data y", UnsupportedError, "Warp at 'y': the operator is not supported"),
        ("Permute y 1 1 data y 0=9", ModelError, "expected an order below 6"),
        ("ReLU y 1 1 data", ModelError, "line 4: expected a layer's type, name"),
        ("ReLU y -1 1 data y", ModelError, "line 4: expected a layer's type, name"),
        ("ReLU y 1 1 data y zero=1", ModelError, "line 4: expected number=value"),
        ("ReLU y 1 1 other y", ModelError, "'other' is used, which nothing before defines"),
        (CONV + " 19=1", UnsupportedError, "weights that are inputs"),
        (CONV.replace("0=4", "0=4000000"), ModelError, "expected 432000000 bytes from byte 4"),
        ("MemoryData m 0 1 m 0=-4", ModelError, "data: expected a shape"),
        ("UnaryOp y 1 1 data y 0=77", UnsupportedError, "function 77"),
    ],
)
def test_errors(tmp_path: Path, layer: str, error: type[Exception], message: str) -> None:
    path = written(tmp_path, INPUT, layer, weights=PLAIN + B.tobytes())
    with pytest.raises(error, match=message):
        run(path)


def test_damaged_weights(tmp_path: Path) -> None:
    whole = PLAIN + B.tobytes()
    path = written(tmp_path, INPUT, CONV)
    for size in range(0, len(whole), 9):
        (tmp_path / "net.bin").write_bytes(whole[:size])
        with pytest.raises(ModelError):
            run(path)


def test_a_list_of_channels_is_multiplied_by_a_kernel_of_one_element(tmp_path: Path) -> None:
    w = RANDOM.standard_normal((4, 3)).astype(np.float32)
    layers = "Input data 0 1 data 0=3", "Convolution y 1 1 data y 0=4 1=1 5=1 6=12 9=1"
    path = written(tmp_path, *layers, weights=b"\0\0\0\0" + w.tobytes() + B.tobytes())
    x = np.float32([1, -2, 3])
    wanted = np.maximum(w @ x + B, 0)
    np.testing.assert_allclose(run(path, x)["y"], wanted, rtol=1e-5, atol=1e-6)
