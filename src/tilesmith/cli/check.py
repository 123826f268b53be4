"""Compare every compiled kernel with its reference.

Each kernel runs by itself on what the graph evaluator computes for its inputs.  The error is the
largest difference as a share of the largest magnitude expected; what is allowed depends on the
element type.  Exit code 4 when a kernel is out of bounds; the first that is gets named.

Example: tilesmith check resnet50.onnx
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from tilesmith import driver
from tilesmith.cli.arguments import (
    JsonFlag,
    ModelArgument,
    ShapeOption,
    ValueOption,
    parse_shapes,
    parse_values,
    with_options,
)
from tilesmith.cli.console import print_json, print_table, progress
from tilesmith.cli.models import read_arrays, with_shapes_of
from tilesmith.support.errors import AccuracyError, UsageError
from tilesmith.support.options import Options


@with_options
def command(
    model: ModelArgument,
    options: Options,
    input: Annotated[
        Path | None, typer.Option("--input", "-i", help="Input file (default: random input).")
    ] = None,
    every: Annotated[
        bool, typer.Option("--all", help="Show every kernel, not only those out of bounds.")
    ] = False,
    shape: ShapeOption = None,
    value: ValueOption = None,
    json: JsonFlag = False,
) -> None:
    if model.suffix == ".tsm":
        raise UsageError("check needs the source model (.onnx): a .tsm has no reference")
    if not model.is_file():
        raise UsageError(f"there is no file {str(model)!r}")
    session = driver.Session.of(options)
    arrays = read_arrays(input) if input else {}
    values = parse_values(value)
    graph = with_shapes_of(
        arrays,
        parse_shapes(shape),
        lambda shapes: driver.load_graph(model, shapes, session, values),
    )
    inputs = None
    if input:
        names = [v.name for v in graph.inputs]
        inputs = {n: arrays[k] for n in names for k in (f"in_{n}", n) if k in arrays}
        if missing := [n for n in names if n not in inputs]:
            raise UsageError(f"{str(input)!r} lacks input {', '.join(missing)}")
    with progress(f"checking {model.name}"):
        checks = driver.check(graph, inputs, options=options)
    failed = [c for c in checks if not c.passed]
    if json:
        print_json(
            {
                "model": str(model),
                "passed": not failed,
                "kernels": [
                    {
                        "index": c.index,
                        "source": c.loc,
                        "operators": c.operators,
                        "error": c.error,
                        "bound": c.bound,
                        "passed": c.passed,
                    }
                    for c in checks
                ],
            }
        )
    else:
        shown = checks if every else failed
        if shown:
            print_table(
                (">kernel", ">error", ">bound", "", "source", "operators"),
                [
                    (
                        c.index,
                        f"{c.error:.1e}",
                        f"{c.bound:.0e}",
                        "" if c.passed else "WRONG",
                        c.loc,
                        " ".join(c.operators),
                    )
                    for c in shown
                ],
            )
        worst = max((c.error for c in checks), default=0.0)
        print(f"{len(checks)} kernels, {len(failed)} out of bounds, largest error {worst:.1e}")
    if failed:
        c = failed[0]
        raise AccuracyError(
            f"kernel {c.index} ({' '.join(c.operators)}, from {c.loc or 'unnamed nodes'}) differs "
            f"from its reference by {c.error:.1e} of its largest magnitude (allowed: {c.bound:.0e})"
        )
