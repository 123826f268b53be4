"""Say what a model's file is: its format, inputs, outputs, operators and size.

Operators that can't be imported are marked.  Nothing is compiled.

Example: tilesmith inspect mobilenet.tflite
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from tilesmith.cli.arguments import JsonFlag
from tilesmith.cli.console import note, print_json, print_table, size_text
from tilesmith.cli.models import check_file
from tilesmith.frontend.load import inspect
from tilesmith.runtime.tsm import is_compiled, load_program


def command(
    path: Annotated[
        Path, typer.Argument(metavar="FILE", help="A source model, or a .tsm compiled before.")
    ],
    json: JsonFlag = False,
) -> None:
    check_file(path)
    facts = _of_compiled(path) if is_compiled(path) else _of_source(path)
    if json:
        print_json(facts)
        return
    print(f"{path}: {facts['format']}")
    for key in ("producer", "file_bytes", "weight_bytes"):
        if facts[key]:
            shown = facts[key] if key == "producer" else size_text(facts[key])
            print(f"{key.removesuffix('_bytes')}: {shown}")
    for kind in ("inputs", "outputs"):
        print(f"{kind}:")
        for name, type_ in facts[kind].items():
            print(f"  {name}: {type_}")
            if facts["described"].get(name):
                print(f"    {facts['described'][name]}")
    for name, entry in facts["metadata"].items():
        print(f"{name}: {', '.join(entry) if isinstance(entry, list) else entry}")
    rows = [
        (o["operator"], o["count"], "" if o["supported"] else "not supported")
        for o in facts["operators"]
    ]
    if rows:
        print_table(("operator", ">count", ""), rows)
    missing = [o["operator"] for o in facts["operators"] if not o["supported"]]
    if missing:
        note(f"{len(missing)} of {len(rows)} operators are not supported")


def _of_source(path: Path) -> dict[str, Any]:
    facts = inspect(path)
    return {
        "format": facts.format,
        "producer": facts.producer,
        "file_bytes": path.stat().st_size,
        "weight_bytes": facts.weight_bytes,
        "inputs": dict(facts.inputs),
        "outputs": dict(facts.outputs),
        "metadata": dict(facts.metadata),
        "described": {name: str(d) for name, d in facts.described.items()},
        "operators": [
            {"operator": name, "count": count, "supported": name not in facts.unsupported}
            for name, count in facts.operators.most_common()
        ],
    }


def _of_compiled(path: Path) -> dict[str, Any]:
    program = load_program(path)
    return {
        "format": f"tilesmith program for {program.target}",
        "producer": "tilesmith",
        "file_bytes": path.stat().st_size,
        "weight_bytes": program.constants.nbytes,
        "inputs": {s.name: s.type for s in program.caller_inputs},
        "outputs": {s.name: s.type for s in program.caller_outputs},
        "metadata": {"kernels": len(program.kernels)},
        "described": {name: str(d) for name, d in program.described.items()},
        "operators": [],
    }
