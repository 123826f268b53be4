"""The page on PyTorch's operators lists those that there are."""

from __future__ import annotations

from pathlib import Path

import pytest

import tilesmith.frontend.aten  # noqa: F401  (registers the operators)
from tilesmith.frontend.aten.registry import OPERATORS

PAGE = Path(__file__).resolve().parents[2] / "docs" / "torch-operators.md"


def test_the_page_lists_the_operators_of_the_table():
    pytest.importorskip("torch")
    from torch_operators import core_overloads

    text = PAGE.read_text(encoding="utf-8")
    rows = [line.split(" | ") for line in text.splitlines() if line.startswith("| `aten.")]
    states = {row[0].removeprefix("| `").removesuffix("`"): row[1] for row in rows}
    assert [*states] == core_overloads()
    native = {name for _, name in OPERATORS}
    refused = {name for name, state in states.items() if state.startswith("refused: ")}
    assert refused == {*states} - native
    assert {states[n] for n in native & {*states}} == {"native", "native in training"}
    beyond = text.partition("## Beyond core ATen")[2].partition("\n## ")[0].splitlines()
    listed = [line.removeprefix("- `").removesuffix("`") for line in beyond if line]
    assert listed == sorted(native - {*states}), "run: python -m benchmarks.torch_operators --list"
