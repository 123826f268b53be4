"""The example that quantises a trained network."""

from __future__ import annotations

import runpy
from pathlib import Path

import pytest

pytest.importorskip("torch", reason="the network of the example is trained with PyTorch")

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "quantise_digits.py"


def test_digits_lose_less_than_half_a_point():
    found = runpy.run_path(str(EXAMPLE))["main"](("int8",))
    assert found["f32"] > 0.95
    assert {k: v for k, v in found.items() if v < found["f32"] - 0.005} == {}
