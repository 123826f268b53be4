"""Design an accelerator: how long a model takes on machines of other parameters.

  sweep   cycles against area (multipliers, bits of memory) for each combination
          of the values of --vary
  layers  utilisation of the matrix unit by each layer, without and with virtual
          threads, on the default machine; --html draws the roofline

The model's convolutions and dense layers must be quantised to signed bytes.  Their cycles are
counted by the simulator on all cores.  Counts are kept in the cache folder, so that a sweep that
was interrupted goes on where it was.  The parameters are those of docs/accelerator.md.

Example: tilesmith accel sweep --model resnet18.onnx --vary block_in=8,16 --html sweep.html
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer

from tilesmith.accel.machine import Machine
from tilesmith.accel.report import described, hidden_latency
from tilesmith.accel.sweep import Layers, Point, layers_of, machines, pareto, predicted, sweep
from tilesmith.driver.compiler import fused_graph
from tilesmith.driver.request import Request
from tilesmith.driver.workers import job_count
from tilesmith.support.cache import Cache
from tilesmith.support.errors import UsageError
from tilesmith.support.folders import write_text

from .accel_page import layers_page, sweep_page
from .arguments import JsonFlag, with_options
from .console import note, print_json, print_table, progress
from .models import check_file
from .outputs import check_output

ACTIONS = ("sweep", "layers")

GRID = {
    "block_in": [8, 16, 32],
    "block_out": [8, 16, 32],
    "wgt_bytes": [64 << 10, 256 << 10],
    "dma_bytes": [8, 16],
}
"""The values that are tried if none are given: 36 machines."""
_GRID_TEXT = "; ".join(f"{name}={','.join(map(str, row))}" for name, row in GRID.items())


@with_options
def command(
    action: Annotated[str, typer.Argument(help=f"One of {', '.join(ACTIONS)}.")],
    model: Annotated[Path, typer.Option("--model", metavar="MODEL", help="A quantised model.")],
    wanted: Request,
    vary: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME=8,16,...",
            help=f"Values of a parameter of the machine (repeatable; default: {_GRID_TEXT}).",
        ),
    ] = None,
    predict: Annotated[
        bool, typer.Option("--predict", help="Predict cycles by the rule instead: a second or so.")
    ] = False,
    html: Annotated[
        Path | None, typer.Option(help="Also draw the machines, as an HTML page.")
    ] = None,
    json: JsonFlag = False,
) -> None:
    if action not in ACTIONS:
        raise UsageError(f"accel: {action!r} is none of {', '.join(ACTIONS)}")
    check_file(model)
    values: Mapping[str, Sequence[int]] = parse_values(vary) if vary else GRID
    chips = machines(values)
    if action == "layers" and (vary or predict):
        raise UsageError("accel layers: --vary and --predict are of sweep")
    if html is not None:
        check_output(html)
    options = wanted.options.with_(target="accel-sim")
    with progress(f"reading {model.name}"):
        layers = layers_of(fused_graph(replace(wanted, model=model, options=options))[0])
    if action == "layers":
        _show_layers(model, layers, html, json)
        return
    if predict:
        points = predicted(layers, chips)
    else:
        assert options.cache_dir is not None  # with_options reads it from the environment
        cache = Cache(options.cache_dir, options.cache_bytes)
        with progress(f"counting on {len(chips)} machines") as update:
            points = sweep(
                layers, chips, cache, job_count(options),
                lambda done, total: update(f"{done} of {total} layers"),
            )  # fmt: skip
    points.sort(key=lambda p: math.inf if p.cycles is None else p.cycles)
    front, varied = pareto(points), list(values)
    if html is not None:
        _write_page(html, sweep_page(f"Machines for {model.name}", points, front, varied))
    rows = [_row(p, varied, p in front) for p in points]
    if json:
        told = {"model": str(model), "layers": sum(layers.values()), "counted": not predict}
        print_json({**told, "machines": rows})
        return
    cells = [[_cell(v) for v in r.values()] for r in rows]
    print_table([*(f">{name}" for name in rows[0])], cells)
    how = "predicted" if predict else "counted"
    note(f"{how} cycles of {sum(layers.values())} layers; * marks what no other machine beats")


def _write_page(path: Path, text: str) -> None:
    try:
        write_text(path, text)
    except OSError as e:
        raise UsageError(f"the page can't be written to {str(path)!r}: {e}") from e


def _show_layers(model: Path, layers: Layers, html: Path | None, json: bool) -> None:
    """Print the utilisation by each layer, and draw the page."""
    machine = Machine()
    with progress(f"counting {len(layers)} layers"):
        latencies = hidden_latency(layers, machine)
    if html is not None:
        _write_page(html, layers_page(f"Layers of {model.name}", latencies, machine))
    rows = [
        {
            "layer": described(x.conv),
            "count": x.count,
            "threads": x.threads,
            "alone": x.alone.utilisation,
            "together": x.together.utilisation,
            "cycles": x.together.cycles,
            "of_bound": x.together.cycles / x.together.bound,
        }
        for x in latencies
    ]
    if json:
        print_json({"model": str(model), "layers": rows})
        return
    cells = [
        (r["layer"], r["count"], f"{r['alone']:.0%}", r["threads"], f"{r['together']:.0%}",
         r["cycles"], f"{r['of_bound']:.2f}")
        for r in rows
    ]  # fmt: skip
    print_table(
        ("layer", ">count", ">1 thread", ">threads", ">together", ">cycles", ">of bound"), cells,
        title="utilisation of the matrix unit",
    )  # fmt: skip


def _cell(value: int | bool | None) -> int | str:
    """A value of a row as the table shows it."""
    if isinstance(value, bool):
        return "*" if value else ""
    return "" if value is None else value


def _row(p: Point, varied: Sequence[str], best: bool) -> dict[str, Any]:
    return {
        **{name: getattr(p.machine, name) for name in varied},
        "multipliers": p.multipliers,
        "memory_bits": p.memory_bits,
        "cycles": p.cycles,
        "pareto": best,
    }


def parse_values(given: Sequence[str]) -> dict[str, list[int]]:
    """`["block_in=8,16"]` as values by name.  Raises UsageError for other forms."""
    values: dict[str, list[int]] = {}
    for text in given:
        name, equals, numbers = text.partition("=")
        words = numbers.split(",")
        if not equals or not all(w.isdecimal() and len(w) < 12 for w in words):
            raise UsageError(f"--vary wants NAME=8,16,..., not {text!r}")
        if name in values:
            raise UsageError(f"--vary was given twice for {name!r}")
        values[name] = list(dict.fromkeys(map(int, words)))
    return values
