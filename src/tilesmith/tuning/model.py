"""Tuning a whole model."""

from __future__ import annotations

import dataclasses
import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tilesmith import driver
from tilesmith.choices.constraints import Constraints
from tilesmith.choices.records import Records
from tilesmith.choices.space import Forbidden
from tilesmith.driver import Session
from tilesmith.runtime.executable import Executable
from tilesmith.runtime.threads import thread_count
from tilesmith.support.errors import UsageError
from tilesmith.support.options import Options, records_path
from tilesmith.te.knobs import Decisions
from tilesmith.tuning.cost_model import CostModel
from tilesmith.tuning.fleet import check_workers, open_measurer
from tilesmith.tuning.interrupt import Interrupt
from tilesmith.tuning.report.html import check_path, choices_made, write_html
from tilesmith.tuning.scheduler import Budget, Progress, tune_tasks
from tilesmith.tuning.search import DEFAULT, SEARCHES, Searches

from .graph_choices import decide
from .tasks import BUILDER, Compiled, random_inputs, resume, tasks_of
from .verdict import better_of, seconds_needed

REPORT_COMPILES, REPORT_RUNS = 1.5, 40
"""What a report takes, in compilations with kernels that are known and in runs of the model."""
CHOICES_SHARE = 0.25
"""Of the seconds, what choices of the whole model may take."""
FITTING_SHARE = 0.05
"""Of the seconds, what is kept for fitting decisions to workloads that were not tried."""

Report = Callable[[str, Sequence[Progress]], object]


@dataclass(frozen=True, slots=True)
class Tuned:
    """What tuning led to: `executable` is the better of tuned and untuned; `speedup`: untuned over
    tuned time, measured in turns (1 when the untuned one is kept); `spent`: seconds by stage.
    """

    executable: Executable
    speedup: float
    tasks: tuple[Progress, ...]
    spent: Mapping[str, float] = field(default_factory=dict)


def tune(
    model: Any,
    seconds: float = 60.0,
    trials: int | None = None,
    target: str | None = None,
    threads: int | None = None,
    shapes: Mapping[str, Sequence[int]] | None = None,
    options: Options | None = None,
    search: str = DEFAULT,
    seed: int = 0,
    pins: Decisions | None = None,
    forbid: Forbidden | None = None,
    workers: str | None = None,
    flush: bool = False,
    html: str | os.PathLike[str] | None = None,
    report: Report = lambda _stage, _tasks: None,
    cost_model: CostModel | None = None,
    early_stopping: bool = True,
) -> Executable:
    """Spend `seconds` (or `trials`) on making a model faster; returns the best executable found.

    What is measured goes to the records, which `compile` uses from then on.  Tuning again goes on
    where it ended.  `search`: one of `SEARCHES`.  `pins`: knobs that are to have these values where
    they exist; `forbid`: values that they are not to have, by knob.  Both executables that are
    compared obey, so that what earlier runs found may be of no use; a name or a value that the
    model does not have is an error before anything is measured.  `workers`: "ray" or
    "ray://host:port" measures on those nodes of a Ray cluster that are machines like this one.
    `flush`: measure with empty caches (by default, only constants of large models are out of them).
    `html`: a file to write a report to.
    `cost_model`: orders candidates for the search "model", instead of the one in the package.
    `early_stopping`: end when next to nothing is left to gain, or search to the end of `seconds`.
    Ctrl-C ends the search after the trial in flight and keeps what it found; a second one raises
    KeyboardInterrupt.  Raises as `compile` does, and UsageError.
    """
    return tune_model(
        model, seconds, trials, target, threads, shapes, options, search, seed, pins, forbid,
        workers, flush, html, report, cost_model, early_stopping,
    ).executable  # fmt: skip


