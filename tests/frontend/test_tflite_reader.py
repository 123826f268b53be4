"""The reader of TFLite files: tensors, quantisation, signatures, damaged files."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import tilesmith as ts
from tflite_models import ModelWriter
from tilesmith.frontend.load import inspect


def test_model_of_one_operator() -> None:
    model = ModelWriter()
    g = model.graph()
    x, y = g.input((2, 3), name="x"), g.tensor((2, 3), name="y")
    g.op("EXP", [x], [y], "ExpOptions")
    g.output(y)
    exe = ts.compile(model.bytes())
    values = np.random.default_rng(0).standard_normal((2, 3)).astype(np.float32)
    np.testing.assert_allclose(exe(values), np.exp(values), rtol=1e-6)
    assert [i.name for i in exe.inputs] == ["x"]
    assert [o.name for o in exe.outputs] == ["y"]


def test_inspection_marks_operators_that_nobody_knows(tmp_path: Path) -> None:
    model = ModelWriter()
    g = model.graph()
    x = g.input((-1, 3), np.int8, name="x", scale=0.5, zero=3)
    y = g.tensor((-1, 3), np.int8, name="y", scale=0.5, zero=3)
    g.op("Strange", [x], [y])
    g.output(y)
    path = tmp_path / "a.bin"  # recognised by its content
    path.write_bytes(model.bytes())
    facts = inspect(path)
    assert facts.format == "TFLite, schema version 3"
    assert facts.inputs == {"x": "int8[?,3], scale 0.5, zero point 3"}
    assert facts.operators == {"Strange": 1} and facts.unsupported == {"Strange"}


def test_fixed_inputs_can_be_resized() -> None:
    """By a shape, or opened for a range of sizes: as `resize_tensor_input` does in TFLite."""
    model = ModelWriter()
    g = model.graph()
    x, y = g.input((1, 3), name="x"), g.tensor((1, 2), name="y")
    w = np.arange(6, dtype=np.float32).reshape(2, 3)
    g.op("FULLY_CONNECTED", [x, g.const(w), -1], [y], "FullyConnectedOptions")
    g.output(y)
    values = np.random.default_rng(0).standard_normal((4, 3)).astype(np.float32)
    for arguments in ({"shapes": {"x": (4, 3)}}, {"dynamic": {"x": {0: (1, 8)}}}):
        exe = ts.compile(model.bytes(), **arguments)
        np.testing.assert_allclose(exe(values), values @ w.T, rtol=1e-5)
    with pytest.raises(ts.ModelError, match="expected"):
        ts.compile(model.bytes(), shapes={"x": (4, 5)})
