"""Sphinx configuration: `sphinx-build -W docs build/docs`."""

import contextlib
import importlib.metadata
import io
import os
import re

from docutils import nodes
from docutils.parsers.rst import Directive

project = "Tilesmith"
copyright = "the Tilesmith authors"
version = release = importlib.metadata.version("tilesmith")

extensions = ["myst_parser", "sphinx.ext.autodoc"]
myst_heading_anchors = 3
html_theme = "furo"
html_title = f"Tilesmith {version}"
exclude_patterns = ["_build"]
default_role = "code"
autodoc_member_order = "bysource"
autodoc_typehints_format = "short"
autodoc_use_type_comments = False

_FIELD = re.compile(r"(\w+(?:, \w+)*): (.+)")
_DRAWN = re.compile(r"\S {3,}\S|->")
"""What shows that a paragraph is loops or code, whose lines stay as they are."""


def _escaped(text: str) -> str:
    """Prose as reStructuredText: only backquotes mean something."""
    parts = text.split("`")
    return "`".join(p if n % 2 else re.sub(r"([*|_\\])", r"\\\1", p) for n, p in enumerate(parts))


def _paragraph(lines: list[str]) -> list[str]:
    """A paragraph of a docstring as reStructuredText: code, or prose with a list of fields."""
    if lines[0].startswith(" ") or any(map(_DRAWN.search, lines)):
        return ["::", "", *("    " + line for line in lines)]
    prose: list[str] = []
    fields: list[str] = []
    for line in lines:
        field = _FIELD.fullmatch(line)
        if field is not None:
            fields.append(f"- **{_escaped(field[1])}**: {field[2]}")
        elif fields:
            fields[-1] += f" {line.strip()}"
        else:
            prose.append(line.strip())
    texts = [" ".join(prose)] if prose else []
    return [line for text in (*texts, *fields) for line in (_listed(text), "")]


def _listed(text: str) -> str:
    """`text` escaped, but for the mark-up of a list that `_paragraph` wrote."""
    mark = re.match(r"- \*\*.+?\*\*: ", text)
    start = mark.end() if mark else 0
    return text[:start] + _escaped(text[start:])


def _mark_up(app, what, name, obj, options, lines) -> None:
    """Docstrings are prose: make reStructuredText of them."""
    del app, name, obj, options
    found: list[str] = []
    part: list[str] = []
    for line in (*lines, ""):
        if line.strip():
            part.append(line)
        elif part:
            found += [*_paragraph(part), ""]
            part = []
        if what == "module" and found:
            break  # its first paragraph; the rest shows code or is for who works on it
    lines[:] = found


class Verbs(Directive):
    """What each verb of the command line prints with `--help`, a section for each."""

    def run(self) -> list[nodes.Node]:
        from tilesmith.cli import VERBS, execute

        os.environ["COLUMNS"] = "100"
        sections: list[nodes.Node] = []
        for verb in VERBS:
            printed = io.StringIO()
            with contextlib.redirect_stdout(printed):
                code = execute([verb, "--help"])
            if code:
                raise self.error(f"tilesmith {verb} --help ended with {code}")
            section = nodes.section(ids=[verb], names=[verb])
            section += nodes.title(text=f"tilesmith {verb}")
            section += nodes.literal_block(printed.getvalue(), printed.getvalue(), language="text")
            sections.append(section)
        return sections


def setup(app) -> None:
    """Called by Sphinx."""
    app.connect("autodoc-process-docstring", _mark_up)
    app.add_directive("verbs", Verbs)
