"""Tuning of users' own schedules: a template is a function that declares its decisions.

def gemm(cfg, n):
    ...
    s = te.create_schedule(C.op)
    io, ii = cfg.split("i", s[C], C.op.axis[0])
    cfg.annotate("ii", s[C], ii, ("none", "unroll"))
    return s, [A, B, C]

f = ts.tune_template(gemm, 512, seconds=30)

For an expression without a template, rules generate one: f = ts.tune_expression([A, B, C]).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from math import isfinite
from typing import Any, Unpack

import numpy as np

from tilesmith import driver
from tilesmith.codegen.kernel import KernelJob
from tilesmith.codegen.targets import covers, host
from tilesmith.driver import Session
from tilesmith.loop.text import print_func
from tilesmith.runtime.arguments import KernelFunction
from tilesmith.runtime.threads import thread_count
from tilesmith.search_space.family import nest_family
from tilesmith.search_space.records import MARGIN, Key, Records, Trial
from tilesmith.search_space.space import Candidate, Space
from tilesmith.search_space.workload import accuracy_text
from tilesmith.strategy.sketch import generated
from tilesmith.support.arguments import checked
from tilesmith.support.errors import UsageError
from tilesmith.support.measure import interleave, ratio
from tilesmith.support.options import Options, records_path
from tilesmith.te.knobs import ANALYTIC, Config, Decisions
from tilesmith.te.lower import lower
from tilesmith.te.schedule import Schedule, create_schedule
from tilesmith.te.tensor import Placeholder, Tensor
from tilesmith.tuning.fleet import open_measurer
from tilesmith.tuning.interrupt import Interrupt
from tilesmith.tuning.jobs import Argument
from tilesmith.tuning.measure import Arrays, Task
from tilesmith.tuning.options import TuneChoices, TuneOptions, check_target
from tilesmith.tuning.scheduler import Budget, Progress, tune_tasks
from tilesmith.tuning.search import Searches
from tilesmith.tuning.tasks import BUILDER, random_array, resume

Template = Callable[..., "tuple[Schedule, Sequence[Tensor]]"]

SECONDS = 30.0
"""Default time of a search."""
CHECK_SECONDS = 0.8
"""Seconds for comparing the best candidate with the template's default."""
TURN_RUNS, LEAST_ROUNDS, MOST_ROUNDS = 4, 3, 8
"""Least number of runs per turn, and bounds on the turns of each of the two schedules."""


@checked(UsageError)
def tune_template(
    template: Template,
    *arguments: Any,
    target: str | None = None,
    threads: int | None = None,
    options: Options | None = None,
    **choices: Unpack[TuneChoices],
) -> KernelFunction:
    """The fastest schedule that a template can make, as a native function.

    template: `template(cfg, *arguments)` returns a schedule and its arguments, inputs before
        outputs; it reads its decisions from `cfg` (a `Config`).
    choices: as in `tune`, by default 30 seconds; there is no report.

    Every candidate's result is compared with that of the same expressions without a schedule.  At
    the end the best candidate runs alternately with the template's default, and the faster one is
    returned.  This comparison is left out for long runs, for other machines, and with `flush`.
    Raises UsageError, ScheduleError.
    """
    choices.setdefault("seconds", SECONDS)
    session = Session.of(options, target=target, threads=threads)
    name = getattr(template, "__name__", "template")
    return _tune(lambda cfg: template(cfg, *arguments), name, session, TuneOptions(**choices))


@checked(UsageError)
def apply_best(
    template: Template,
    *arguments: Any,
    target: str | None = None,
    threads: int | None = None,
    options: Options | None = None,
) -> KernelFunction:
    """The best schedule of a template on record, as a native function; nothing is measured.

    template, arguments: as for `tune_template`, which made the records.

    The function's `decisions` are empty if no record is faster than the template's default, or if
    the final comparison of `tune_template` kept the default.  Raises UsageError, ScheduleError.
    """
    session = Session.of(options, target=target, threads=threads)
    name = getattr(template, "__name__", "template")

    def made_from(cfg: Config) -> tuple[Schedule, Sequence[Tensor]]:
        return template(cfg, *arguments)

    count = thread_count(session.options.threads)
    task = template_task(made_from, name, session, count, TuneOptions())
    with Records(records_path(session.options)) as records:
        known = [
            t for t in records.trials(task.key)
            if t.status == "ok" and t.ratio <= 1 - MARGIN
            and task.space.legal(t.candidate) == t.candidate
        ]  # fmt: skip
    best = min(known, key=lambda t: t.ratio, default=None)
    return _made(made_from, task.space.start if best is None else best.candidate, session, count)


