"""Say what a model's file is: its format, inputs, outputs, operators and size.

Operators that can't be imported are marked.  Nothing is compiled.

Example: tilesmith inspect mobilenet.tflite
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from tilesmith.cli.arguments import JsonFlag
from tilesmith.cli.console import note, print_json, print_table, size_text
from tilesmith.cli.models import check_file
from tilesmith.codegen.targets import host, missing_features
from tilesmith.frontend.load import inspect
from tilesmith.runtime.bundle import pooled
from tilesmith.runtime.program import Program
from tilesmith.runtime.tsm import is_compiled, load_levels


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
    if facts["levels"]:
        print_table(("level", ">kernels", ">code", ">weights", ">its own alone", ""),
                    [_level_row(level) for level in facts["levels"]])  # fmt: skip
    rows = [
        (o["operator"], o["count"], "" if o["supported"] else "not supported")
        for o in facts["operators"]
    ]
    if rows:
        print_table(("operator", ">count", ""), rows)
    missing = [o["operator"] for o in facts["operators"] if not o["supported"]]
    if missing:
        note(f"{len(missing)} of {len(rows)} operators are not supported")


def _level_row(level: dict[str, Any]) -> tuple[str, ...]:
    sizes = (size_text(level[f"{kind}_bytes"]) for kind in ("code", "weight", "own_weight"))
    runs = "" if level["runs_here"] else "does not run here"
    return level["target"], str(level["kernels"]), *sizes, runs


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
        "levels": [],
    }


def _of_compiled(path: Path) -> dict[str, Any]:
    programs = load_levels(path)
    best = programs[0]
    targets = [p.target.name for p in programs]
    return {
        "format": f"tilesmith program for {', '.join(targets)}",
        "producer": "tilesmith",
        "file_bytes": path.stat().st_size,
        "weight_bytes": sum(map(len, pooled(programs)[0])),
        "inputs": {s.name: s.type for s in best.caller_inputs},
        "outputs": {s.name: s.type for s in best.caller_outputs},
        "metadata": {"kernels": len(best.kernels)},
        "described": {name: str(d) for name, d in best.described.items()},
        "operators": [],
        "levels": _levels(programs) if len(programs) > 1 else [],
    }


def _levels(programs: Sequence[Program]) -> list[dict[str, Any]]:
    """The contents of each level of a bundle."""
    _, spans = pooled(programs)
    levels = Counter(span for own in spans for span in set(own))
    return [
        {
            "target": p.target.name,
            "runs_here": not missing_features(host(), p.target),
            "kernels": len(p.kernels),
            "code_bytes": sum(map(len, p.objects.values())),
            "weight_bytes": p.constants.nbytes,
            "own_weight_bytes": sum(size for _, size in {s for s in own if levels[s] == 1}),
        }
        for p, own in zip(programs, spans, strict=True)
    ]
