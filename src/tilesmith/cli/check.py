"""Compare every compiled kernel with its reference.

First, the expansion of each composite operator is compared with the operator's formula in f64.
Then each kernel runs by itself on inputs that the graph evaluator computes.

The error of an output is its largest difference from the expected values, relative to their largest
magnitude.  The bound depends on the element type.  Some kernels round, as those of quantised models
do.  There an element may be one step off if its unrounded value is near the boundary; column
"stepped" counts such elements.  If anything is out of bounds, the first such kernel is named and
the exit code is 4.

With --plan nothing is compiled or run.  Instead, the fate of each model node is printed: native
code and the nodes fused with it, a constant known before the run, or a call of the host.

Example: tilesmith check resnet50.onnx
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Annotated, Any

import typer

from tilesmith import driver
from tilesmith.driver.checking import KernelCheck
from tilesmith.driver.places import on_device
from tilesmith.driver.request import Request
from tilesmith.support.array_files import read_arrays
from tilesmith.support.errors import AccuracyError, UsageError

from .arguments import (
    DeviceOption,
    InputOption,
    JsonFlag,
    SourceArgument,
    with_options,
)
from .console import print_json, print_table, progress
from .fates import FATES, ModelPlan, plan_of
from .models import check_source, with_shapes_of


@with_options
def command(
    model: SourceArgument,
    wanted: Annotated[Request, "shapes", "dynamic", "expected", "values"],
    input: InputOption = None,
    device: DeviceOption = None,
    every: Annotated[
        bool, typer.Option("--all", help="Show every kernel, not only those out of bounds.")
    ] = False,
    plan: Annotated[
        bool, typer.Option("--plan", help="Show what becomes of each node; compile nothing.")
    ] = False,
    json: JsonFlag = False,
) -> None:
    check_source(model, "check needs the source model: a .tsm has no reference")
    wanted = replace(wanted, model=model)
    if device is not None:
        wanted = on_device(wanted, device)
    if plan:
        _show_plan(model, plan_of(wanted), json)
        return
    session = driver.Session.of_request(wanted)
    arrays = read_arrays(input) if input else {}
    graph = with_shapes_of(
        arrays,
        wanted.shapes,
        lambda shapes: driver.load_graph(replace(wanted, shapes=shapes), session),
    )
    inputs = None
    if input:
        names = [v.name for v in graph.inputs]
        inputs = {n: arrays[k] for n in names for k in (f"in_{n}", n) if k in arrays}
        if missing := [n for n in names if n not in inputs]:
            raise UsageError(f"{str(input)!r} lacks input {', '.join(missing)}")
    with progress(f"checking {model.name}"):
        checks = driver.check(graph, inputs, options=wanted.options)
    failed = [c for c in checks if not c.passed]
    if json:
        print_json(
            {
                "model": str(model),
                "passed": not failed,
                "operators": [_row(c) for c in checks if c.index is None],
                "kernels": [{"index": c.index, **_row(c)} for c in checks if c.index is not None],
            }
        )
    else:
        shown = checks if every else failed
        if shown:
            print_table(
                (">kernel", "type", ">error", ">bound", ">stepped", "", "source", "operators"),
                [
                    (
                        "" if c.index is None else c.index,
                        o.dtype,
                        f"{o.error:.1e}",
                        f"{o.bound:.0e}" if o.bound else "exact",
                        o.stepped or "",
                        "" if o.passed else "WRONG",
                        c.loc,
                        " ".join(c.operators),
                    )
                    for c in shown
                    for o in c.outputs
                ],
            )
        worst = max((o.error for c in checks for o in c.outputs), default=0.0)
        operators = sum(c.index is None for c in checks)
        also = f" and {operators} composite operators" if operators else ""
        print(
            f"{len(checks) - operators} kernels{also}, {len(failed)} out of bounds, "
            f"largest error {worst:.1e}"
        )
    if failed:
        c = failed[0]
        o = c.worst
        number = f" {c.outputs.index(o)}" if len(c.outputs) > 1 else ""
        allowed = f"{o.bound:.0e}" if o.bound else f"none, the type is {o.dtype}"
        what = "the expansion of" if c.index is None else f"kernel {c.index}:"
        raise AccuracyError(
            f"{what} {' '.join(c.operators)} (from {c.loc or 'unnamed nodes'}): output"
            f"{number} differs from its reference by {o.error:.1e} of its largest magnitude "
            f"(allowed: {allowed})"
        )


def _show_plan(model: Path, plan: ModelPlan, json: bool) -> None:
    if json:
        print_json({"model": str(model), **asdict(plan)})
        return
    print_table(
        ("node", "operator", "becomes", ">kernels", "fused with"),
        [
            (n.name, n.operator, n.fate, _numbers(n.kernels), " ".join(n.fused_with))
            for n in plan.nodes
        ],
    )
    counts = Counter(n.fate for n in plan.nodes)
    print(f"\n{len(plan.nodes)} nodes, {plan.kernels} kernels")
    for fate, meaning in FATES.items():
        if counts[fate]:
            print(f"{counts[fate]:5} {fate}: {meaning}")
    if plan.dimensions:
        print()
        print_table(
            ("open dimension", ">smallest", ">largest", ">expected", "known from"),
            [
                (d.name, d.low, d.high, d.expected, "values" if d.is_measured else "inputs")
                for d in plan.dimensions
            ],
        )
    if plan.grows:
        print("\nmemory grows during a run: nothing bounds some results before it")


def _numbers(kernels: Sequence[int]) -> str:
    """Numbers as text, with runs shortened: 0-3,7."""
    runs: list[list[int]] = []
    for k in kernels:
        if runs and k == runs[-1][-1] + 1:
            runs[-1][1:] = [k]
        else:
            runs.append([k])
    return ",".join("-".join(map(str, run)) for run in runs)


def _row(c: KernelCheck) -> dict[str, Any]:
    return {
        "source": c.loc,
        "operators": c.operators,
        "passed": c.passed,
        "outputs": [
            {
                "dtype": o.dtype,
                "error": o.error,
                "bound": o.bound,
                "stepped": o.stepped,
                "passed": o.passed,
            }
            for o in c.outputs
        ],
    }
