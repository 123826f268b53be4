"""The page on TFLite models lists the operators that there are."""

from __future__ import annotations

from pathlib import Path

import pytest

from tilesmith.cli.ops import tflite_operators

PAGE = Path(__file__).resolve().parents[2] / "docs" / "tflite.md"


def test_the_page_lists_the_operators_of_the_tables(request: pytest.FixtureRequest) -> None:
    text, _, listed = PAGE.read_text(encoding="utf-8").partition("marked q also")
    intro, _, listed = listed.partition("\n\n")
    rows = tflite_operators()
    expected = "".join(f"- `{r['name']}`{' q' * r['quantised']}\n" for r in rows)
    if request.config.getoption("--update-golden"):
        PAGE.write_text(f"{text}marked q also{intro}\n\n{expected}", encoding="utf-8")
        return
    assert listed == expected, "run: pytest tests/docs/test_tflite_page.py --update-golden"
