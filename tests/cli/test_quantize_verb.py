"""`tilesmith quantize`."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """A folder of two files with five samples for the model of the command line's tests."""
    folder = tmp_path / "samples"
    folder.mkdir()
    rng = np.random.default_rng(3)
    np.savez(folder / "a.npz", x=rng.standard_normal((4, 3, 8, 8)).astype(np.float32))
    np.save(folder / "b.npy", rng.standard_normal((1, 3, 8, 8)).astype(np.float32))
    return folder


def test_it_writes_onnx_and_reports_each_layer(tilesmith, model, data, tmp_path):
    product = tmp_path / "q.onnx"
    given = ("--data", data, "-o", product, "--scheme", "int8")
    found = tilesmith("quantize", model, *given, "--json").json
    assert found["samples"] == 5 and found["bytes"] == product.stat().st_size
    assert [x["scheme"] for x in found["layers"]] == ["int8", "int8"]
    assert found["snr"] > 25 and found["cosine"] > 0.99
    kinds = {n.op_type for n in onnx.load(product).graph.node}
    assert {"QuantizeLinear", "DequantizeLinear", "Conv"} <= kinds
    assert tilesmith("run", product).code == 0


def test_it_writes_an_executable(tilesmith, model, data, tmp_path):
    product = tmp_path / "q.tsm"
    found = tilesmith(
        "quantize", model, "--data", data, "-o", product, "--scheme", "int8-dynamic",
        "--pin", "conv*=f32",
    )  # fmt: skip
    assert found.code == 0, found.err
    assert "conv1" in found.out and "int8-dynamic" in found.out and f"wrote {product}" in found.out
    assert tilesmith("run", product, "--input", data / "b.npy").code == 0


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"--data": "nowhere"}, "there is no file or folder 'nowhere' of samples"),
        ({"-o": "q.txt"}, "expected an .onnx or .tsm file to write, found 'q.txt'"),
        ({"-o": "nowhere/q.onnx"}, "the folder of 'nowhere/q.onnx' does not exist"),
        ({"--scheme": "int5"}, "scheme must be one of"),
        ({"--pin": "conv9=f32"}, "pins: no layer is called 'conv9'"),
        ({"--data": None}, "give data"),
    ],
)
def test_wrong_use(tilesmith, model, data, tmp_path, change, message):
    given = {"--data": data, "-o": tmp_path / "q.onnx", **change}
    options = [part for k, v in given.items() if v is not None for part in (k, v)]
    found = tilesmith("quantize", model, *options)
    assert found.code == 1 and message in found.err


def test_a_folder_without_samples(tilesmith, model, tmp_path):
    (tmp_path / "empty").mkdir()
    found = tilesmith("quantize", model, "--data", tmp_path / "empty", "-o", tmp_path / "q.onnx")
    assert found.code == 1 and "has no samples" in found.err
    compiled = tmp_path / "m.tsm"
    found = tilesmith("quantize", compiled, "-o", tmp_path / "q.onnx")
    assert found.code == 1 and "is compiled already" in found.err
