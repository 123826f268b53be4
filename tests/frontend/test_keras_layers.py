"""Keras' layers and operations, compared with Keras itself."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from keras_cases import CASES

from tilesmith.frontend.load import load
from tilesmith.graph.evaluate import evaluate

ROWS = 3


def _inputs(model: Any) -> dict[str, np.ndarray]:
    """Random inputs; open dimensions become 7."""
    rng = np.random.default_rng(0)
    made = {}
    for t in model.inputs:
        shape = [ROWS, *(7 if d is None else d for d in t.shape[1:])]
        if t.dtype.startswith("int"):
            made[t.name] = rng.integers(0, 11, shape).astype(t.dtype)
            made[t.name][:, -2:] = 0 if len(shape) == 2 and shape[1] == 8 else made[t.name][:, -2:]
        elif t.dtype == "bool":
            made[t.name] = rng.random(shape) < 0.5
        else:
            made[t.name] = rng.normal(size=shape).astype(t.dtype)
    return made


@pytest.mark.parametrize("name", CASES)
def test_results_equal_those_of_keras(name: str, tmp_path: Path) -> None:
    import keras
    import torch

    keras.utils.set_random_seed(0)
    model = CASES[name]()
    rng = np.random.default_rng(1)
    for v in model.weights:
        if v.dtype.startswith("float") and v.name not in ("variance", "count"):
            v.assign(
                rng.uniform(0.1, 1.0, v.shape)
                * (1 if "moving" in v.name else rng.choice((-1, 1), v.shape))
            )
    inputs = _inputs(model)
    with torch.no_grad():
        given = {name: torch.from_numpy(array) for name, array in inputs.items()}
        result = model(given if len(given) > 1 else given[model.inputs[0].name])
    wanted = [np.asarray(t) for t in keras.tree.flatten(result)]
    paths = [tmp_path / "model.keras", tmp_path / "model.h5"]
    for path in paths:
        model.save(path)
        graph = load(str(path))
        found = list(evaluate(graph, inputs).values())
        assert len(found) == len(wanted)
        for a, b in zip(found, wanted, strict=True):
            assert a.shape == b.shape
            tolerance = 1e-2 if b.dtype == np.float16 else 2e-5
            np.testing.assert_allclose(
                a.astype(b.dtype) if b.dtype.kind in "bi" else a, b, tolerance, tolerance
            )
