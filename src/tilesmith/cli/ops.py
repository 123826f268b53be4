"""List the operators that are supported.

Example: tilesmith ops --onnx conv
"""

from __future__ import annotations

from dataclasses import fields
from typing import Annotated, Any

import typer

from tilesmith.cli.arguments import JsonFlag
from tilesmith.cli.console import note, print_json, print_table
from tilesmith.frontend.onnx.coverage import coverage
from tilesmith.frontend.tflite.operators import FORMS, OPERATORS
from tilesmith.ops.base import OPS, kind_of


def command(
    pattern: Annotated[str, typer.Argument(help="Only operators whose name has this in it.")] = "",
    onnx: Annotated[
        bool,
        typer.Option("--onnx", help="ONNX's operators: imported and missing opsets."),
    ] = False,
    tflite: Annotated[
        bool,
        typer.Option("--tflite", help="TFLite's operators, and whether tensors may be quantised."),
    ] = False,
    json: JsonFlag = False,
) -> None:
    rows = _onnx_operators() if onnx else tflite_operators() if tflite else _operators()
    rows = [r for r in rows if pattern.lower() in r["name"].lower()]
    if json:
        print_json(rows)
        return
    if onnx:
        print_table(
            ("operator", "opsets", "missing"),
            [(r["name"], r["opsets"] or "-", ", ".join(map(str, r["missing"]))) for r in rows],
        )
        for domain in dict.fromkeys(r["domain"] for r in rows):
            mine = [r for r in rows if r["domain"] == domain]
            done = sum(r["newest"] for r in mine)
            of = f" of {len(mine)}" if any(r["defined"] for r in mine) else ""
            note(f"{domain}: {done}{of} operators at their newest version")
        return
    if tflite:
        print_table(
            ("operator", "quantised"),
            [(r["name"], "yes" if r["quantised"] else "-") for r in rows],
        )
        return
    print_table(
        ("operator", "kind", "attributes"),
        [(r["name"], r["kind"], ", ".join(r["attributes"])) for r in rows],
    )
    note(f"{len(rows)} operators")


def _operators() -> list[dict[str, Any]]:
    return [
        {
            "name": name,
            "kind": kind_of(op),
            "attributes": [f.name for f in fields(op)],
        }
        for name, op in sorted(OPS.items())
        if kind_of(op)
    ]


def tflite_operators() -> list[dict[str, Any]]:
    """TFLite's operators by name, builtin ones first."""
    names = sorted({*OPERATORS, *FORMS})
    return [{"name": name, "quantised": (domain, name) in {*FORMS}} for domain, name in names]


def _onnx_operators() -> list[dict[str, Any]]:
    return [
        {
            "name": f"{c.domain}::{c.name}" if c.domain else c.name,
            "domain": c.domain or "ai.onnx",
            "opsets": c.opsets,
            "missing": list(c.missing),
            "newest": c.newest,
            "defined": c.defined,
        }
        for c in coverage()
    ]
