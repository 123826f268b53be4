"""The page of the accelerator's instructions is current."""

from __future__ import annotations

from pathlib import Path

from tilesmith.accel import doc

DOCS = Path(__file__).resolve().parents[2] / "docs"


def test_the_page_of_instructions_is_that_of_the_table():
    path = DOCS / "accelerator-instructions.md"
    assert path.read_text() == doc.page(), f"run `python -m tilesmith.accel.doc docs/{path.name}`"
