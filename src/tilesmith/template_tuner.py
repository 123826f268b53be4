"""Tuning schedules of one's own: a template is a function that asks for its decisions.

def gemm(cfg, n):
    ...
    s = te.create_schedule(C.op)
    io, ii = cfg.split("i", s[C], C.op.axis[0])
    cfg.annotate("ii", s[C], ii, ("none", "unroll"))
    return s, [A, B, C]

f = ts.tune_template(gemm, 512, seconds=30)
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tilesmith import driver
from tilesmith.codegen.kernel import KernelJob
from tilesmith.driver import Session
from tilesmith.loop.text import print_func
from tilesmith.runtime.function import NativeFunction
from tilesmith.runtime.threads import thread_count
from tilesmith.strategy.knobs import ANALYTIC, Config, Decisions
from tilesmith.support.errors import UsageError
from tilesmith.support.options import Options, records_path
from tilesmith.te.lower import lower
from tilesmith.te.schedule import Schedule, create_schedule
from tilesmith.te.tensor import Placeholder, Tensor
from tilesmith.tuner import BUILDER, Report, check_arguments, random_array, resume
from tilesmith.tuning.family import nest_family
from tilesmith.tuning.fleet import check_workers, open_measurer
from tilesmith.tuning.jobs import Argument
from tilesmith.tuning.measure import Task
from tilesmith.tuning.records import Key, Records
from tilesmith.tuning.scheduler import Budget, Progress, tune_tasks
from tilesmith.tuning.search import SEARCHES
from tilesmith.tuning.space import Candidate, Space

Template = Callable[..., "tuple[Schedule, Sequence[Tensor]]"]


def tune_template(
    template: Template,
    *arguments: Any,
    seconds: float = 30.0,
    trials: int | None = None,
    target: str | None = None,
    threads: int | None = None,
    options: Options | None = None,
    search: str = "coordinate",
    seed: int = 0,
    pins: Decisions | None = None,
    workers: str | None = None,
    report: Report = lambda _stage, _tasks: None,
) -> NativeFunction:
    """The fastest schedule that a template can make, as a native function.

    `template(cfg, *arguments)` returns a schedule and its arguments, inputs before outputs; it asks
    `cfg` (a `Config`) for its decisions.  Every candidate's result is compared with that of the
    same expressions without a schedule.  `workers` as in `tune`.  Raises UsageError, ScheduleError.
    """
    check_arguments(seconds, trials, search)
    check_workers(workers)
    session = Session.of(options, target=target, threads=threads)
    count = thread_count(session.options.threads)
    name = getattr(template, "__name__", "template")
    task = _template_task(lambda cfg: template(cfg, *arguments), name, session, count, pins or {})
    state = Progress(task, SEARCHES[search](task.space, seed, None))
    budget = Budget(seconds, float("inf") if trials is None else trials)
    with Records(records_path(session.options)) as records:
        resume(state, records)
        try:
            with open_measurer(workers, BUILDER, count, session.jobs) as measurer:
                tune_tasks(
                    [state], measurer, records, budget, 2 * measurer.jobs,
                    lambda s: report("searching", s),
                )  # fmt: skip
        except KeyboardInterrupt:
            report("interrupted", [state])
        best = records.best(task.key)
    decisions = best.candidate if best is not None else task.space.start
    s, args = template(Config(decisions), *arguments)
    return driver.build(s, args, session.target, count, options=session.options)


def _template_task(
    template: Callable[[Config], tuple[Schedule, Sequence[Tensor]]],
    name: str,
    session: Session,
    threads: int,
    pins: Decisions,
) -> Task:
    _, args = template(ANALYTIC)
    inputs = [a for a in args if isinstance(a.op, Placeholder)]
    outputs = [a for a in args if not isinstance(a.op, Placeholder)]
    plain = create_schedule([t.op for t in outputs])
    naive = lower(plain, args, "naive")
    text = print_func(naive)
    key = Key.of(text, session.target.text, threads)

    def build(candidate: Candidate) -> bytes:
        s, args = template(Config(candidate))
        text = print_func(lower(s, args, f"k_{key.workload}"))
        symbol = f"k_{key.workload}"
        return KernelJob(text, symbol, session.options, session.target, nest=True).to_bytes()

    def arguments(candidate: Candidate) -> tuple[tuple[Argument, ...], tuple[Argument, ...]]:
        del candidate
        return tuple(map(_argument, inputs)), tuple(map(_argument, outputs))

    def reference() -> tuple[Sequence[np.ndarray], Sequence[np.ndarray]]:
        rng = np.random.default_rng(0)
        given = [random_array(rng, _argument(t)) for t in inputs]
        results = [np.zeros(a.shape, a.type.numpy) for a in map(_argument, outputs)]
        driver.build(plain, args, session.target, 1, options=session.options)(*given, *results)
        return given, results

    space = Space(lambda cfg: template(cfg), pins)
    bound = max(session.options.bound(str(t.dtype)) for t in outputs)
    return Task(key, name, space, build, arguments, reference, bound, 1.0, nest_family(text))


def _argument(t: Tensor) -> Argument:
    if not all(isinstance(n, int) for n in t.shape):
        raise UsageError(f"{t.name}: a template is tuned for fixed shapes, not {t.shape}")
    return Argument(t.dtype.name, tuple(int(n) for n in t.shape))  # type: ignore[arg-type]
