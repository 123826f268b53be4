"""The final check: the model with the decisions on record against the untuned one.

A kernel that is fast by itself may be slow in the model: its inputs are elsewhere in the caches, or
threads share the work in another way.  So both models are profiled alternately, and decisions whose
kernels are slower in the model are dropped.  The other decisions must make the whole model faster;
otherwise the least certain of them are dropped, too.  Decisions that were not judged for lack of
time are not used, and the next run judges them.
"""

from __future__ import annotations

import dataclasses
import math
import time
from collections.abc import Callable, Iterable, Mapping, Sequence

import numpy as np

from tilesmith import driver
from tilesmith.driver import Question, Session
from tilesmith.driver.assembly.steps import sources
from tilesmith.driver.kernels import tuned_body
from tilesmith.graph.control import kernels_in
from tilesmith.graph.nodes import Fused, Graph
from tilesmith.runtime.executable import Executable
from tilesmith.runtime.remote.device import timed_in_turns
from tilesmith.search_space.lookup import Lookup
from tilesmith.search_space.records import MARGIN, Key, Records, Status
from tilesmith.search_space.workload import group_workload
from tilesmith.support.measure import Ratio, compare, with_interval

from .graph_choices import key_of
from .profiles import REPEATS, ROUNDS, Times, compared, in_turns
from .tasks import Compiled, random_inputs

CHECK_ROUNDS = (3, 7, 20)
"""Turns of each executable in the final check: the least number, the usual number, and the largest
number.  There are more turns than usual if they fit into `CHECK_SECONDS`.
"""
CHECK_SECONDS = 5.0
TURN_SECONDS, TURN_RUNS = 0.12, 4
"""Least seconds and least runs of a turn.  A turn ends when both are reached."""
PROFILE_SECONDS = 1.5
"""Seconds of turns in which every kernel is timed."""
NONE = Ratio(1.0, 1.0, 1.0, 0)
"""The speedup where the untuned model is kept."""
SLOWER = "the model as a whole was slower with it"
SHARES = (1.02, 0.97, 0.9)
"""For each attempt, a limit of tuned time / untuned time.  A decision above the limit is dropped.
The first limit allows for noise.  If the whole model is still slower than the untuned one, the next
attempt drops more decisions.
"""


def better_of(
    graph: Graph,
    session: Session,
    plain: Executable,
    records: Records,
    left: Callable[[], float] = lambda: math.inf,
    needed: float = 0.0,
    each: float = 0.0,
) -> tuple[Executable, Ratio]:
    """The executable with the decisions on record, and its speedup over `plain`.  If no such
    executable is faster, `plain` and `NONE`.

    left: seconds that are left.
    needed: seconds for the rest of the check (see `seconds_needed`).
    each: seconds to compile one more kernel.

    Decisions that do not help are marked as worse.  Another attempt begins if as much time is left
    as the last attempt took.  Otherwise the decisions still in question are marked as unsettled: no
    compilation uses them, and the next run begins with them.  Decisions from a relative (a similar
    workload) are marked as worse instead, since nothing was measured for this workload.  Decisions
    of relatives are adapted to workloads as long as there is time beyond `needed` and `each`.
    """
    inputs = random_inputs(plain)

    fitted: set[Key] = set()

    def may_fit(key: Key, so_far: int) -> bool:
        if left() > needed + each * so_far:
            fitted.add(key)
        return key in fitted  # a positive answer for a workload is final

    for share in SHARES:
        began = time.perf_counter()
        chosen, tuned, sources = _compiled(graph, session, records, may_fit)
        if tuned is None:
            return plain, NONE
        profiling = min(PROFILE_SECONDS, left() / 2)
        before, after = in_turns(plain, tuned.executable, inputs, profiling)
        slow = slower(sources, before, after, share)
        _mark(records, chosen, slow, "worse", "its kernels were slower in the model")
        if slow:
            chosen, tuned, _ = _compiled(graph, session, records, may_fit)
            if tuned is None:
                return plain, NONE
        once = sum(t for _, t in before)
        speedup = _speedup(plain, tuned.executable, inputs, check_rounds(left(), once))
        if speedup.median > 1:
            unsettled = [k for k, t in chosen.used.items() if t.status == "unsettled"]
            _mark(records, chosen, unsettled, "ok", "")
            return tuned.executable, speedup
        is_last = share == SHARES[-1]
        if is_last or left() < time.perf_counter() - began:
            guilty = [k for k, t in chosen.used.items() if is_last or t.key != k]
            _mark(records, chosen, guilty, "worse", SLOWER)
            _set_aside(records, chosen.used)
            break
    return plain, NONE


