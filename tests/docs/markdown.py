"""The pages of the repository."""

from __future__ import annotations

from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


FOLDERS = {"": "*.md", "docs": "**/*.md", "examples": "**/*.md"}


PAGES = sorted(p for folder, pattern in FOLDERS.items() for p in (ROOT / folder).glob(pattern))
