"""Writes the operator reference, `docs/ops.md`, from the operator table.

    python -m tilesmith.ops.doc docs/ops.md

A test compares the file with the table, so the file is always current.
"""

from __future__ import annotations

import dataclasses
import inspect
import sys
from pathlib import Path

from .base import Op, kind_of
from .table import FAMILIES, OPS

_HEADER = """# Operators

Generated from the operator table by `python -m tilesmith.ops.doc docs/ops.md`; do not edit.

An operator is defined once, in `src/tilesmith/ops/`. A *primitive* one states a tensor expression,
from which its result type and its loops follow; a *composite* one is made of other operators; an
*irregular* one is written in loops.
Tensors are in logical axes (images are N, C, H, W). Element types: `f32`, `f64`, `f16`, `bf16`,
integers and `bool`; 16-bit floats are summed in f32.  Storage types (8-bit floats such as
`f8e4m3fn`, `f6e2m3`, `f4e2m1`, `int4`, `uint2`) are moved and converted by `cast`.
"""


def operators(module_name: str) -> list[type[Op]]:
    """The operators that a module or package defines, in the order of definition."""
    return [c for c in OPS.values() if f"{c.__module__}.".startswith(f"{module_name}.")]


def _first_sentence(text: str) -> str:
    return " ".join((text or "").split("\n\n")[0].split())


def _attribute(field: dataclasses.Field[object]) -> str:
    if field.default is dataclasses.MISSING:
        return f"`{field.name}`"
    return f"`{field.name}={field.default!r}`"


def render() -> str:
    """The whole page as Markdown."""
    parts = [_HEADER]
    for module in FAMILIES:
        title = module.__name__.rsplit(".", 1)[-1].replace("_", " ").capitalize()
        parts.append(f"## {title}\n\n{inspect.getdoc(module)}\n")
        rows = ["| operator | kind | attributes | meaning |", "| --- | --- | --- | --- |"]
        for cls in operators(module.__name__):
            attributes = ", ".join(_attribute(f) for f in dataclasses.fields(cls))
            meaning = _first_sentence(inspect.getdoc(cls) or "").replace("|", "\\|")
            rows.append(f"| `{cls.name}` | {kind_of(cls)} | {attributes} | {meaning} |")
        parts.append("\n".join(rows) + "\n")
    return "\n".join(parts)


def write(page: str, arguments: list[str]) -> None:
    """Write a page to the path given, or to standard output."""
    if arguments:
        Path(arguments[0]).write_text(page, encoding="utf-8")
    else:
        sys.stdout.write(page)


if __name__ == "__main__":
    write(render(), sys.argv[1:])
