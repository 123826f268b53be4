"""The programs of examples/te/ are right, and as short as they say."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path

import pytest

TE = Path(__file__).resolve().parents[2] / "examples" / "te"
sys.path.insert(0, str(TE))
FILES = ("basics", "images", "networks", "grids")
TUTORIALS = [t for name in FILES for t in importlib.import_module(name).TUTORIALS]
sys.path.remove(str(TE))


def test_every_file_of_tutorials_is_listed() -> None:
    assert {p.stem for p in TE.glob("*.py")} == {*FILES, "tutorial"}
    assert len({t.name for t in TUTORIALS}) == len(TUTORIALS) >= 20


@pytest.mark.parametrize("tutorial", TUTORIALS, ids=lambda t: t.name)
def test_tutorial(tutorial) -> None:  # type: ignore[no-untyped-def]
    assert tutorial.error() < 2e-5
    assert tutorial.lines <= 1.2 * tutorial.original_lines