def tune_model(
    model: Any,
    seconds: float = 60.0,
    trials: int | None = None,
    target: str | None = None,
    threads: int | None = None,
    shapes: Mapping[str, Sequence[int]] | None = None,
    options: Options | None = None,
    search: str = DEFAULT,
    seed: int = 0,
    pins: Decisions | None = None,
    forbid: Forbidden | None = None,
    workers: str | None = None,
    flush: bool = False,
    html: str | os.PathLike[str] | None = None,
    report: Report = lambda _stage, _tasks: None,
    cost_model: CostModel | None = None,
    early_stopping: bool = True,
    interrupt: Interrupt | None = None,
) -> Tuned:
    """`tune`, and what it did.  `interrupt`: another way to ask it to stop."""
    check_arguments(seconds, trials, search)
    check_workers(workers)
    check_path(html)
    started = time.time()
    budget = Budget(seconds, float("inf") if trials is None else trials)
    session = Session.of(options, target=target, threads=threads)
    session = dataclasses.replace(session, constraints=Constraints.of(pins, forbid))
    spent = Stages(report)
    spent.begin("compiling untuned")
    graph = driver.load_graph(model, shapes, session)
    count = thread_count(session.options.threads)
    loaded = budget.elapsed
    plain = Compiled.of(graph, session)
    kernels = next(r.seconds for r in session.timings.rows() if r.name == "kernels")
    again = budget.elapsed - loaded - kernels
    once = float(plain.executable.kernel_seconds(*random_inputs(plain.executable), repeats=2).sum())
    check = seconds_needed(again, once)
    each = kernels / max(len(plain.executable.program.objects), 1)
    written = REPORT_COMPILES * again + REPORT_RUNS * once if html is not None else 0.0
    at_end = check + written + FITTING_SHARE * seconds
    states: list[Progress] = []
    interrupt = interrupt or Interrupt()

    def left(until: float) -> float:
        return 0.0 if interrupt.requested else until - budget.elapsed

    with Records(records_path(session.options)) as records, interrupt.on_signal():
        spent.begin("choices of the whole model")
        until = min(budget.elapsed + CHOICES_SHARE * seconds, seconds - at_end)
        _, variant = decide(graph, session, records, plain, lambda: left(until), again)
        searches = Searches(search, session.target, count, seed, cost_model)
        for t in tasks_of(variant, session):
            states.append(Progress(t, searches.of(t.space)))
            resume(states[-1], records)
        spent.begin("searching", states)
        search_seconds = left(seconds - at_end)
        if search_seconds > 0:
            with open_measurer(workers, BUILDER, count, session.jobs, flush) as measurer:
                tune_tasks(
                    states,
                    measurer,
                    records,
                    Budget(
                        search_seconds,
                        budget.trials,
                        interrupt=interrupt,
                        early_stopping=early_stopping,
                    ),
                    2 * measurer.jobs,
                    lambda s: report("searching", s),
                )
        spent.begin("comparing with untuned", states)
        until = seconds - written
        better, speedup = better_of(
            graph, session, plain.executable, records, lambda: left(until), check, each
        )
        choices = choices_made(graph, session, records) if html is not None else ()
    if html is not None:
        stages = spent.seconds()
        spent.begin("writing the report", states)
        title = Path(model).name if isinstance(model, (str, os.PathLike)) else graph.name
        before_after = plain.executable, better, speedup
        write_html(html, title, states, *before_after, started, choices, stages)
    return Tuned(better, speedup, tuple(states), spent.seconds())


class Stages:
    """Tells `report` when a stage begins, and knows afterwards how long each took."""

    def __init__(self, report: Report) -> None:
        self._report = report
        self._began: list[tuple[str, float]] = []

    def begin(self, stage: str, tasks: Sequence[Progress] = ()) -> None:
        self._began.append((stage, time.perf_counter()))
        self._report(stage, tasks)

    def seconds(self) -> dict[str, float]:
        """By stage, the last one until now."""
        ends = [t for _, t in self._began[1:]] + [time.perf_counter()]
        return {name: end - t for (name, t), end in zip(self._began, ends, strict=True)}


def check_arguments(seconds: float, trials: int | None, search: str) -> None:
    """Raises UsageError."""
    if not seconds > 0:
        raise UsageError(f"seconds must be positive, not {seconds!r}")
    if trials is not None and trials < 1:
        raise UsageError(f"trials must be at least 1, not {trials!r}")
    if search not in SEARCHES:
        raise UsageError(f"there is no search {search!r}; there are {', '.join(SEARCHES)}")
