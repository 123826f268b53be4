"""The metadata of TFLite models: text, normalisation and labels."""

from __future__ import annotations

import io
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tilesmith as ts
from tflite_models import ModelWriter, flatbuffer
from tilesmith.frontend.load import inspect
from tilesmith.frontend.tflite.metadata import SCHEMA
from tilesmith.support.described import Described

LABELS = "cat\ndog\nhare\n"


def classifier(labels: str | None = LABELS, damaged: bool = False) -> bytes:
    """The sums of the channels of a picture, with metadata about it."""
    model = ModelWriter()
    g = model.graph()
    x, y = g.input((1, 2, 2, 3), name="x"), g.tensor((1, 3), name="y")
    axes = g.const(np.array([1, 2], np.int32))
    g.op("SUM", [x, axes], [y], "ReducerOptions")
    g.output(y)
    normalization = {"mean": [127.5, 127.5, 127.5], "std": [2.0, 4.0, 8.0]}
    image = {"color_space": 1, "default_size": {"width": 2, "height": 2}}
    files = [("other.txt", 1, None), ("names-de.txt", 2, "de"), ("names.txt", 2, None)]
    about: dict[str, Any] = {
        "name": "Animals",
        "description": "Tells animals apart.",
        "subgraph_metadata": [
            {
                "input_tensor_metadata": [
                    {
                        "name": "image",
                        "description": "A picture.",
                        "content": {
                            "content_properties": image,
                            "content_properties_kind": "ImageProperties",
                        },
                        "process_units": [
                            {"options": normalization, "options_kind": "NormalizationOptions"}
                        ],
                    }
                ],
                "output_tensor_metadata": [
                    {
                        "name": "animal",
                        "associated_files": [
                            {"name": name, "type": kind, "locale": locale}
                            for name, kind, locale in files
                        ],
                    }
                ],
            }
        ],
        "author": "Ada",
    }
    content = flatbuffer("ModelMetadata", about, SCHEMA, b"M001")
    model.describe("TFLITE_METADATA", content[:-9] if damaged else content)
    if labels is None:
        return model.bytes()
    stream = io.BytesIO(model.bytes())
    with zipfile.ZipFile(stream, "a") as z:
        z.writestr("names.txt", labels)
        z.writestr("names-de.txt", "Katze\nHund\nHase\n")
    return stream.getvalue()


def test_an_inspection_has_what_the_file_says() -> None:
    found = inspect(classifier())
    assert {k: found.metadata[k] for k in ("name", "description", "author")} == {
        "name": "Animals",
        "description": "Tells animals apart.",
        "author": "Ada",
    }
    image, animal = found.described["x"], found.described["y"]
    assert str(image) == (
        "image; RGB image of 2x2; A picture.; normalised as (x - 127.5) / [2, 4, 8]"
    )
    assert animal.labels == ("cat", "dog", "hare")
    assert str(animal) == "animal; labels (3): cat, dog, hare"


def test_a_program_keeps_it(tmp_path: Path) -> None:
    exe = ts.compile(classifier())
    exe.save(tmp_path / "m.tsm")
    described = ts.load(tmp_path / "m.tsm").program.described
    assert described == inspect(classifier()).described
    pixels = np.arange(12, dtype=np.uint8).reshape(1, 2, 2, 3)
    expected = (pixels - np.float32(127.5)) / np.array([2, 4, 8], np.float32)
    np.testing.assert_array_equal(described["x"].normalized(pixels), expected)


def test_labels_that_a_tool_left_out() -> None:
    assert inspect(classifier(None)).described["y"].labels == ()
    content = classifier()
    at = content.index(b"PK\x03\x04")
    broken = content[:at] + b"XX" + content[at + 2 :]
    assert inspect(broken).described["y"].labels == ()
    assert ts.compile(classifier(None)).program.described["x"].is_normalized


def test_a_deviation_of_0_is_no_normalisation() -> None:
    assert Described(mean=(1.0,), std=(2.0,)).is_normalized
    assert not Described(mean=(1.0,), std=(0.0,)).is_normalized


def test_damaged_metadata_are_refused() -> None:
    with pytest.raises(ts.ModelError, match="damaged file"):
        inspect(classifier(damaged=True))
