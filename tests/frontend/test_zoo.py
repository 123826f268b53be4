"""The zoo: exported networks import and evaluate to PyTorch's answers."""

from __future__ import annotations

import numpy as np
import pytest

from tilesmith.frontend.onnx import load
from tilesmith.graph.evaluate import evaluate
from tilesmith.graph.verify import verify

SMALL = ("resnet18", "squeezenet1_1", "minilm")
LARGE = ("resnet50", "mobilenet_v2", "efficientnet_b0", "densenet121", "vit_b_16", "bert_base")


@pytest.mark.parametrize("name", [*SMALL, *(pytest.param(n, marks=pytest.mark.zoo) for n in LARGE)])
def test_network(zoo, name):
    graph = load(zoo / f"{name}.onnx")
    verify(graph)
    with np.load(zoo / f"{name}.npz") as arrays:
        inputs = {k.removeprefix("in_"): arrays[k] for k in arrays.files if k.startswith("in_")}
        expected = {k.removeprefix("out_"): arrays[k] for k in arrays.files if k.startswith("out_")}
    found = evaluate(graph, inputs)
    assert found.keys() == expected.keys()
    for k, want in expected.items():
        assert np.abs(found[k] - want).max() <= 1e-3 * np.abs(want).max(), k
