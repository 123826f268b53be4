"""The version of the schedules changes with the code that makes kernels, and only then."""

from __future__ import annotations

from pathlib import Path

from tilesmith.search_space.version import SOURCES, schedule_version, version_of

PACKAGE = Path(version_of.__code__.co_filename).resolve().parents[1]


def sources(root: Path, **files: str) -> Path:
    """A package of `files`: contents by name in the folder `strategy`."""
    (root / "strategy").mkdir(parents=True)
    for name, contents in files.items():
        (root / "strategy" / f"{name}.py").write_text(contents)
    return root


def test_it_is_of_contents_and_names_not_of_the_place(tmp_path: Path) -> None:
    first = version_of(sources(tmp_path / "a", matmul="x = 1", rows="y = 2"))
    assert first > 0
    assert version_of(sources(tmp_path / "b", matmul="x = 1", rows="y = 2")) == first
    changed = [
        sources(tmp_path / "c", matmul="x = 2", rows="y = 2"),
        sources(tmp_path / "d", matmul="x = 1", columns="y = 2"),
        sources(tmp_path / "e", matmul="x = 1y", rows=" = 2"),
    ]
    assert len({first, *map(version_of, changed)}) == 4


def test_only_what_makes_kernels_counts(tmp_path: Path) -> None:
    root = sources(tmp_path, matmul="x = 1")
    before = version_of(root)
    (root / "cli").mkdir()
    (root / "cli" / "tune.py").write_text("z = 3")
    assert version_of(root) == before


def test_every_folder_exists() -> None:
    assert all(any((PACKAGE / s).rglob("*.py")) for s in SOURCES)
    assert schedule_version() == version_of(PACKAGE)
