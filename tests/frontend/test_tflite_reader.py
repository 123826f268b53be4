"""The reader of TFLite files: tensors, quantisation, signatures, damaged files."""

from __future__ import annotations

import numpy as np
from tflite_models import ModelWriter

import tilesmith as ts


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