def seconds_needed(compile_seconds: float, once: float) -> float:
    """Seconds of an attempt of `better_of`: it compiles twice with known kernels, each time in
    `compile_seconds`, and runs models that take about `once`.
    """
    profiles = max(PROFILE_SECONDS, 2 * ROUNDS[0] * REPEATS * once)
    return 2 * compile_seconds + profiles + _most_rounds(once) * _round_seconds(once)


def check_rounds(left: float, once: float) -> int:
    """Turns of the final check in `left` seconds, for executables that take about `once`."""
    most = _most_rounds(once)
    fitting = left / _round_seconds(once)
    return most if fitting >= most else max(int(fitting), CHECK_ROUNDS[0])


def _most_rounds(once: float) -> int:
    _, wanted, most = CHECK_ROUNDS
    return min(max(int(CHECK_SECONDS / _round_seconds(once)), wanted), most)


def _round_seconds(once: float) -> float:
    """Seconds of a round: one turn of each executable."""
    return 2 * max(TURN_SECONDS, TURN_RUNS * once)


def slower(
    sources: Mapping[Key, frozenset[str]], before: Times, after: Times, share: float
) -> list[Key]:
    """The decisions whose kernels take more than `share` of the time that the same source nodes
    took before.

    sources: the nodes of each decision.
    """
    slow: list[Key] = []
    for key, names in sources.items():
        old, new = compared(names, before, after)
        if new > share * old:
            slow.append(key)
    return slow


def _compiled(
    graph: Graph, session: Session, records: Records, may_fit: Callable[[Key, int], bool]
) -> tuple[Lookup, Compiled | None, dict[Key, frozenset[str]]]:
    """The lookup of the model's decisions in these records, the model compiled with the decisions,
    and the source nodes of each decision.  The model is None if no decisions are on record.
    """
    chosen = dataclasses.replace(driver.lookup(records, session), unsettled=True, may_fit=may_fit)
    asked: dict[str, Question] = {}
    now = dataclasses.replace(_tuned(session, chosen), asked=asked)
    fused, decisions = Compiled.groups(graph, now)
    if not chosen.used:
        return chosen, None, {}
    sources = _sources(fused, asked, session, chosen)
    return chosen, Compiled.of_groups(fused, decisions, now), sources


def _tuned(session: Session, chosen: Lookup) -> Session:
    # Decisions of similar workloads may be adapted to every group: only time limits their number.
    return dataclasses.replace(session, tuned=chosen, fitted_share=1.0)


def _sources(
    fused: Graph, asked: Mapping[str, Question], session: Session, chosen: Lookup
) -> dict[Key, frozenset[str]]:
    """The source nodes of each decision that was used."""
    by_key: dict[Key, frozenset[str]] = {key: frozenset() for key in chosen.used}
    accuracy = session.options.accuracy

    def note(workload: str, names: Iterable[str]) -> None:
        key = key_of(workload, session)
        if key in by_key:
            by_key[key] |= frozenset(names)

    for graph, node in kernels_in(fused):
        assert isinstance(node.op, Fused)
        constants = [i for i, v in enumerate(node.inputs) if v in graph.constant]
        if (body := tuned_body(node.op.body)) is not None:
            note(group_workload(body, constants, accuracy), sources(node))
    for workload, question in asked.items():
        note(workload, question.sources)
    return by_key


def _speedup(
    plain: Executable, tuned: Executable, inputs: Sequence[np.ndarray], rounds: int
) -> Ratio:
    there = timed_in_turns((plain.runner, tuned.runner), plain._measured(tuple(inputs)), rounds)
    if there is not None:
        before, after = there
        return with_interval(before, after)
    return compare(lambda: plain(*inputs), lambda: tuned(*inputs), rounds)


def _set_aside(records: Records, keys: Iterable[Key]) -> None:
    """Mark all good records of some workloads as unsettled, so that another run judges them."""
    trials = (
        t for key in keys for t in records.trials(key) if t.status == "ok" and t.ratio <= 1 - MARGIN
    )
    records.add(*(dataclasses.replace(t, status="unsettled", cause=SLOWER) for t in trials))


def _mark(
    records: Records, chosen: Lookup, keys: Iterable[Key], status: Status, cause: str
) -> None:
    """Mark the trials whose decisions some workloads used.  A decision from a similar workload is
    recorded as a new trial, so the original one keeps its status.
    """
    used = ((key, chosen.used[key]) for key in keys)
    records.add(*(dataclasses.replace(t, key=key, status=status, cause=cause) for key, t in used))
