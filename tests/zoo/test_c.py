"""Whole networks compiled from portable C: PyTorch's answers."""

from __future__ import annotations

import pytest
from zoo_models import Model, assert_right

import tilesmith as ts


@pytest.mark.only("squeezenet1_1", "mobilenet_v2", "minilm")
def test_answers_in_c(model: Model) -> None:
    exe = ts.compile(model.path, target="c", threads=1)
    assert exe.program.target.backend == "c"
    assert_right(model, exe.run(model.inputs))
