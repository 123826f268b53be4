"""`tests/` has a folder for each room of `src`, and tests import nothing of other tests.

What the tests of several rooms share is in `tests/common`; what those of one room share is in a
module of its folder that is no test.
"""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

TESTS = Path(__file__).resolve().parents[1]
ROOMS = {p.parent.name for p in (TESTS.parent / "src" / "tilesmith").glob("*/__init__.py")}
BESIDES = {
    "common": "programs, cases and checks that the tests of several rooms share",
    "docs": "pages, examples and the worked diffs",
    "golden": "texts that tests compare with",
    "install": "building and installing",
    "replay": "what two versions make of the same models",
    "repository": "the folders of src and of tests",
    "zoo": "whole networks",
}
"""Folders of `tests` that are no room -> what is in them."""

MODULES: dict[str, set[Path]] = defaultdict(set)
"""Name of a module that tests may import -> where there are such."""
for path in sorted(TESTS.rglob("*.py")):
    MODULES[path.stem].add(path)


def is_test(path: Path) -> bool:
    return path.name.startswith("test_") or path.name == "conftest.py"


def imported(source: str) -> Iterator[str]:
    """The modules that `source` imports, as they are written; of packages also what is taken from
    them.
    """
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            yield from (name.name for name in node.names)
        elif isinstance(node, ast.ImportFrom):
            module = "." * node.level + (node.module or "")
            yield module
            yield from (f"{module}.{name.name}" for name in node.names)


def wrong(path: Path, source: str) -> Iterator[str]:
    """The modules of other tests, and of other folders, that a file imports."""
    folder = path.relative_to(TESTS).parts[0]
    for name in imported(source):
        first, _, rest = name.lstrip(".").partition(".")
        if not name.startswith(".") and (TESTS / first / "__init__.py").exists():
            if first not in (folder, "common"):
                yield f"{path.name} imports {name}, of another folder"
            if first != folder:
                continue
            first = rest.partition(".")[0]
        places = MODULES.get(first, set())
        own = {p for p in places if p.relative_to(TESTS).parts[0] == folder}
        if any(is_test(p) for p in own or places):
            yield f"{path.name} imports {name}, which is a test"
        elif places and not own:
            yield f"{path.name} imports {name}, of another folder"


def test_each_room_has_a_folder_and_each_folder_is_for_something() -> None:
    folders = {p.name for p in TESTS.iterdir() if p.is_dir() and p.name != "__pycache__"}
    assert folders == ROOMS | {*BESIDES}


def test_tests_import_nothing_of_other_tests() -> None:
    found = [
        line
        for places in MODULES.values()
        for path in places
        for line in wrong(path, path.read_text(encoding="utf-8"))
    ]
    assert not found


def test_names_of_modules_are_unique() -> None:
    """pytest imports a test by its name alone, unless its folder is a package."""
    twice = {
        name: sorted(str(p.relative_to(TESTS)) for p in alone)
        for name, places in MODULES.items()
        if len(alone := [p for p in places if not (p.parent / "__init__.py").exists()]) > 1
    }
    assert set(twice) <= {"conftest"}


def test_what_is_wrong_is_found() -> None:
    file = TESTS / "te" / "test_new.py"
    lines = {
        "from .test_golden import EXAMPLES": "a test",
        "from te.test_golden import EXAMPLES": "a test",
        "import test_budget": "a test",
        "from loop_programs import run": "of another folder",
        "from loop.functions import FUNCTIONS": "of another folder",
    }
    for line, expected in lines.items():
        found = list(wrong(file, line))
        assert found and all(expected in why for why in found), line
    for line in ("from .examples import EXAMPLES", "from common.matrices import f", "import torch"):
        assert not list(wrong(file, line)), line
