"""Relative links of all pages lead to files that are there, and their anchors to headings."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from markdown import PAGES, ROOT


def prose(path: Path) -> str:
    """A page without blocks of code and without inline code outside headings."""
    return re.sub(r"^```.*?^```", "", path.read_text(encoding="utf-8"), flags=re.S | re.M)


def anchors(path: Path) -> set[str]:
    """What GitHub and MyST call the headings of a page."""
    found: set[str] = set()
    for heading in re.findall(r"^#{1,6} +(.*)$", prose(path), re.MULTILINE):
        text = re.sub(r"\[([^]]*)]\([^)]*\)", r"\1", heading).replace("`", "").strip().lower()
        found.add(re.sub(r"[^\w\- ]", "", text).replace(" ", "-"))
    return found


@pytest.mark.parametrize("page", PAGES, ids=lambda p: str(p.relative_to(ROOT)))
def test_links(page: Path) -> None:
    broken = []
    for link in re.findall(r"]\(([^)\s]+)\)", prose(page)):
        if re.match(r"[a-z]+:", link):
            continue
        file, _, anchor = link.partition("#")
        to = (page.parent / file).resolve() if file else page
        if not to.exists() or (anchor and to.suffix == ".md" and anchor not in anchors(to)):
            broken.append(link)
    assert not broken


def test_the_pages_are_found() -> None:
    names = {p.name for p in PAGES}
    assert {"README.md", "CONTRIBUTING.md", "serving.md", "troubleshooting.md"} <= names
