"""Keras files as such: what they are, what is refused, and old or damaged ones."""

from __future__ import annotations

import contextlib
import io
import os
import sys
import zipfile
from pathlib import Path
from typing import Any

os.environ.setdefault("KERAS_BACKEND", "torch")

import h5py
import keras
import numpy as np
import pytest
from keras import layers as L

import tilesmith as ts
from tilesmith.frontend.load import inspect, load
from tilesmith.graph.evaluate import evaluate
from tilesmith.support.errors import ModelError, TilesmithError, UnsupportedError, UsageError
from written_models.keras import older_file


def _saved(path: Path, *layers: Any) -> Path:
    keras.Sequential([keras.Input((5,), name="x"), *layers]).save(path)
    return path


@pytest.mark.parametrize("ending", ("keras", "h5"))
def test_a_compiled_model_keeps_its_batch_open(tmp_path: Path, ending: str) -> None:
    model = keras.Sequential([keras.Input((5,), name="x"), L.Dense(4, activation="relu")])
    path = tmp_path / f"model.{ending}"
    model.save(path)
    compiled = ts.compile(path, threads=1)
    for rows in (1, 3):
        x = np.random.default_rng(rows).normal(size=(rows, 5)).astype("f")
        (found,) = compiled.run({"x": x}).values()
        np.testing.assert_allclose(found, model.predict(x, verbose=0), 1e-5, 1e-5)


def test_facts_about_a_file(tmp_path: Path) -> None:
    facts = inspect(_saved(tmp_path / "m.keras", L.Dense(4), L.Lambda(lambda x: x, (4,))))
    assert facts.format == "Keras archive"
    assert facts.producer == f"Keras {keras.__version__}"
    assert facts.inputs == {"x": "f32[batch,5]"}
    assert facts.operators["Dense"] == 1
    assert facts.unsupported == {"Lambda"}
    assert facts.weight_bytes == 4 * (5 * 4 + 4)


def test_no_code_of_a_file_is_run(tmp_path: Path) -> None:
    path = _saved(tmp_path / "m.keras", L.Lambda(lambda x: x, (5,)))
    with pytest.raises(UnsupportedError, match="runs code of its author"):
        load(path)


class Own(keras.Model):
    """A model of its own class."""

    def call(self, x: Any) -> Any:
        return x


def test_a_class_of_ones_own_is_refused(tmp_path: Path) -> None:
    model = Own()
    model(np.zeros((1, 5), "f"))
    model.save(tmp_path / "m.keras")
    with pytest.raises(UnsupportedError, match="whose code is not in the file"):
        load(tmp_path / "m.keras")


def test_the_missing_package_is_named(tmp_path: Path, monkeypatch: Any) -> None:
    path = _saved(tmp_path / "m.keras", L.Dense(4))
    monkeypatch.setitem(sys.modules, "h5py", None)
    with pytest.raises(UsageError, match=r"tilesmith\[keras\]"):
        load(path)


def test_a_file_of_keras_1() -> None:
    rng = np.random.default_rng(0)
    w, b, d = rng.normal(size=(3, 2, 3, 4)), rng.normal(size=4), rng.normal(size=(4, 2))
    convolution = {
        "name": "c",
        "batch_input_shape": [None, 6, 5, 3],
        "nb_filter": 4,
        "nb_row": 3,
        "nb_col": 2,
        "subsample": [1, 1],
        "border_mode": "valid",
        "dim_ordering": "tf",
        "bias": True,
        "activation": "relu",
    }
    config = [
        {"class_name": "Convolution2D", "config": convolution},
        {"class_name": "GlobalAveragePooling2D", "config": {"name": "g", "dim_ordering": "tf"}},
        {"class_name": "Dense", "config": {"name": "d", "output_dim": 2, "bias": False}},
    ]
    arrays = {"c": [w.astype("f"), b.astype("f")], "g": [], "d": [d.astype("f")]}
    graph = load(older_file(b"1.2.2", "Sequential", config, arrays))
    x = rng.normal(size=(2, 6, 5, 3)).astype("f")
    (found,) = evaluate(graph, [x]).values()
    windows = np.lib.stride_tricks.sliding_window_view(x, (3, 2), (1, 2))
    y = np.maximum(np.einsum("nhwcij,ijco->nhwo", windows, w) + b, 0).mean((1, 2)) @ d
    np.testing.assert_allclose(found, y, 1e-4, 1e-4)


