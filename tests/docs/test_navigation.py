"""Every page of docs/ is in the site's navigation, and README links every page."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
PAGES = {p.relative_to(DOCS).as_posix() for p in DOCS.rglob("*.md")}
TREE = re.compile(r"^```{toctree}\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def below(page: str) -> Iterator[str]:
    """The pages in the tables of contents of `page`, in those of these pages, and so on."""
    for tree in TREE.findall((DOCS / page).read_text(encoding="utf-8")):
        for entry in tree.split("\n"):
            if not entry or entry.startswith(":"):
                continue
            folder = (DOCS / page).parent
            targets = sorted(folder.glob(f"{entry}.md"))
            assert targets, f"docs/{page} lists {entry}, which is no page"
            for target in targets:
                name = target.relative_to(DOCS).as_posix()
                yield name
                yield from below(name)


def test_the_navigation_has_each_page_once() -> None:
    listed = ["index.md", *below("index.md")]
    assert sorted(listed) == sorted(PAGES)


def test_readme_links_every_page_and_the_index_of_each_folder() -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    linked = set(re.findall(r"\]\(docs/([^)#]+\.md)", text))
    folders = {f"{p.split('/')[0]}/index.md" for p in PAGES if "/" in p}
    expected = {p for p in PAGES if "/" not in p and p != "index.md"} | folders
    assert linked == expected


def test_each_decision_is_in_the_guide_once() -> None:
    """Its link is among the ten that are read first, or under one subject."""
    text = (DOCS / "decisions" / "index.md").read_text(encoding="utf-8")
    linked = re.findall(r"\]\((0[^)]+\.md)\)", text)
    assert sorted(linked) == sorted(p.name for p in (DOCS / "decisions").glob("0*.md"))
    first = text.partition("## Ten to read first")[2].partition("\n## ")[0]
    assert first.count("](0") == 10


def test_numbers_of_decisions_are_unique() -> None:
    numbers = [p.name[:4] for p in (DOCS / "decisions").glob("0*.md")]
    assert sorted(set(numbers)) == sorted(numbers)


def test_the_changes_of_a_version_fit_a_page() -> None:
    """Entries say what a user has, by subject."""
    text = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    versions = text.split("\n## ")[1:]
    assert versions and all(len(v.splitlines()) <= 130 for v in versions)
