"""Spend some seconds on making a model faster on this machine.

Candidates for the schedules of its kernels are built and measured; what is found goes to the
records, which every later compilation on this machine uses.  Ctrl-C ends the search after the trial
in flight and keeps what it found (the exit code is 0; a second Ctrl-C gives up at once, with 130);
tuning again goes on from there.

Example: tilesmith tune resnet50.onnx --seconds 60 --threads 2
"""

from __future__ import annotations

from collections.abc import Sequence
from json import loads
from pathlib import Path
from typing import Annotated

import typer

from tilesmith.cli.arguments import (
    JsonFlag,
    ModelArgument,
    SeedOption,
    ShapeOption,
    parse_shapes,
    with_options,
)
from tilesmith.cli.console import print_json
from tilesmith.cli.live import TuningDisplay
from tilesmith.strategy.knobs import Value, values_from_json
from tilesmith.support.errors import UsageError
from tilesmith.support.options import Options
from tilesmith.tuner import tune_model
from tilesmith.tuning.interrupt import Interrupt
from tilesmith.tuning.search import DEFAULT, SEARCHES


@with_options
def command(
    model: ModelArgument,
    options: Options,
    seconds: Annotated[float, typer.Option(help="How long it may take in all.")] = 60.0,
    trials: Annotated[
        int | None, typer.Option(help="Most candidates to measure (default: no limit).")
    ] = None,
    search: Annotated[str, typer.Option(help=f"How to search: {', '.join(SEARCHES)}.")] = DEFAULT,
    workers: Annotated[
        str | None,
        typer.Option(help="Measure on a Ray cluster: ray, or ray://HOST:PORT (default: here)."),
    ] = None,
    pin: Annotated[
        list[str] | None,
        typer.Option("--pin", help="KNOB=VALUE: where kernels have this knob, only this value."),
    ] = None,
    forbid: Annotated[
        list[str] | None, typer.Option("--forbid", help="KNOB=VALUE: never this value.")
    ] = None,
    flush: Annotated[
        bool, typer.Option("--flush", help="Empty the caches before each run of a candidate.")
    ] = False,
    html: Annotated[
        Path | None, typer.Option("--report", help="Also write an HTML report to this file.")
    ] = None,
    output: Annotated[
        Path | None, typer.Option("-o", "--output", help="Also write the executable to this file.")
    ] = None,
    shape: ShapeOption = None,
    seed: SeedOption = 0,
    json: JsonFlag = False,
) -> None:
    if model.suffix == ".tsm":
        raise UsageError("tune needs the source model (.onnx): a .tsm is compiled already")
    if not model.is_file():
        raise UsageError(f"there is no file {str(model)!r}")
    interrupt = Interrupt()
    with TuningDisplay(seconds, trials, interrupt) as display:
        result = tune_model(
            model,
            seconds,
            trials,
            shapes=parse_shapes(shape),
            options=options,
            search=search,
            seed=seed,
            pins=_pins(pin),
            forbid=_values("--forbid", forbid),
            workers=workers,
            flush=flush,
            html=html,
            report=display.show,
            interrupt=interrupt,
        )
    if output is not None:
        result.executable.save(output)
    if json:
        tasks = [
            {
                "task": s.task.label,
                "ms": s.task.seconds * 1e3,
                "best": s.best,
                "trials": s.trials,
                "errors": s.errors,
                "decisions": dict(s.winner.candidate) if s.winner else {},
            }
            for s in result.tasks
        ]
        found = {
            "model": str(model),
            "speedup": result.speedup,
            "tasks": tasks,
            "spent": result.spent,
        }
        print_json(found | {"interrupted": interrupt.requested})
        return
    count = sum(s.trials for s in result.tasks)
    errors = sum(s.errors for s in result.tasks)
    print(f"{count} candidates measured ({errors} failed) for {len(result.tasks)} kernels")
    print("seconds: " + ", ".join(f"{name} {s:.1f}" for name, s in result.spent.items()))
    if result.speedup > 1:
        print(f"the tuned model is {result.speedup:.3f} times as fast as the untuned one")
    else:
        print("nothing faster was found; the untuned schedules are kept")


def _pins(given: Sequence[str] | None) -> dict[str, Value]:
    """One value by knob (see `_values`).  Raises UsageError when there are more."""
    values = _values("--pin", given)
    for name, several in values.items():
        if len(several) > 1:
            raise UsageError(f"--pin was given twice for knob {name!r}")
    return {name: value for name, (value,) in values.items()}


def _values(option: str, given: Sequence[str] | None) -> dict[str, list[Value]]:
    """`["unroll=1", "rows=[4, 2]", "schedule=sketch"]` as values by knob: JSON, else text.

    Raises UsageError when one does not read as KNOB=VALUE.
    """
    found: dict[str, list[Value]] = {}
    for text in given or ():
        name, equals, value = text.partition("=")
        if not equals or not name:
            raise UsageError(f"{option} wants KNOB=VALUE, not {text!r}")
        try:
            parsed = values_from_json({name: loads(value)})[name]
        except ValueError:
            parsed = value
        found.setdefault(name, []).append(parsed)
    return found
