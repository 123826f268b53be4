"""TFLite's signatures and metadata on the command line."""

from __future__ import annotations

import io
import zipfile

import numpy as np
import pytest

from tflite_models import ModelWriter, flatbuffer
from tilesmith.frontend.tflite.metadata import SCHEMA


def test_a_signature_is_chosen(tilesmith, tmp_path):
    model = ModelWriter()
    for number, (key, kind) in enumerate((("up", "EXP"), ("down", "NEG"))):
        g = model.graph(key)
        x, y = g.input((2,), name="x"), g.tensor((2,), name="y")
        g.op(kind, [x], [y])
        g.output(y)
        model.signatures.append(
            {
                "inputs": [{"name": "given", "tensor_index": x}],
                "outputs": [{"name": f"y_{key}", "tensor_index": y}],
                "signature_key": key,
                "subgraph_index": number,
            }
        )
    path = tmp_path / "m.tflite"
    path.write_bytes(model.bytes())
    shown = tilesmith("inspect", path).out
    assert "signature down: given: float32[2] -> y_down: float32[2]" in shown
    for options, name in (((), "y_up"), (("--signature", "down"), "y_down")):
        done = tilesmith("run", path, *options, "--json").json
        assert [o["name"] for o in done["outputs"]] == [name]
    assert tilesmith("compile", path, "-o", tmp_path / "m.tsm").code == 0
    done = tilesmith("run", tmp_path / "m.tsm", "--signature", "down")
    assert done.code == 1 and "--signature has no effect on a compiled .tsm file" in done.err


@pytest.mark.parametrize("kind", [2, 3])
def test_labels_and_normalisation_are_shown(tilesmith, tmp_path, kind):
    """kind: of a file of labels, for the last axis or for the values."""
    model = ModelWriter()
    g = model.graph()
    x, y = g.input((1, 2, 2, 3), name="x"), g.tensor((1, 3), name="y")
    g.op("SUM", [x, g.const(np.array([1, 2], np.int32))], [y], "ReducerOptions")
    g.output(y)
    unit = {"options": {"mean": [1.0], "std": [4.0]}, "options_kind": "NormalizationOptions"}
    about = {
        "subgraph_metadata": [
            {
                "input_tensor_metadata": [{"name": "image", "process_units": [unit]}],
                "output_tensor_metadata": [{"associated_files": [{"name": "l", "type": kind}]}],
            }
        ]
    }
    model.describe("TFLITE_METADATA", flatbuffer("ModelMetadata", about, SCHEMA, b"M001"))
    stream = io.BytesIO(model.bytes())
    with zipfile.ZipFile(stream, "a") as z:
        z.writestr("l", "cat\ndog\nhare\n")
    path = tmp_path / "m.tflite"
    path.write_bytes(stream.getvalue())
    shown = tilesmith("inspect", path).out
    assert "    image; normalised as (x - 1) / 4\n" in shown
    assert "    labels (3): cat, dog, hare\n" in shown
    pixels = np.zeros((1, 2, 2, 3), np.uint8)
    pixels[0, 0, 0] = [5, 13, 9]  # normalised: 1, 3, 2
    pixels[0, 0, 1:], pixels[0, 1] = 1, 1
    np.save(tmp_path / "x.npy", pixels)
    done = tilesmith("run", path, "--input", tmp_path / "x.npy")
    assert "the u8 numbers of 'x' were normalised as (x - 1) / 4" in done.err
    best = "row 0, top 3: dog (3.0000), hare (2.0000), cat (1.0000)"
    assert {2: best, 3: "the first values: dog, 3.0, hare"}[kind] in done.out
    assert "'x' is to be normalised as (x - 1) / 4" in tilesmith("run", path).err


def test_comparing_with_litert(tilesmith, tmp_path):
    model = ModelWriter()
    g = model.graph()
    x, y = g.input((-1, 3), name="x"), g.tensor((1, 3), name="y")
    g.op("EXP", [x], [y])
    g.output(y)
    path = tmp_path / "m.tflite"
    path.write_bytes(model.bytes())
    done = tilesmith("compare", path, "--rounds", "1", "--shape", "x=4,3", "--json").json["runs"][0]
    assert set(done["engines"]) == {"tilesmith", "litert"} and not done["failed"]
    assert done["engines"]["litert"]["difference"] < 1e-6
    refused = tilesmith("compare", path, "--engine", "onnxruntime")
    assert refused.code == 1 and "engine 'onnxruntime' does not read 'm.tflite'" in refused.err
