"""Choices of the whole model: all choices of its graph passes, decided by measuring.

The kinds of choices are tried one after the other, in the order of the passes.  One trial sets all
choices of a kind to the same value.  Kernels that stay the same come from the cache.  Both models
are profiled alternately.  A workload keeps the value with which the kernels of its source nodes are
fastest.
"""

from __future__ import annotations

import dataclasses
import math
import time
from collections.abc import Callable, Mapping, Sequence

from tilesmith import driver
from tilesmith.driver import Question, Session
from tilesmith.graph.nodes import Graph
from tilesmith.runtime.threads import thread_count
from tilesmith.search_space.lookup import Match
from tilesmith.search_space.records import MARGIN, Key, Records, Trial, trial
from tilesmith.te.knobs import Decisions, Value

from .profiles import Times, compared, in_turns, times
from .tasks import Compiled, random_inputs

WORTH_SHARE = 5e-3
"""Fraction of the model's time below which choices about kernels are not tried."""

FIRST = 6
"""A value is first tried on this number of workloads, those with the largest times.  If it helps
none of them, it is not tried on the others.
"""

Choices = Mapping[str, Decisions]
"""For the workload of each choice, its decisions."""


def decide(
    graph: Graph,
    session: Session,
    records: Records,
    plain: Compiled,
    left: Callable[[], float] = lambda: math.inf,
    takes: float = 0.0,
) -> tuple[Session, Compiled]:
    """The session with the best choices known, and the model compiled with them.

    Measurements on record are not repeated.  Each trial's baseline is the model with all decisions
    made before.  Values are tried as long as `left` (seconds) exceeds the expected time of a trial.
    The expected time is `takes` at first, then that of the longest trial so far.
    """
    inputs = random_inputs(plain.executable)
    made: dict[str, Decisions] = {}
    current, compiled = forced(session, made), plain
    seen: set[str] = set()
    now: Times | None = None
    while True:
        open_ = {w: q for w, q in asked(graph, current).items() if w not in seen}
        if not open_:
            return current, compiled
        kind = next(iter(open_.values())).knob.name
        batch = {w: q for w, q in open_.items() if q.knob.name == kind}
        seen.update(batch)
        if left() <= takes:
            made = _on_record(graph, session, records)
            current = forced(session, made)
            return current, Compiled.of(graph, current) if made else plain
        known = now = now or times(compiled.executable, inputs)
        least = WORTH_SHARE * sum(t for _, t in known)
        worth = [w for w, q in batch.items() if compared(q.sources, known)[0] >= least]
        by_share = sorted(worth, key=lambda w: -compared(batch[w].sources, known)[0])
        for value, workloads in _untried(by_share, batch, records, session).items():
            for some in (workloads[:FIRST], workloads[FIRST:]):
                if not some or left() <= takes:
                    break
                began = time.perf_counter()
                flips = {w: {kind: value} for w in some}
                variant = Compiled.of(graph, forced(session, {**made, **flips}))
                both = in_turns(compiled.executable, variant.executable, inputs)
                tried = _trials(session, kind, value, {w: batch[w] for w in some}, both)
                records.add(*tried)
                takes = max(takes, time.perf_counter() - began)
                if all(t.ratio > 1 - MARGIN for t in tried):
                    break
        chosen = driver.lookup(records, session)
        fresh = {w: d for w in batch if (d := chosen(w).decisions)}
        if fresh:
            made |= fresh
            current = forced(session, made)
            compiled, now = Compiled.of(graph, current), None


def _on_record(graph: Graph, session: Session, records: Records) -> dict[str, Decisions]:
    """The choices on record that differ from the passes' own."""
    chosen = driver.lookup(records, session)
    questions = asked(graph, dataclasses.replace(session, tuned=chosen))
    return {w: d for w in questions if (d := chosen(w).decisions)}


def asked(graph: Graph, session: Session) -> dict[str, Question]:
    """The choices that the graph passes declare, by workload, in order."""
    questions: dict[str, Question] = {}
    driver.optimise(graph, dataclasses.replace(session, asked=questions))
    return questions


def forced(session: Session, choices: Choices) -> Session:
    """The session with these choices instead of those on record."""
    return dataclasses.replace(session, tuned=lambda text, *_: Match(choices.get(text, {})))


def key_of(workload: str, session: Session) -> Key:
    """The key of a workload's text in this session."""
    return Key.of(workload, session.target.text, thread_count(session.options.threads))


def _untried(
    workloads: Sequence[str], batch: Mapping[str, Question], records: Records, session: Session
) -> dict[Value, list[str]]:
    """The values that were not measured yet, each with the workloads to try it on."""
    untried: dict[Value, list[str]] = {}
    for workload in workloads:
        knob = batch[workload].knob
        known = [t.candidate.get(knob.name) for t in records.trials(key_of(workload, session))]
        for value in knob.options:
            if value != knob.default and value not in known:
                untried.setdefault(value, []).append(workload)
    return untried


def _trials(
    session: Session,
    kind: str,
    value: Value,
    questions: Mapping[str, Question],
    both: tuple[Times, Times],
) -> list[Trial]:
    """Trials of one value, for the kernels of each choice."""
    trials = []
    for workload, question in questions.items():
        old, new = compared(question.sources, *both)
        label = f"{kind} {' '.join(sorted(question.sources))}"
        key = key_of(workload, session)
        trials.append(trial(key, {kind: value}, "ok", label[:60], "", new, old))
    return trials
