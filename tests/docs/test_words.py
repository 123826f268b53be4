"""The words of docstrings and the names of locals, in the rooms that are clean.

A docstring begins with a verb or with a noun phrase that stands alone.  A local name says what it
holds.  Rooms are added when they are clean, and stay so.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

SRC = Path(__file__).resolve().parents[2] / "src" / "tilesmith"

CLEAN = (
    "backend",
    "cli",
    "codegen",
    "driver",
    "engines",
    "frontend",
    "graph",
    "host_functions",
    "ir",
    "loop",
    "ops",
    "perf",
    "program",
    "quantisation",
    "runtime",
    "search_space",
    "strategy",
    "support",
    "te",
    "tuning",
)
"""Folders of `src/tilesmith`."""

_OPENERS = re.compile(r"(What|How|Why|Where|When|Which|Whether what)\b")
_EMPTY_NAMES = ("found", "given", "at")
_SCOPES = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)


def docstrings(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Lines and texts of all docstrings, also of those behind constants."""
    for node in ast.walk(tree):
        body = getattr(node, "body", None)
        for s in body if isinstance(body, list) else ():
            if isinstance(s, ast.Expr) and isinstance(s.value, ast.Constant):
                text = s.value.value
                if isinstance(text, str):
                    yield s.lineno, text


def locals_of(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Lines and names of the variables that functions bind, without their parameters."""
    functions = (n for n in ast.walk(tree) if isinstance(n, _SCOPES))
    names = {id(n): n for f in functions for n in ast.walk(f) if isinstance(n, ast.Name)}
    yield from ((n.lineno, n.id) for n in names.values() if isinstance(n.ctx, ast.Store))


def unclear(source: str) -> list[str]:
    """`line: word` for each opener of a docstring and each local name that says nothing."""
    tree = ast.parse(source)
    openers = ((n, _OPENERS.match(text.strip())) for n, text in docstrings(tree))
    found = [f"{n}: {m[0]}" for n, m in openers if m is not None]
    return found + [f"{n}: {name}" for n, name in locals_of(tree) if name in _EMPTY_NAMES]


@pytest.mark.parametrize("room", CLEAN)
def test_a_clean_room_stays_clean(room: str):
    paths = sorted((SRC / room).rglob("*.py"))
    assert paths
    words = {str(p.relative_to(SRC)): w for p in paths if (w := unclear(p.read_text("utf-8")))}
    assert not words, f"begin with a verb or a noun, and name what a local holds: {words}"


@pytest.mark.parametrize(
    ("source", "words"),
    [
        ('def f():\n    """What a tile needs."""', ["2: What"]),
        ('A = 1\n"""How many tiles."""', ["2: How"]),
        ('def f():\n    """Whether whatever is read is aligned."""', []),
        ("def f(found):\n    at = [given for given in found]", ["2: at", "2: given"]),
        ("def f(found):\n    return g(at=found)", []),
    ],
)
def test_the_check_finds_unclear_words(source: str, words: list[str]):
    assert sorted(unclear(source)) == sorted(words)
