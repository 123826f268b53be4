"""The reader of TFLite files: tensors, quantisation, signatures, damaged files."""

from __future__ import annotations

from pathlib import Path

import numpy as np

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
