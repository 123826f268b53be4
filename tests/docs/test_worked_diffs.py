"""The worked diffs of ARCHITECTURE.md apply to this tree, and their tests pass with them.

A `docs/worked/*.diff` begins with lines of text, which `git apply` ignores.  The line `Tests:`
says what pytest is to run.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tilesmith.runtime import _native

ROOT = Path(__file__).resolve().parents[2]
OWN = {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
"""Loading the plugins takes most of the time of a small test, which needs none."""

DIFFS = sorted((ROOT / "docs" / "worked").glob("*.diff"))


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of this tree, with what Python has compiled of it."""
    copy = tmp_path_factory.mktemp("tree")
    for part in ("src", "tests", "docs", "benchmarks"):
        shutil.copytree(ROOT / part, copy / part)
    for file in ("pyproject.toml", ".importlinter"):
        shutil.copy(ROOT / file, copy)
    native = Path(_native.__file__)  # where the package is installed
    shutil.copy(native, copy / "src" / "tilesmith" / "runtime" / native.name)
    return copy


@pytest.mark.parametrize("diff", DIFFS, ids=lambda d: d.stem)
def test_worked_diff(diff: Path, tree: Path) -> None:
    named = re.search(r"^Tests: (.+)$", diff.read_text(encoding="utf-8"), re.MULTILINE)
    assert named is not None, "the diff names no tests"
    subprocess.run(["git", "apply", str(diff)], cwd=tree, check=True)
    try:
        done = subprocess.run(
            [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", *shlex.split(named[1])],
            cwd=tree,
            env=os.environ | OWN | {"PYTHONPATH": str(tree / "src")},
            capture_output=True,
            text=True,
        )
    finally:
        subprocess.run(["git", "apply", "--reverse", str(diff)], cwd=tree, check=True)
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-2000:]


def test_the_page_shows_every_diff() -> None:
    page = (ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8")
    assert [d for d in DIFFS if f"docs/worked/{d.name}" in page] == DIFFS
    assert len(DIFFS) == page.count("](docs/worked/")
