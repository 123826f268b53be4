"""Docstrings of dataclasses: each field of a public one is described.

A field is described on a line of its own (`name: meaning`, also for several names at once), by its
name in the first paragraph, or by help text in its metadata.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

SRC = Path(__file__).resolve().parents[2] / "src"
_DESCRIBING = ("option", "_field", "_flag")
"""Ends of the names of functions that make a field of its description."""


def _is_dataclass(node: ast.ClassDef) -> bool:
    calls = (d.func if isinstance(d, ast.Call) else d for d in node.decorator_list)
    return any(isinstance(c, ast.Name) and c.id == "dataclass" for c in calls)


def _fields(node: ast.ClassDef) -> Iterator[str]:
    """The public fields whose metadata does not describe them."""
    for s in node.body:
        if not isinstance(s, ast.AnnAssign) or not isinstance(s.target, ast.Name):
            continue
        if s.target.id.startswith("_") or "ClassVar" in ast.unparse(s.annotation):
            continue
        if isinstance(s.value, ast.Call) and ast.unparse(s.value.func).endswith(_DESCRIBING):
            continue
        yield s.target.id


def undescribed(source: str) -> list[str]:
    """`Class.field` for each field of a public dataclass that its docstring doesn't describe."""
    found = []
    for node in ast.walk(ast.parse(source)):
        if not isinstance(node, ast.ClassDef) or node.name.startswith("_"):
            continue
        if not _is_dataclass(node):
            continue
        text = ast.get_docstring(node) or ""
        described = set(re.findall(r"\w+", text.split("\n\n")[0]))
        for names in re.findall(r"^(\w+(?:, \w+)*): ", text, re.MULTILINE):
            described.update(names.split(", "))
        found += [f"{node.name}.{name}" for name in _fields(node) if name not in described]
    return found


def test_every_field_of_a_public_dataclass_is_described():
    paths = sorted(SRC.rglob("*.py"))
    assert len(paths) > 100
    missing = {str(p.relative_to(SRC)): m for p in paths if (m := undescribed(p.read_text()))}
    assert not missing, f"describe these fields, a line for each in the docstring: {missing}"


@pytest.mark.parametrize(
    ("docstring", "missing"),
    [
        ("A tile.", ["Tile.rows", "Tile.lanes"]),
        ("A tile of `rows` rows.", ["Tile.lanes"]),
        ("A tile.\n\n    rows, lanes: extents.", []),
        ("A tile.\n\n    rows: extents.\n    The lanes: none.", ["Tile.lanes"]),
    ],
)
def test_the_check_finds_what_is_missing(docstring: str, missing: list[str]):
    fields = "    rows: int\n    lanes: int = 1\n    _known: int = 0\n    kind: ClassVar[str]"
    source = f'@dataclass(frozen=True)\nclass Tile:\n    """{docstring}\n    """\n{fields}\n'
    assert undescribed(source) == missing
