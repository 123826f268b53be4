"""docs/ops.md is what the operator table says."""

from __future__ import annotations

from pathlib import Path

from tilesmith.ops.doc import render

PAGE = Path(__file__).parents[2] / "docs" / "ops.md"


def test_page_is_current() -> None:
    text = PAGE.read_text(encoding="utf-8")
    assert text == render(), "run: python -m tilesmith.ops.doc docs/ops.md"
