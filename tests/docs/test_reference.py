"""The generated reference has every public name."""

from __future__ import annotations

import re
from pathlib import Path
from types import ModuleType

import pytest

import tilesmith as ts
from tilesmith import te
from tilesmith.support import errors

API = Path(__file__).resolve().parents[2] / "docs" / "api"


def _named(page: str) -> set[str]:
    return set(re.findall(r"^\.\. auto\w+:: (?:[\w.]+\.)?(\w+)$", (API / page).read_text(), re.M))


def test_public_names_of_the_package_are_in_the_reference() -> None:
    by_module = {"ncnn", "ort", "te", "tengine", "tflite", "torch", "training"} | {
        n for n in ts.__all__ if getattr(errors, n, None) is getattr(ts, n)
    }
    assert set(ts.__all__) - by_module <= _named("tilesmith.md")


@pytest.mark.parametrize("package", [ts.ncnn, ts.ort, ts.tengine, ts.tflite, ts.torch, ts.training])
def test_public_names_for_others_are_in_the_reference(package: ModuleType) -> None:
    assert set(package.__all__) <= _named("tilesmith.md")


def test_public_names_of_te_have_docstrings() -> None:
    """Sphinx shows those that have one."""
    assert not [n for n in te.__all__ if not getattr(te, n).__doc__]
