"""Each pass is imported by a test of its own, beside the tests that run all passes."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SRC = ROOT / "src"
IRS = {"graph": "Graph", "loop": "Func"}
"""Room of a kind of passes -> what they map."""


def passes(source: str, ir: str) -> Iterator[str]:
    """The public functions from an IR to the same IR, alone or with what is known of it."""
    for node in ast.parse(source).body:
        if not isinstance(node, ast.FunctionDef) or node.name.startswith("_"):
            continue
        first = node.args.args[0].annotation if node.args.args else None
        if first is None or node.returns is None or ast.unparse(first) != ir:
            continue
        result = ast.unparse(node.returns)
        if result == ir or result.startswith(f"tuple[{ir},"):
            yield node.name


@cache
def imported() -> set[tuple[str, str]]:
    """Module and name of what tests import."""
    found = set()
    for path in (ROOT / "tests").rglob("*.py"):
        text = path.read_text(encoding="utf-8")
        for node in ast.walk(ast.parse(text)) if ".passes" in text else ():
            if isinstance(node, ast.ImportFrom) and node.module:
                found |= {(node.module, name.name) for name in node.names}
    return found


@pytest.mark.parametrize("room", IRS)
def test_each_pass_is_imported(room: str) -> None:
    known = imported()
    missing = [
        f"{module}.{name}"
        for path in sorted((SRC / "tilesmith" / room / "passes").glob("*.py"))
        for module in [".".join(path.relative_to(SRC).with_suffix("").parts)]
        for name in passes(path.read_text(encoding="utf-8"), IRS[room])
        if (module, name) not in known
    ]
    assert not missing


def test_what_a_pass_is() -> None:
    heads = "a(f: Func) -> Func", "b(x: int) -> Func", "_c(f: Func) -> Func", "d(f: Func) -> bool"
    source = "".join(f"def {head}: ...\n" for head in heads)
    assert list(passes(source, "Func")) == ["a"]
