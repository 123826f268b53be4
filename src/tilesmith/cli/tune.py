"""Spend some seconds on making a model faster on this machine.

Candidates for the schedules of its kernels are built and measured; what is found goes to the
records, which every later compilation on this machine uses.  Ctrl-C ends the search after the trial
in flight and keeps what it found (the exit code is 0; a second Ctrl-C gives up at once, with 130);
tuning again goes on from there.

Example: tilesmith tune resnet50.onnx --seconds 60 --threads 2
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from tilesmith.cli.arguments import (
    JsonFlag,
    ModelArgument,
    Wanted,
    with_options,
)
from tilesmith.cli.console import print_json
from tilesmith.cli.live import TuningDisplay
from tilesmith.support.errors import UsageError
from tilesmith.tuning.interrupt import Interrupt
from tilesmith.tuning.model import tune_model
from tilesmith.tuning.options import TuneOptions


@with_options
def command(
    model: ModelArgument,
    tuning: TuneOptions,
    wanted: Wanted,
    output: Annotated[
        Path | None, typer.Option("-o", "--output", help="Also write the executable to this file.")
    ] = None,
    json: JsonFlag = False,
) -> None:
    if model.suffix == ".tsm":
        raise UsageError("tune needs the source model (.onnx): a .tsm is compiled already")
    if not model.is_file():
        raise UsageError(f"there is no file {str(model)!r}")
    interrupt = Interrupt()
    with TuningDisplay(tuning.seconds, tuning.trials, interrupt) as display:
        tuning = replace(
            tuning,
            pins=wanted.pins,
            forbid=wanted.forbid,
            report=display.show,
            interrupt=interrupt,
        )
        result = tune_model(model, tuning, wanted.options, wanted.shapes, wanted.values)
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
    elif count == 0:
        print(
            "no candidate was measured, since the time or the machine allowed none: give more "
            "--seconds; the untuned schedules are kept"
        )
    else:
        print("nothing faster was found; the untuned schedules are kept")