def _made(
    template: Callable[[Config], tuple[Schedule, Sequence[Tensor]]],
    decisions: Decisions,
    session: Session,
    threads: int,
) -> KernelFunction:
    """The native function of the schedule with these decisions."""
    s, args = template(Config(decisions))
    f = driver.build(s, args, session.target, threads, options=session.options)
    f.decisions = dict(decisions)
    return f


@checked(UsageError)
def tune_expression(
    args: Sequence[Tensor],
    *,
    target: str | None = None,
    threads: int | None = None,
    options: Options | None = None,
    **choices: Unpack[TuneChoices],
) -> KernelFunction:
    """The fastest schedule found for tensor expressions, as a native function of `args`.

    args: placeholders and computed tensors in the order of the function's parameters.

    The space is generated by rules (`strategy.sketch`); the search starts from their default.
    Other arguments are as for `tune_template`.  Raises UsageError, ScheduleError.
    """
    choices.setdefault("seconds", SECONDS)
    session = Session.of(options, target=target, threads=threads)
    template = generated(args, session.target, session.options.algorithm_bound)
    return _tune(
        template, getattr(template, "__name__", "template"), session, TuneOptions(**choices)
    )


def _tune(
    template: Callable[[Config], tuple[Schedule, Sequence[Tensor]]],
    name: str,
    session: Session,
    tuning: TuneOptions,
) -> KernelFunction:
    if tuning.devices is not None:
        raise UsageError(
            "devices: expected a model, found an expression; tune a model on a device with ts.tune"
        )
    if tuning.html is not None:
        raise UsageError("html: a report is about a whole model; here there is one kernel")
    check_target(session.target)
    count = thread_count(session.options.threads)
    task = template_task(template, name, session, count, tuning)
    searches = Searches(tuning.search, session.target, count, tuning.seed, tuning.cost_model)
    state = Progress(task, searches.of(task.space))
    interrupt = tuning.interrupt or Interrupt()
    searching = max(tuning.seconds - CHECK_SECONDS, tuning.seconds / 2)
    budget = Budget(
        searching, tuning.most_trials, interrupt=interrupt, early_stopping=tuning.early_stopping
    )
    with Records(records_path(session.options)) as records:
        with interrupt.on_signal():
            resume(state, records)
            workers, flush = tuning.workers, tuning.flush
            with open_measurer(workers, BUILDER, count, session.jobs, flush) as measurer:
                tune_tasks(
                    [state], measurer, records, budget, 2 * measurer.jobs,
                    lambda s: tuning.tell("searching", s),
                )  # fmt: skip
        start = task.space.start
        # All ratios are relative to the baseline.  `start` is another candidate only if a user's
        # constraint excludes the baseline.
        is_known = start == task.space.baseline
        best = _best(state, 1 - MARGIN if is_known else float("inf"))
        # The check is valid only on this machine, and only if caches are not flushed.
        is_here = workers is None and not flush and covers(host(), session.target)
        if best is not None and is_known and is_here and _is_short(best):
            best = _checked(best, start, task, lambda d: _made(template, d, session, count))
            state.seen[best.decisions] = best
            records.add(best)
        records.add(*_refuted(state, best))
    if best is not None and is_known and best.ratio > 1 - MARGIN:
        best = None
    return _made(template, start if best is None else best.candidate, session, count)


def _best(state: Progress, most: float) -> Trial | None:
    """The best of the confirmed trials (of all trials if none is confirmed); None if its ratio is
    above `most`.
    """
    trials = [t for k, t in state.seen.items() if k in state.confirmed] or state.seen.values()
    best = min(trials, key=lambda t: t.ratio, default=None)
    return best if best is not None and best.ratio <= most and isfinite(best.ratio) else None


