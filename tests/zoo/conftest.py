"""The zoo: exported networks with PyTorch's answers, in the folder that TILESMITH_ZOO names.

`benchmarks/zoo.py` makes the folder.  Without it these tests are skipped.
"""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest
from zoo_models import NAMES, Model


@pytest.fixture(scope="module")
def model(request: pytest.FixtureRequest) -> Model:
    """The model of a name: all of `NAMES` one after the other, unless the test says which."""
    folder = os.environ.get("TILESMITH_ZOO")
    if not folder:
        pytest.skip("TILESMITH_ZOO names no folder of exported models")
    path = Path(folder) / f"{request.param}.onnx"
    with np.load(path.with_suffix(".npz")) as arrays:
        return Model(
            request.param,
            path,
            {k.removeprefix("in_"): arrays[k] for k in arrays if k.startswith("in_")},
            {k.removeprefix("out_"): arrays[k] for k in arrays if k.startswith("out_")},
        )


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "model" in metafunc.fixturenames and metafunc.definition.get_closest_marker("only") is None:
        metafunc.parametrize("model", NAMES, indirect=True, scope="module")
    elif marker := metafunc.definition.get_closest_marker("only"):
        metafunc.parametrize("model", marker.args, indirect=True, scope="module")


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "only(name, ...): the zoo models that a test takes")
