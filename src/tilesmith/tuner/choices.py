"""Choices of the whole model, re-decided by measuring: whatever its graph passes ask for.

One kind of choice after the other, in the order in which the passes ask, each value is tried at
once wherever there is a choice of that kind: kernels that stay as they are come from the cache.
Both models are profiled in turns, and a workload keeps the value with which the kernels of its
source nodes take the least time.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping

from tilesmith import driver
from tilesmith.driver import Question, Session
from tilesmith.graph.nodes import Graph
from tilesmith.runtime.threads import thread_count
from tilesmith.strategy.knobs import Decisions, Value
from tilesmith.tuning.lookup import Match
from tilesmith.tuning.records import Key, Records, trial

from .profiles import Times, compared, in_turns, times
from .tasks import Compiled, random_inputs

WORTH_SHARE = 5e-3
"""Of the model's time: choices about kernels that take less are left alone."""

Choices = Mapping[str, Decisions]
"""Decisions by the workload of a choice."""


def decide(
    graph: Graph,
    session: Session,
    records: Records,
    plain: Compiled,
    go_on: Callable[[], bool] = lambda: True,
) -> tuple[Session, Compiled]:
    """The session with the best choices known, and the model compiled with them.

    What was measured before is not measured again.  Each trial's baseline is the model as it was
    decided until then.  Values are tried as long as `go_on`.
    """
    inputs = random_inputs(plain.executable)
    made: dict[str, Decisions] = {}
    current, compiled = forced(session, made), plain
    seen: set[str] = set()
    now: Times | None = None
    least = 0.0
    while True:
        open_ = {w: q for w, q in asked(graph, current).items() if w not in seen}
        if not open_:
            return current, compiled
        kind = next(iter(open_.values())).knob.name
        batch = {w: q for w, q in open_.items() if q.knob.name == kind}
        seen.update(batch)
        if now is None:
            now = times(compiled.executable, inputs)
            least = WORTH_SHARE * sum(t for _, t in now)
        worth = {w: q for w, q in batch.items() if compared(q.sources, now)[0] >= least}
        for value, flips in _untried(worth, records, session).items():
            if not go_on():
                break
            variant = Compiled.of(graph, forced(session, {**made, **flips}))
            both = in_turns(compiled.executable, variant.executable, inputs)
            _record(records, session, kind, value, {w: batch[w] for w in flips}, both)
        chosen = driver.lookup(records, session)
        fresh = {w: d for w in batch if (d := chosen(w).decisions)}
        if fresh:
            made |= fresh
            current = forced(session, made)
            compiled, now = Compiled.of(graph, current), None


def asked(graph: Graph, session: Session) -> dict[str, Question]:
    """The choices that the graph passes ask for, by workload, in order."""
    found: dict[str, Question] = {}
    driver.optimise(graph, dataclasses.replace(session, asked=found))
    return found


def forced(session: Session, choices: Choices) -> Session:
    """The session with these choices, and nothing else."""
    return dataclasses.replace(session, tuned=lambda text, _=None: Match(choices.get(text, {})))


def key_of(workload: str, session: Session) -> Key:
    """The key of a workload's text in this session."""
    return Key.of(workload, session.target.text, thread_count(session.options.threads))


def _untried(
    batch: Mapping[str, Question], records: Records, session: Session
) -> dict[Value, dict[str, Decisions]]:
    """The values that were not measured yet, each with the choices to try it in."""
    found: dict[Value, dict[str, Decisions]] = {}
    for workload, question in batch.items():
        knob = question.knob
        known = [t.candidate.get(knob.name) for t in records.trials(key_of(workload, session))]
        for value in knob.options:
            if value != knob.default and value not in known:
                found.setdefault(value, {})[workload] = {knob.name: value}
    return found


def _record(
    records: Records,
    session: Session,
    kind: str,
    value: Value,
    questions: Mapping[str, Question],
    both: tuple[Times, Times],
) -> None:
    """Store what one value did to the kernels of each choice."""
    trials = []
    for workload, question in questions.items():
        old, new = compared(question.sources, *both)
        label = f"{kind} {' '.join(sorted(question.sources))}"
        key = key_of(workload, session)
        trials.append(trial(key, {kind: value}, "ok", label[:60], "", new, old))
    records.add(*trials)