def test_a_functional_file_of_keras_2() -> None:
    dense = {"name": "d", "units": 4, "use_bias": True, "activation": "linear"}
    layers = [
        {
            "name": "x",
            "class_name": "InputLayer",
            "config": {"name": "x", "batch_input_shape": [None, 5], "dtype": "float32"},
            "inbound_nodes": [],
        },
        {
            "name": "d",
            "class_name": "Dense",
            "config": dense,
            "inbound_nodes": [[["x", 0, 0, {}]]],
        },
        {
            "name": "a",
            "class_name": "Add",
            "config": {"name": "a"},
            "inbound_nodes": [[["d", 0, 0, {}], ["d", 0, 0, {}]]],
        },
    ]
    config = {"layers": layers, "input_layers": [["x", 0, 0]], "output_layers": [["a", 0, 0]]}
    rng = np.random.default_rng(0)
    w, b, x = (rng.normal(size=s).astype("f") for s in ((5, 4), (4,), (3, 5)))
    graph = load(older_file(b"2.2.4", "Model", config, {"x": [], "d": [w, b], "a": []}))
    (found,) = evaluate(graph, [x]).values()
    np.testing.assert_allclose(found, 2 * (x @ w + b), 1e-5, 1e-5)


def test_functions_of_tensorflow_in_a_file_of_keras_2() -> None:
    function = {"class_name": "TFOpLambda", "config": {"name": "s", "function": "math.subtract"}}
    layers = [
        {
            "name": "x",
            "class_name": "InputLayer",
            "config": {"name": "x", "batch_input_shape": [None, 5], "dtype": "float32"},
            "inbound_nodes": [],
        },
        {
            **function,
            "name": "s",
            "inbound_nodes": [["_CONSTANT_VALUE", -1, 2.0, {"y": ["x", 0, 0]}]],
        },
    ]
    config = {"layers": layers, "input_layers": [["x", 0, 0]], "output_layers": [["s", 0, 0]]}
    x = np.random.default_rng(0).normal(size=(3, 5)).astype("f")
    (found,) = evaluate(load(older_file(b"2.15.0", "Functional", config, {})), [x]).values()
    np.testing.assert_allclose(found, 2 - x, 1e-6)


def test_links_out_of_a_file_are_not_followed() -> None:
    buffer = io.BytesIO(older_file(b"2.2.4", "Sequential", {"layers": []}, {}))
    with h5py.File(buffer, "a") as file:
        file["model_weights/d"] = h5py.ExternalLink("other.h5", "/secret")
    with pytest.raises(ModelError, match="found a link"):
        load(buffer.getvalue())


def test_an_archive_that_unpacks_to_too_much_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "m.keras"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("metadata.json", "{}")
        archive.writestr("config.json", " " * (1 << 27))
        archive.writestr("model.weights.h5", "")
    with pytest.raises(ModelError, match="more than are allowed"):
        load(path)


@pytest.mark.parametrize("ending", ("keras", "h5"))
def test_damaged_files_give_typed_errors(tmp_path: Path, ending: str) -> None:
    content = _saved(tmp_path / f"m.{ending}", L.Dense(4)).read_bytes()
    rng = np.random.default_rng(0)
    for _ in range(60):
        damaged = bytearray(content)
        for place in rng.integers(8, len(content), 4):
            damaged[place] = rng.integers(256)
        with contextlib.suppress(TilesmithError):
            load(bytes(damaged))
