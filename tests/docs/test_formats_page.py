"""The page of formats is complete, and shows that enough models are equal."""

from __future__ import annotations

import re
from pathlib import Path

PAGE = Path(__file__).resolve().parents[2] / "docs" / "formats-conformance.md"
ROW = re.compile(r"^\| ([^|]+) \| (\d+) \| (\d+) \| (\d+) \| (\d+) \|", re.MULTILINE)
OPERATOR = re.compile(r"^\| ([^|]+) \| (\d+) \| (\d+) \|$", re.MULTILINE)


def test_enough_models_of_each_format_are_equal() -> None:
    head, *sections = PAGE.read_text(encoding="utf-8").split("\n## ")
    formats = {name: tuple(map(int, counts)) for name, *counts in ROW.findall(head)}
    assert len(formats) == 10
    assert [s.partition("\n")[0] for s in sections] == [*formats]
    for name, (cases, equal, refused, different) in formats.items():
        assert cases == equal + refused + different, name
        assert equal >= 0.97 * cases, name
    for section in sections:
        rows = OPERATOR.findall(section)
        assert rows
        assert all(int(equal) <= int(cases) for _, cases, equal in rows)
