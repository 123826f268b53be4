"""List the operators that are supported.

Example: tilesmith ops --onnx conv
"""

from __future__ import annotations

from dataclasses import fields
from typing import Annotated, Any

import typer

from tilesmith.cli.arguments import JsonFlag
from tilesmith.cli.console import note, print_json, print_table
from tilesmith.frontend.onnx.registry import OPERATORS
from tilesmith.ops.base import OPS


def command(
    pattern: Annotated[str, typer.Argument(help="Only operators whose name has this in it.")] = "",
    onnx: Annotated[
        bool, typer.Option("--onnx", help="The ONNX operators that can be imported, with opsets.")
    ] = False,
    json: JsonFlag = False,
) -> None:
    rows = _onnx_operators() if onnx else _operators()
    rows = [r for r in rows if pattern.lower() in r["name"].lower()]
    if json:
        print_json(rows)
        return
    if onnx:
        print_table(("operator", "opsets"), [(r["name"], r["opsets"]) for r in rows])
    else:
        print_table(
            ("operator", "kind", "attributes"),
            [(r["name"], r["kind"], ", ".join(r["attributes"])) for r in rows],
        )
    note(f"{len(rows)} operators")


def _operators() -> list[dict[str, Any]]:
    return [
        {
            "name": name,
            "kind": op.kind(),
            "attributes": [f.name for f in fields(op)],
        }
        for name, op in sorted(OPS.items())
        if op.kind()
    ]


def _onnx_operators() -> list[dict[str, Any]]:
    return [
        {
            "name": f"{domain}::{name}" if domain else name,
            "opsets": OPERATORS.versions(domain, name),
        }
        for domain, name in sorted(OPERATORS)
    ]
