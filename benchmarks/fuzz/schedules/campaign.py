"""Many random schedules, and the fewest steps for each that should not have failed."""

from __future__ import annotations

import tempfile
from collections import Counter
from collections.abc import Generator, Iterator, Sequence
from contextlib import closing
from dataclasses import replace
from functools import partial
from pathlib import Path

import children

from ..campaign import shown
from ..judge import CRASHED, MEMORY, WRONG, Verdict
from .judge import (
    SECONDS,
    TARGETS,
    Scheduled,
    judge_schedule,
    log_steps,
    logged_steps,
    made,
    scheduled,
)

_MOST_TRIES = 120


def judge_schedules(cases: Sequence[Scheduled]) -> Generator[Verdict, None, None]:
    """The verdicts of cases in child processes."""
    for v in children.each(cases, judge_schedule, SECONDS, MEMORY):
        yield Verdict(CRASHED, v.reason) if isinstance(v, children.Died) else v


def shrunk(case: Scheduled, verdict: Verdict) -> tuple[Scheduled, Verdict]:
    """The case with the fewest steps, then outputs, that was found with the same result."""
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder) / "steps"
        list(children.each([case], partial(log_steps, to=log), SECONDS, MEMORY))
        steps = logged_steps(log) if log.exists() else ()
    best = replace(case, steps=steps, outputs=tuple(k.name for k in made(case).program.outputs))
    (found,) = judge_schedules([best])
    if not _is_alike(found, verdict):
        return case, verdict
    tries, size = 0, max(1, len(steps) // 2)
    verdict = found
    while tries < _MOST_TRIES:
        smaller = False
        candidates = list(_candidates(best, size))
        with closing(judge_schedules(candidates)) as verdicts:
            for candidate, found in zip(candidates, verdicts, strict=True):
                tries += 1
                if _is_alike(found, verdict):
                    best, verdict, smaller = candidate, found, True
                if smaller or tries >= _MOST_TRIES:
                    break
        if not smaller:
            if size == 1:
                break
            size //= 2
    return best, verdict


def _is_alike(one: Verdict, other: Verdict) -> bool:
    """Whether two verdicts may have one cause: the first words of their reasons are the same."""
    return one.result == other.result and one.reason[:12] == other.reason[:12]


def _candidates(case: Scheduled, size: int) -> Iterator[Scheduled]:
    """The case without so many of its steps, and with one output less."""
    steps, outputs = case.steps or (), case.outputs or ()
    for end in range(len(steps), 0, -size):
        yield replace(case, steps=steps[: max(0, end - size)] + steps[end:])
    if size == 1 and len(outputs) > 1:
        for gone in outputs:
            yield replace(case, outputs=tuple(o for o in outputs if o != gone))


def source_of(case: Scheduled) -> str:
    """The case as Python that makes `s` and `arguments`."""
    m = made(case)
    names = [*m.program.inputs, *(k.name for k in m.program.outputs)]
    results = ", ".join(k.name for k in m.program.outputs)
    steps = "# the seed's steps, or those of ts.auto_schedule(arguments)"
    if case.steps is not None:
        steps = "\n".join(map(str, case.steps))
    return (
        f"from tilesmith import te\n\n{m.program.source}\narguments = [{', '.join(names)}]\n"
        f"s = te.create_schedule([{results}])\n{steps}\n"
        f"# target {case.target}, symbols {m.program.sizes}"
    )


def fuzz_schedules(
    seeds: Sequence[int], to: Path, targets: Sequence[str] = TARGETS
) -> Counter[str]:
    """Judges the schedules of seeds; prints and saves the smallest of each that crashed or is
    wrong.
    """
    counts: Counter[str] = Counter()
    cases = [scheduled(seed, targets) for seed in seeds]
    for case, verdict in zip(cases, judge_schedules(cases), strict=True):
        counts[verdict.result] += 1
        if counts.total() % 500 == 0:
            print(f"schedules to {case.seed}: {shown(counts)}", flush=True)
        if verdict.result in (WRONG, CRASHED):
            case, verdict = shrunk(case, verdict)
            text = f"# seed {case.seed}: {verdict.result}: {verdict.reason}\n{source_of(case)}\n"
            print(text, flush=True)
            to.mkdir(parents=True, exist_ok=True)
            (to / f"schedule-{case.seed}.py").write_text(text, encoding="utf-8")
    return counts
