"""Where exported zoo models are, for the tests that need them."""

from __future__ import annotations

import os
from pathlib import Path

import pytest


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "zoo: large zoo models, minutes and gigabytes; -m zoo")


@pytest.fixture(scope="session")
def zoo() -> Path:
    """The folder of exported models (NAME.onnx with NAME.npz: in_<input>, out_<output>)."""
    folder = os.environ.get("TILESMITH_ZOO")
    if folder is None or not Path(folder).is_dir():
        pytest.skip("TILESMITH_ZOO names no folder of exported models")
    return Path(folder)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if not config.getoption("-m"):
        for item in items:
            if item.get_closest_marker("zoo"):
                item.add_marker(pytest.mark.skip(reason="large model; run with -m zoo"))