def _is_short(trial: Trial) -> bool:
    """Whether the runs are short enough for a check.  Long runs need no check, since their times
    scatter little.
    """
    return 2 * LEAST_ROUNDS * TURN_RUNS * trial.baseline <= CHECK_SECONDS


def _checked(
    best: Trial, start: Decisions, task: Task, made: Callable[[Decisions], KernelFunction]
) -> Trial:
    """`best` with its time measured again, alternately with `start`, the default.  The time in the
    trial is the least of many, so it is biased.

    Both candidates have run before, in another process.
    """
    rng = np.random.default_rng(0)
    inputs, outputs = task.arguments(best.candidate)
    arrays = [random_array(rng, a) for a in inputs]
    results = [np.zeros(a.shape, a.type.numpy) for a in outputs]
    functions = {"best": made(best.candidate), "start": made(start)}
    calls = {name: f.bind(*arrays, *results) for name, f in functions.items()}
    turn = CHECK_SECONDS / (2 * MOST_ROUNDS)
    longest = max(turn, TURN_RUNS * best.baseline)
    rounds = max(int(CHECK_SECONDS / (2 * longest)), LEAST_ROUNDS)
    taken = interleave(calls, rounds=rounds, turn_seconds=turn)
    return replace(best, seconds=best.baseline * ratio(taken["best"], taken["start"]), when=0.0)


def _refuted(state: Progress, best: Trial | None) -> list[Trial]:
    """The trials whose ratio is better than that of the search's outcome.  The outcome was measured
    for longer, so these trials get the status "unsettled", and `apply_best` applies the outcome.
    """
    outcome = min(1 - MARGIN, best.ratio if best is not None else 1.0)
    cause = "faster in a short measurement than what won the long ones"
    return [
        replace(t, status="unsettled", cause=cause)
        for t in state.seen.values()
        if t.status == "ok" and t.ratio <= outcome and t is not best
    ]


@checked(UsageError)
def auto_schedule(args: Sequence[Tensor], target: str | None = None) -> Schedule:
    """The schedule that rules choose for tensor expressions by their structure.

    Nothing is measured; `tune_expression` starts from it.  More steps may follow.  Raises
    UsageError.
    """
    session = Session.of(None, target=target)
    return session.backend.auto_schedule(args, session.target, session.options.algorithm_bound)


def template_task(
    template: Callable[[Config], tuple[Schedule, Sequence[Tensor]]],
    name: str,
    session: Session,
    threads: int,
    tuning: TuneOptions,
) -> Task:
    _, args = template(ANALYTIC)
    inputs = [a for a in args if isinstance(a.op, Placeholder)]
    outputs = [a for a in args if not isinstance(a.op, Placeholder)]
    plain = create_schedule([t.op for t in outputs])
    naive = lower(plain, args, "naive")
    text = f"{print_func(naive)}template {name}\n{accuracy_text(session.options.accuracy)}"
    key = Key.of(text, session.target.text, threads)

    def build(candidate: Candidate) -> bytes:
        s, args = template(Config(candidate))
        text = print_func(lower(s, args, f"k_{key.workload}"))
        return KernelJob(text, session.options, session.target, nest=True).to_bytes()

    def arguments(candidate: Candidate) -> tuple[tuple[Argument, ...], tuple[Argument, ...]]:
        del candidate
        return tuple(map(_argument, inputs)), tuple(map(_argument, outputs))

    def reference() -> tuple[Arrays, Sequence[Arrays]]:
        rng = np.random.default_rng(0)
        values = [random_array(rng, _argument(t)) for t in inputs]
        results = [np.zeros(a.shape, a.type.numpy) for a in map(_argument, outputs)]
        driver.build(plain, args, session.target, 1, options=session.options)(*values, *results)
        return values, [results]

    space = Space(template, tuning.pins, tuning.forbid)
    bounds = tuple(session.options.bound(str(t.dtype)) for t in outputs)
    return Task(key, name, space, build, arguments, reference, bounds, 1.0, nest_family(text))


def _argument(t: Tensor) -> Argument:
    if not all(isinstance(n, int) for n in t.shape):
        raise UsageError(f"{t.name}: a template is tuned for fixed shapes, not {t.shape}")
    return Argument(t.dtype.name, tuple(int(n) for n in t.shape))  # type: ignore[arg-type]
