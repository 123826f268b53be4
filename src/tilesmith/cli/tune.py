"""Spend some seconds on making a model faster on this machine.

Candidates for the schedules of its kernels are built and measured; what is found goes to the
records, which every later compilation on this machine uses.  Ctrl-C ends the search and keeps what
it found; tuning again goes on from there.

Example: tilesmith tune resnet50.onnx --seconds 60 --threads 2
"""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.live import Live
from rich.table import Table

from tilesmith.cli.arguments import (
    JsonFlag,
    ModelArgument,
    SeedOption,
    ShapeOption,
    parse_shapes,
    with_options,
)
from tilesmith.cli.console import note, print_json
from tilesmith.support.errors import UsageError
from tilesmith.support.options import Options
from tilesmith.tuner import tune_model
from tilesmith.tuning.scheduler import Progress
from tilesmith.tuning.search import DEFAULT, SEARCHES

ROWS = 15
"""Tasks shown: those that still matter most."""


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
    with _Display(seconds) as display:
        result = tune_model(
            model,
            seconds,
            trials,
            shapes=parse_shapes(shape),
            options=options,
            search=search,
            seed=seed,
            workers=workers,
            html=html,
            report=display.show,
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
        print_json({"model": str(model), "speedup": result.speedup, "tasks": tasks})
        return
    count = sum(s.trials for s in result.tasks)
    errors = sum(s.errors for s in result.tasks)
    print(f"{count} candidates measured ({errors} failed) for {len(result.tasks)} kernels")
    if result.speedup > 1:
        print(f"the tuned model is {result.speedup:.3f} times as fast as the untuned one")
    else:
        print("nothing faster was found; the untuned schedules are kept")


class _Display:
    """Shows how tuning goes on stderr: a table that is kept up to date, or plain lines now and
    then where that is no terminal.
    """

    def __init__(self, seconds: float) -> None:
        self._console = Console(stderr=True, highlight=False)
        self._live: Live | None = None
        self._seconds = seconds
        self._start = self._last = time.monotonic()
        self._stage = ""

    def __enter__(self) -> _Display:
        if self._console.is_terminal:
            self._live = Live(console=self._console, refresh_per_second=4, transient=True)
            self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._live is not None:
            self._live.stop()

    def show(self, stage: str, states: Sequence[Progress]) -> None:
        """Take note of a stage and of the state of all tasks."""
        now = time.monotonic()
        is_new, self._stage = stage != self._stage, stage
        left = max(self._seconds - (now - self._start), 0.0)
        if self._live is not None:
            self._live.update(_table(f"{stage}, {left:.0f} s left", states))
        elif is_new or now - self._last >= 5:
            self._last = now
            trials, errors = (sum(getattr(s, k) for s in states) for k in ("trials", "errors"))
            saved = sum(s.saved for s in states) * 1e3
            done = f": {trials} trials, {errors} errors, {saved:.3f} ms saved" if states else ""
            note(f"{stage}{done}, {left:.0f} s left")
            sys.stderr.flush()


def _table(title: str, states: Sequence[Progress]) -> Table:
    table = Table(title=title, title_justify="left", box=None, padding=(0, 2, 0, 0))
    for name in ("kernel", "ms", "share", "best", "may gain", "trials", "errors"):
        table.add_column(name, justify="left" if name == "kernel" else "right", no_wrap=True)
    whole = sum(s.task.seconds for s in states) or 1.0
    for s in sorted(states, key=lambda s: -s.task.seconds)[:ROWS]:
        table.add_row(
            s.task.label,
            f"{s.task.seconds * 1e3:.3f}",
            f"{s.task.seconds / whole:.1%}",
            f"{s.best:.3f}",
            f"{s.gain * 1e3:.3f}",
            str(s.trials),
            str(s.errors or ""),
        )
    return table
