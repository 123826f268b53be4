"""Spend some seconds on making a model faster on this machine.

Candidate schedules of its kernels are built and measured.  The results go to the records, which
every later compilation on this machine uses.  Ctrl-C ends the search after the current trial and
keeps the results, with exit code 0.  A second Ctrl-C stops at once, with exit code 130.  The next
tuning continues from the kept results.  If no candidate was measured, the exit code is 1.

Example: tilesmith tune resnet50.onnx --seconds 60 --threads 2
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from tilesmith.cli.arguments import JsonFlag, SourceArgument, with_options
from tilesmith.cli.console import print_json
from tilesmith.cli.live import TuningDisplay
from tilesmith.cli.models import check_source
from tilesmith.cli.outputs import apart_from, check_output
from tilesmith.driver.request import Request
from tilesmith.support.errors import UsageError
from tilesmith.support.measure import BUSY, Ratio
from tilesmith.tuning.interrupt import Interrupt
from tilesmith.tuning.model import Tuned, tune_model
from tilesmith.tuning.options import TuneOptions


@with_options
def command(
    model: SourceArgument,
    tuning: TuneOptions,
    wanted: Request,
    output: Annotated[
        Path | None, typer.Option("-o", "--output", help="Also write the executable to this file.")
    ] = None,
    json: JsonFlag = False,
) -> None:
    check_source(model, "tune needs the source model: a .tsm is compiled already")
    if output is not None:
        check_output(output)
    with apart_from(output):
        _tune(model, tuning, wanted, output, json)


def _tune(
    model: Path, tuning: TuneOptions, wanted: Request, output: Path | None, json: bool
) -> None:
    interrupt = Interrupt()
    with TuningDisplay(tuning.seconds, tuning.trials, interrupt) as display:
        tuning = replace(
            tuning,
            pins=wanted.pins,
            forbid=wanted.forbid,
            report=display.show,
            interrupt=interrupt,
        )
        result = tune_model(replace(wanted, model=model), tuning)
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
        summary = {
            "model": str(model),
            "speedup": result.speedup.median,
            "interval": [result.speedup.low, result.speedup.high],
            "turns": result.speedup.rounds,
            "load": result.speedup.load,
            "tasks": tasks,
            "spent": result.spent,
        }
        print_json(summary | {"interrupted": interrupt.requested})
    else:
        _show(result)
    if result.why_none and not interrupt.requested:
        raise UsageError(
            f"no candidate was measured, since {result.why_none}; the untuned schedules are kept"
        )


def _show(result: Tuned) -> None:
    count = sum(s.trials for s in result.tasks)
    errors = sum(s.errors for s in result.tasks)
    print(f"{count} candidates measured ({errors} failed) for {len(result.tasks)} kernels")
    print("seconds: " + ", ".join(f"{name} {s:.1f}" for name, s in result.spent.items()))
    if result.speedup.rounds:
        for line in _headline(result.speedup):
            print(line)
    elif count:
        print("nothing faster was found; the untuned schedules are kept")


FEWEST = 6
"""Fewest turns that give a 95% confidence interval of the speedup."""


def _headline(speedup: Ratio) -> list[str]:
    """The gain of tuning, its certainty, and conditions that reduce it."""
    among = "95% interval" if speedup.rounds >= FEWEST else "range"
    lines = [
        f"the tuned model is {speedup.median:.3f} times as fast as the untuned one "
        f"({among} {speedup.low:.3f} to {speedup.high:.3f}, {speedup.rounds} turns)"
    ]
    if not speedup.is_certain:
        lines.append("the interval contains 1: this measurement can't tell which is faster")
    if speedup.load is not None and speedup.load > BUSY:
        lines.append(
            f"other programs used {speedup.load:.0%} of the cores meanwhile: measure again on an "
            "idle machine (tilesmith bench, with --no-use-records for the untuned model)"
        )
    return lines
