"""Tuning a whole model."""

from __future__ import annotations

import dataclasses
import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Unpack

from tilesmith import driver
from tilesmith.driver import Request, Session
from tilesmith.driver.partitioned import check_runs_alone
from tilesmith.driver.places import is_remote, on_device
from tilesmith.graph.bind import expected_graph
from tilesmith.runtime.executable import Executable
from tilesmith.runtime.threads import thread_count
from tilesmith.search_space.records import Records
from tilesmith.support.arguments import checked
from tilesmith.support.errors import UsageError
from tilesmith.support.measure import Ratio
from tilesmith.support.options import Options, records_path
from tilesmith.tuning.devices import devices_of
from tilesmith.tuning.fleet import open_measurer
from tilesmith.tuning.interrupt import Interrupt
from tilesmith.tuning.options import TuneChoices, TuneOptions, check_device
from tilesmith.tuning.report.html import choices_made, write_html
from tilesmith.tuning.scheduler import Budget, Progress, tune_tasks
from tilesmith.tuning.search import Searches

from .graph_choices import decide
from .tasks import BUILDER, Compiled, random_inputs, resume, tasks_of
from .verdict import better_of, seconds_needed

REPORT_COMPILES, REPORT_RUNS = 1.5, 40
"""The time to reserve for a report: this number of compilations with known kernels, plus this
number of runs of the model.
"""
CHOICES_SHARE = 0.25
"""Fraction of the seconds that choices of the whole model may take."""
FITTING_SHARE = 0.05
"""Fraction of the seconds that is kept for fitting decisions to workloads that were not tried."""
CHECK_SHARE = 0.5
"""Fraction of the seconds after the first compilation that the final check may take.  With few
seconds the check is less exact, but there is a result to check.
"""


@dataclass(frozen=True, slots=True)
class Tuned:
    """The result of tuning.

    executable: the faster of the tuned and the untuned one.
    speedup: ratio of untuned to tuned time, measured alternately.  It is 1, and not measured, if
        the untuned executable is kept.
    tasks: the state of each task at the end.
    why_none: the reason why no candidate was measured; empty if some were.
    spent: seconds by stage.
    """

    executable: Executable
    speedup: Ratio
    tasks: tuple[Progress, ...]
    why_none: str = ""
    spent: Mapping[str, float] = field(default_factory=dict)


@checked(UsageError)
def tune(
    model: Any,
    *,
    target: str | None = None,
    threads: int | None = None,
    shapes: Mapping[str, Sequence[int] | int] | None = None,
    options: Options | None = None,
    **choices: Unpack[TuneChoices],
) -> Executable:
    """Spend some seconds on making a model faster; returns the fastest executable found.

    model, target, threads, shapes, options: as for `compile`.
    choices: fields of `TuneOptions`, listed in docs/tuning.md, such as `seconds=60`, `trials`,
        `search` or `pins`.

    Measurements go to the records, which `compile` uses from then on.  Tuning again continues from
    them.  Both executables that are compared obey `pins` and `forbid`.  A name or value that the
    model does not have is an error before anything is measured.  Ctrl-C ends the search after the
    trial in flight and keeps its results; a second one raises KeyboardInterrupt.  Raises the errors
    of `compile`, and UsageError.
    """
    request = Request.of(model, options, target=target, threads=threads, shapes=shapes)
    return tune_model(request, TuneOptions(**choices)).executable


def tune_model(request: Request, tuning: TuneOptions) -> Tuned:
    """Like `tune`, but the result also describes the search.  The options `tuning` contain the
    constraints.
    """
    seconds, html = tuning.seconds, tuning.html
    started = time.time()
    budget = Budget(seconds, tuning.most_trials)
    model = request.model
    request = dataclasses.replace(request, pins=tuning.pins, forbid=tuning.forbid)
    if tuning.devices is not None:
        request = on_device(request, tuning.devices.split(",")[0].strip())
    session = Session.of_request(request)
    check_device(session.target, tuning)
    spent = Stages(tuning)
    spent.begin("compiling untuned")
    # Records are made for the expected sizes, and serve all sizes.
    graph = expected_graph(driver.load_graph(request, session))
    check_runs_alone(graph, session)
    count = thread_count(session.options.threads)
    loaded = budget.elapsed
    plain = Compiled.of(graph, session)
    kernels = next(r.seconds for r in session.timings.rows() if r.name == "kernels")
    again = budget.elapsed - loaded - kernels
    once = float(plain.executable.kernel_seconds(*random_inputs(plain.executable), repeats=2).sum())
    each = kernels / max(len(plain.executable.program.objects), 1)
    written = REPORT_COMPILES * again + REPORT_RUNS * once if html is not None else 0.0
    most = CHECK_SHARE * max(seconds - budget.elapsed - written, 0.0)
    check = min(seconds_needed(again, once), most)
    at_end = check + written + FITTING_SHARE * seconds
    states: list[Progress] = []
    interrupt = tuning.interrupt or Interrupt()

    def left(until: float) -> float:
        return 0.0 if interrupt.requested else until - budget.elapsed

    with Records(records_path(session.options)) as records, interrupt.on_signal():
        spent.begin("choices of the whole model")
        until = min(budget.elapsed + CHOICES_SHARE * seconds, seconds - at_end)
        _, variant = decide(graph, session, records, plain, lambda: left(until), again)
        searches = Searches(tuning.search, session.target, count, tuning.seed, tuning.cost_model)
        for t in tasks_of(variant, session):
            states.append(Progress(t, searches.of(t.space)))
            resume(states[-1], records)
        spent.begin("searching", states)
        if not interrupt.requested:
            searching = Budget(
                # one candidate is measured even if no time is left
                max(left(seconds - at_end), 0.0),
                budget.trials,
                interrupt=interrupt,
                early_stopping=tuning.early_stopping,
            )
            device = session.target if session.target.device is not None else None
            here = session.options.target if is_remote(session.options) else None
            addresses = tuning.devices or here
            devices = devices_of(addresses, count) if addresses else ()
            with open_measurer(
                tuning.workers, BUILDER, count, session.jobs, tuning.flush, device, devices
            ) as measurer:
                tune_tasks(
                    states,
                    measurer,
                    records,
                    searching,
                    2 * measurer.jobs,
                    lambda s: tuning.tell("searching", s),
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
        before_after = plain.executable, better, speedup.median
        write_html(html, title, states, *before_after, started, choices, stages)
    return Tuned(better, speedup, tuple(states), _why_none(states), spent.seconds())


def _why_none(states: Sequence[Progress]) -> str:
    """Reason why a search that ended by itself measured no candidate; empty if it measured some."""
    if any(s.trials for s in states):
        return ""
    if not states:
        return "no kernel of this model has a choice that may save time"
    return "its kernels take no longer than the performance model predicts (--no-early-stopping)"


class Stages:
    """Reports the beginning of each stage, and counts its seconds."""

    def __init__(self, tuning: TuneOptions) -> None:
        self._tuning = tuning
        self._began: list[tuple[str, float]] = []

    def begin(self, stage: str, tasks: Sequence[Progress] = ()) -> None:
        self._began.append((stage, time.perf_counter()))
        self._tuning.tell(stage, tasks)

    def seconds(self) -> dict[str, float]:
        """Seconds by stage, including the current one."""
        ends = [t for _, t in self._began[1:]] + [time.perf_counter()]
        return {name: end - t for (name, t), end in zip(self._began, ends, strict=True)}
