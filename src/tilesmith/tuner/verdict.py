"""The final check: the model with the decisions on record against the untuned one.

Kernels are fast by themselves and may be slow in their place: another kernel's results lie
elsewhere in the caches, or threads share the work in another way.  So both models are profiled in
turns, and decisions whose kernels turn out to be slower there are dropped; what is left must make
the whole faster, or the least certain are dropped as well.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Mapping, Sequence

import numpy as np

from tilesmith import driver
from tilesmith.driver import Session
from tilesmith.graph.nodes import Fused, Graph, InPlace
from tilesmith.runtime.executable import Executable
from tilesmith.support.measure import interleave, ratio
from tilesmith.tuning.lookup import Lookup
from tilesmith.tuning.records import Key, Records
from tilesmith.tuning.workload import group_workload

from .choices import asked, key_of
from .profiles import REPEATS, ROUNDS, Times, compared, in_turns
from .tasks import Compiled, random_inputs

CHECK_ROUNDS = 7
"""Turns of each executable in the final check."""
PROFILE_SECONDS = 1.5
"""Of turns in which every kernel is timed."""
SHARES = (1.02, 0.97, 0.9)
"""Attempts: the share of the untuned time beyond which a decision is dropped.  The first allows for
noise; the others look for the culprits where the whole is slower all the same."""


def better_of(
    graph: Graph,
    session: Session,
    plain: Executable,
    records: Records,
    go_on: Callable[[], bool] = lambda: True,
) -> tuple[Executable, float]:
    """The executable with the decisions on record and how many times as fast as `plain` it is;
    `plain` where none is faster.  Decisions that do not help are marked as worse.  `go_on`: whether
    there is time for another attempt.
    """
    inputs = random_inputs(plain)
    for share in SHARES:
        chosen, tuned = _compiled(graph, session, records)
        sources = _sources(graph, session, chosen, tuned)
        before, after = in_turns(plain, tuned.executable, inputs, PROFILE_SECONDS)
        slow = slower(sources, before, after, share)
        _mark(records, chosen, slow, "its kernels were slower in the model")
        if slow:
            chosen, tuned = _compiled(graph, session, records)
        if not chosen.used:
            return plain, 1.0
        speedup = _speedup(plain, tuned.executable, inputs)
        if speedup > 1:
            return tuned.executable, speedup
        if not go_on():
            break
    rest = driver.lookup(records, session)
    driver.apply_tuning(driver.optimise(graph, _tuned(session, rest)), _tuned(session, rest))
    _mark(records, rest, rest.used, "the model as a whole was slower with it")
    return plain, 1.0


def seconds_needed(compile_seconds: float, plain: Executable) -> float:
    """What `better_of` takes: it compiles twice with kernels that are known, each time in
    `compile_seconds`, and runs the model.
    """
    once = float(plain.kernel_seconds(*random_inputs(plain), repeats=2).sum())
    profiles = max(PROFILE_SECONDS, 2 * ROUNDS[0] * REPEATS * once)
    return 2 * compile_seconds + profiles + 2 * CHECK_ROUNDS * max(0.12, 4 * once)


def slower(
    sources: Mapping[Key, frozenset[str]], before: Times, after: Times, share: float
) -> list[Key]:
    """The decisions whose kernels take more than `share` of the time that the same source nodes
    took before; `sources`: the nodes that each decision is about.
    """
    found: list[Key] = []
    for key, names in sources.items():
        old, new = compared(names, before, after)
        if new > share * old:
            found.append(key)
    return found


def _compiled(graph: Graph, session: Session, records: Records) -> tuple[Lookup, Compiled]:
    """The model as `compile` makes it with these records, and what it asked them."""
    chosen = driver.lookup(records, session)
    return chosen, Compiled.of(graph, _tuned(session, chosen))


def _tuned(session: Session, chosen: Lookup) -> Session:
    return dataclasses.replace(session, tuned=chosen)


def _sources(
    graph: Graph, session: Session, chosen: Lookup, tuned: Compiled
) -> dict[Key, frozenset[str]]:
    """The source nodes that each decision used is about."""
    found: dict[Key, frozenset[str]] = {key: frozenset() for key in chosen.used}

    def note(workload: str, names: Iterable[str]) -> None:
        key = key_of(workload, session)
        if key in found:
            found[key] |= frozenset(names)

    for node in tuned.fused.nodes:
        if isinstance(node.op, Fused) and not isinstance(node.op, InPlace):
            constants = [i for i, v in enumerate(node.inputs) if v in tuned.fused.constant]
            workload = group_workload(driver.canonical(node.op.body), constants)
            note(workload, driver.sources(node))
    for workload, question in asked(graph, _tuned(session, chosen)).items():
        note(workload, question.sources)
    return found


def _speedup(plain: Executable, tuned: Executable, inputs: Sequence[np.ndarray]) -> float:
    samples = interleave(
        {"untuned": lambda: plain(*inputs), "tuned": lambda: tuned(*inputs)}, rounds=CHECK_ROUNDS
    )
    return ratio(samples["untuned"], samples["tuned"])


def _mark(records: Records, chosen: Lookup, keys: Iterable[Key], cause: str) -> None:
    """Mark the trials that gave decisions for some workloads as worse (there: one that was made for
    a relative stays what it is).
    """
    used = ((key, chosen.used[key]) for key in keys)
    records.add(*(dataclasses.replace(t, key=key, status="worse", cause=cause) for key, t in used))
