"""`tilesmith train`."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import numpy_helper


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """24 samples for the model of the command line's tests, whose labels depend on them."""
    path = tmp_path / "data.npz"
    x = np.random.default_rng(3).standard_normal((24, 3, 8, 8)).astype(np.float32)
    np.savez(path, in_x=x, labels=(x[:, 0].mean((1, 2)) > 0).astype(np.int64))
    return path


def _weights(path: Path) -> dict[str, np.ndarray]:
    return {t.name: numpy_helper.to_array(t) for t in onnx.load(path).graph.initializer}


def test_it_trains_the_weights_that_a_pattern_names(tilesmith, model, data, tmp_path):
    product = tmp_path / "trained.onnx"
    found = tilesmith(
        "train", model, "--data", data, "-o", product, "--epochs", "3", "--rate", "0.05",
        "--optimizer", "sgd", "--trainable", "v*", "--metric", "accuracy", "--validation", data,
        "--json",
    ).json  # fmt: skip
    assert found["trained"] == ["v", "vb"] and found["steps"] == 72
    losses = [epoch["loss"] for epoch in found["epochs"]]
    assert losses[2] < losses[0] and {*found["epochs"][0]["validation"]} == {"loss", "accuracy"}
    old, new = _weights(model), _weights(product)
    assert {n for n in old if not np.array_equal(old[n], new[n])} == {"v", "vb"}
    assert tilesmith("run", product).code == 0


def test_it_resumes_from_a_checkpoint(tilesmith, model, data, tmp_path):
    given = ("train", model, "--data", data, "--checkpoint", tmp_path / "c.safetensors", "--resume")
    whole, part = tmp_path / "whole.onnx", tmp_path / "part.onnx"
    assert tilesmith(*given[:4], "-o", whole, "--epochs", "2").code == 0
    assert "epoch 1: loss" in tilesmith(*given, "-o", part).out
    found = tilesmith(*given, "-o", part, "--epochs", "2").out
    assert "epoch 2: loss" in found and "epoch 1:" not in found
    new, expected = _weights(part), _weights(whole)
    for name, weight in expected.items():
        np.testing.assert_array_equal(new[name], weight)


def test_it_trains_adapters_on_accumulated_gradients(tilesmith, model, data, tmp_path):
    product = tmp_path / "trained.onnx"
    found = tilesmith(
        "train", model, "--data", data, "-o", product, "--accumulate", "8", "--lora", "v=1",
        "--json",
    ).json  # fmt: skip
    assert found["trained"] == ["v.lora_a", "v.lora_b"] and found["steps"] == 3
    old, new = _weights(model), _weights(product)
    assert {n for n in old if not np.array_equal(old[n], new[n])} == {"v"}


def test_it_writes_an_executable(tilesmith, model, data, tmp_path):
    product = tmp_path / "trained.tsm"
    found = tilesmith("train", model, "--data", data, "-o", product)
    assert f"wrote {product}" in found.out and tilesmith("run", product).code == 0


def test_export_writes_a_library_that_trains(tilesmith, model, tmp_path):
    found = tilesmith("export", model, "-o", tmp_path / "lib", "--train", "--json").json
    assert any(name.endswith("_train.h") for name in found["files"])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--train", "--format", "c"), "--train writes a shared library with the weights inside"),
        (("--train", "--weights", "file"), "leave out --format, --weights, --glibc and --sign"),
        (("--train", "--pin", "unroll=1"), "pins: training does not read it; leave it out"),
        (("--train", "--optional", "w"), "optional: training does not read it; leave it out"),
        (("--rate", "0.1", "--loss", "mse"), "--loss, --rate: expected --train, which reads it"),
    ],
)
def test_options_that_export_would_not_read_are_refused(
    tilesmith, model, tmp_path, options, message
):
    found = tilesmith("export", model, "-o", tmp_path / "lib", *options)
    assert found.code and message in found.err and not (tmp_path / "lib").exists()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("-o", "t.txt"), "expected an .onnx or .tsm file to write, found 't.txt'"),
        (("-o", "t.onnx", "--resume"), "give --checkpoint FILE"),
        (("-o", "t.onnx", "--optimizer", "adamx"), "optimizer: expected one of sgd"),
        (("-o", "t.onnx", "--batch", "5"), "x: expected f32[1,3,8,8], found float32[5, 3, 8, 8]"),
        (("-o", "t.onnx", "--lora", "v"), "--lora: expected PATTERN=RANK, found 'v'"),
        (("-o", "t.onnx", "--batch", "25"), "expected a size from 1 to 24"),
    ],
)
def test_wrong_use_is_refused(tilesmith, model, data, tmp_path, monkeypatch, options, message):
    monkeypatch.chdir(tmp_path)
    found = tilesmith("train", model, "--data", data, *options)
    assert found.code in (1, 2) and message in found.err


def test_data_without_labels_are_refused(tilesmith, model, tmp_path):
    np.savez(tmp_path / "d.npz", x=np.zeros((4, 3, 8, 8), np.float32))
    found = tilesmith("train", model, "--data", tmp_path / "d.npz", "-o", tmp_path / "t.onnx")
    assert found.code == 1 and "expected arrays named x, labels, found 'x'" in found.err
