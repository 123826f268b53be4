"""`.ci/budget.py`: what counts as code, and what fails."""

from __future__ import annotations

import importlib.util
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
_SPEC = importlib.util.spec_from_file_location("budget", ROOT / ".ci" / "budget.py")
assert _SPEC is not None and _SPEC.loader is not None
budget = importlib.util.module_from_spec(_SPEC)
_SPEC.loader.exec_module(budget)

PYTHON = '''"""A docstring
of two lines."""

import os  # a comment beside code


def f(x):
    """Another docstring."""
    # a comment
    return """a text
    of two lines""" + x
'''


def test_code_is_what_runs() -> None:
    assert budget.python_lines(PYTHON) == 4  # import, def, return and the second line of its text
    assert budget.c_lines("/* a\n b */\nint x; // c\n\n// d\nint y;\n") == 2


def test_the_rows_are_the_rooms_and_have_reasons() -> None:
    rows = tomllib.loads((ROOT / ".ci" / "budget.toml").read_text(encoding="utf-8"))
    package = ROOT / "src" / "tilesmith"
    assert set(rows) == {p.parent.name for p in package.glob("*/__init__.py")}
    assert all(set(row) == {"lines", "reason"} and row["reason"].strip() for row in rows.values())


@pytest.mark.parametrize(
    ("rows", "expected"),
    [
        ({"ir": {"lines": 10, "reason": "nodes"}}, None),
        ({"ir": {"lines": 9, "reason": "nodes"}}, "ir has 10 lines of code, its budget is 9"),
        ({"ir": {"lines": 10, "reason": " "}}, "without a reason"),
        ({}, "ir has no row"),
        (
            {"ir": {"lines": 10, "reason": "nodes"}, "te": {"lines": 1, "reason": "steps"}},
            "te has a row",
        ),
    ],
)
def test_problems(rows: dict[str, dict], expected: str | None) -> None:
    found = budget.problems({"ir": (1, 10)}, rows)
    assert len(found) == (expected is not None)
    assert expected is None or expected in found[0]


def test_a_file_that_grows_is_noticed(tmp_path: Path) -> None:
    (tmp_path / "ir").mkdir()
    file = tmp_path / "ir" / "nodes.py"
    file.write_text("x = 1\n")
    rows = {"ir": {"lines": 1, "reason": "nodes"}}
    assert budget.problems(budget.rooms(tmp_path), rows) == []
    file.write_text("x = 1\n# why\ny = 2\n")
    assert "ir has 2 lines of code" in budget.problems(budget.rooms(tmp_path), rows)[0]
