"""Tuning a whole model."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tilesmith import driver
from tilesmith.driver import Session
from tilesmith.runtime.executable import Executable
from tilesmith.runtime.threads import thread_count
from tilesmith.strategy.knobs import Decisions
from tilesmith.support.errors import UsageError
from tilesmith.support.options import Options, records_path
from tilesmith.tuning.cost_model import CostModel
from tilesmith.tuning.fleet import check_workers, open_measurer
from tilesmith.tuning.records import Records
from tilesmith.tuning.scheduler import Budget, Progress, tune_tasks
from tilesmith.tuning.search import DEFAULT, SEARCHES, Searches

from .choices import choose_algorithms, with_algorithms
from .html import check_path, write_html
from .tasks import BUILDER, Compiled, resume, tasks_of
from .verdict import CHECK_ROUNDS, better_of

ALGORITHMS_SHARE = 0.25
"""Of the seconds, what choosing algorithms may take."""

Report = Callable[[str, Sequence[Progress]], object]


@dataclass(frozen=True, slots=True)
class Tuned:
    """What tuning led to: `executable` is the better of tuned and untuned; `speedup`: untuned over
    tuned time, measured in turns (1 when the untuned one is kept).
    """

    executable: Executable
    speedup: float
    tasks: tuple[Progress, ...]


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
    workers: str | None = None,
    html: str | os.PathLike[str] | None = None,
    report: Report = lambda _stage, _tasks: None,
    cost_model: CostModel | None = None,
) -> Executable:
    """Spend `seconds` (or `trials`) on making a model faster; returns the best executable found.

    What is measured goes to the records, which `compile` uses from then on.  Tuning again goes on
    where it ended.  `search`: one of `SEARCHES`.  `pins`: knobs that are to have these values where
    they exist.  `workers`: "ray" or "ray://host:port" measures on those nodes of a Ray cluster that
    are machines like this one.  `html`: a file to write a report to.  `cost_model`: orders
    candidates for the search "model", instead of the one in the package.  Ctrl-C ends the search,
    not what it found.  Raises as `compile` does, and UsageError.
    """
    return tune_model(
        model, seconds, trials, target, threads, shapes, options, search, seed, pins, workers,
        html, report, cost_model,
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
    workers: str | None = None,
    html: str | os.PathLike[str] | None = None,
    report: Report = lambda _stage, _tasks: None,
    cost_model: CostModel | None = None,
) -> Tuned:
    """`tune`, and what it did."""
    check_arguments(seconds, trials, search)
    check_workers(workers)
    check_path(html)
    started = time.time()
    session = Session.of(options, target=target, threads=threads)
    budget = Budget(seconds, float("inf") if trials is None else trials)
    graph = driver.load_graph(model, shapes, session)
    count = thread_count(session.options.threads)
    report("compiling untuned", ())
    plain = Compiled.of(graph, session)
    compile_seconds = budget.elapsed
    states: list[Progress] = []
    with Records(records_path(session.options)) as records:
        try:
            report("choosing algorithms", ())
            until = budget.elapsed + ALGORITHMS_SHARE * seconds
            choose_algorithms(graph, session, records, plain, lambda: budget.elapsed < until)
            variant = Compiled.of(graph, with_algorithms(graph, session, records))
            searches = Searches(search, session.target, count, seed, cost_model)
            for t in tasks_of(variant, session, pins or {}):
                states.append(Progress(t, searches.of(t.space)))
                resume(states[-1], records)
            left = seconds - budget.elapsed - compile_seconds - 0.2 * CHECK_ROUNDS
            with open_measurer(workers, BUILDER, count, session.jobs) as measurer:
                tune_tasks(
                    states,
                    measurer,
                    records,
                    Budget(max(left, 1.0), budget.trials),
                    2 * measurer.jobs,
                    lambda s: report("searching", s),
                )
        except KeyboardInterrupt:
            report("interrupted", states)
        report("comparing with untuned", states)
        better, speedup = better_of(
            graph, session, plain.executable, records, lambda: budget.elapsed < seconds
        )
    if html is not None:
        report("writing the report", states)
        title = Path(model).name if isinstance(model, (str, os.PathLike)) else graph.name
        write_html(html, title, states, plain.executable, better, speedup, started)
    return Tuned(better, speedup, tuple(states))


def check_arguments(seconds: float, trials: int | None, search: str) -> None:
    """Raises UsageError."""
    if not seconds > 0:
        raise UsageError(f"seconds must be positive, not {seconds!r}")
    if trials is not None and trials < 1:
        raise UsageError(f"trials must be at least 1, not {trials!r}")
    if search not in SEARCHES:
        raise UsageError(f"there is no search {search!r}; there are {', '.join(SEARCHES)}")
