"""Collection of the facts of a report from the results of tuning."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence

import numpy as np

from tilesmith.ir.target import Target
from tilesmith.runtime.executable import Executable
from tilesmith.runtime.profile import KernelTime, Profile
from tilesmith.support.errors import TilesmithError
from tilesmith.support.version import VERSION

from ..features import features_of
from ..scheduler import Progress
from .facts import Attempt, ChoiceFacts, KernelFacts, Report, TaskFacts, Timing

ROUNDS, REPEATS = 4, 3
"""Number of turns of each executable, and of runs in a turn.  A kernel's shortest time is used."""


def collect(
    title: str,
    states: Sequence[Progress],
    before: Executable,
    after: Executable,
    inputs: Sequence[np.ndarray],
    speedup: float,
    started: float,
    choices: Sequence[ChoiceFacts] = (),
    stages: Mapping[str, float] | None = None,
) -> Report:
    """The facts about the tuning of a model called `title`.  Profiles both executables alternately
    on `inputs`.

    started: the time at which tuning began, in seconds since 1970.
    """
    profiles = _profiles(before, after, inputs)
    machine, threads = profiles[0].machine, profiles[0].threads
    assert machine is not None  # reports are about CPUs
    tasks = (_task(s, started, before.program.target, threads) for s in states)
    return Report(
        title,
        f"{machine.cpu} ({before.program.target.cpu})",
        f"tilesmith {VERSION}",
        threads,
        speedup,
        sorted(tasks, key=lambda t: (-t.saved, -t.seconds)),
        side_by_side(*profiles),
        machine.at(threads),
        choices,
        stages or {},
    )


def _task(state: Progress, started: float, target: Target, threads: int) -> TaskFacts:
    trials = sorted(state.seen.values(), key=lambda t: t.when)
    expected = _predicted(state, target, threads)
    attempts = tuple(
        Attempt(
            max(t.when - started, 0.0),  # the trials of earlier runs were available at once
            t.ratio,
            t.status,
            t.cause,
            t.decisions,
            expected.get(t.decisions),
            state.search.scores.get(t.decisions),
        )
        for t in trials
    )
    won = None if state.winner is None else dict(state.winner.candidate)
    return TaskFacts(state.task.label, state.task.seconds, state.best, attempts, won)


def _predicted(state: Progress, target: Target, threads: int) -> Mapping[str, float]:
    """Ratios that the closed formula predicts, by decisions; empty if the formula does not cover
    the space.
    """
    known = [t for t in state.seen.values() if t.status in ("ok", "slow")]
    if not known:
        return {}
    try:
        function = features_of(state.task.space, target, threads)
        candidates = [state.task.space.start, *(t.candidate for t in known)]
        seconds = function.prior(candidates).astype(float)
    except TilesmithError:
        return {}
    if not seconds[0] > 0:
        return {}
    return {t.decisions: s / seconds[0] for t, s in zip(known, seconds[1:], strict=True)}


def _profiles(
    before: Executable, after: Executable, inputs: Sequence[np.ndarray]
) -> tuple[Profile, Profile]:
    """Profiles of both executables, with the least time of each kernel over some turns.  If tuning
    changed nothing, both are one profile.
    """
    if after is before:
        only = before.profile(*inputs, repeats=ROUNDS * REPEATS)
        return only, only
    taken = [[e.profile(*inputs, repeats=REPEATS) for e in (before, after)] for _ in range(ROUNDS)]
    first, second = (_least(turns) for turns in zip(*taken, strict=True))
    return first, second


def _least(profiles: Sequence[Profile]) -> Profile:
    rows = zip(*profiles, strict=True)
    kernels = tuple(min(row, key=lambda k: k.seconds) for row in rows)
    return dataclasses.replace(profiles[0], kernels=kernels)


def side_by_side(before: Profile, after: Profile) -> list[KernelFacts]:
    """The kernels before and after tuning, side by side.  Tuning may divide the model into other
    kernels.  So each row has a set of source nodes that whole kernels compute both before and
    after, as small as possible.
    """
    rows: list[tuple[frozenset[str], list[tuple[bool, KernelTime]]]] = []
    for is_after, profile in ((False, before), (True, after)):
        for k in profile:
            names = frozenset(k.call.sources or (k.call.symbol,))
            touched = [r for r in rows if r[0] & names]
            rows = [r for r in rows if r not in touched]
            members = [m for _, row in touched for m in row]
            rows.append((names.union(*(n for n, _ in touched)), [*members, (is_after, k)]))
    compared = [
        _kernel(*([k for late, k in row if late == w] for w in (False, True))) for _, row in rows
    ]
    return sorted(compared, key=lambda k: (-k.saved, -k.before.seconds))


def _kernel(old: Sequence[KernelTime], new: Sequence[KernelTime]) -> KernelFacts:
    sources = dict.fromkeys(s for k in (*old, *new) for s in k.call.sources)
    operators = dict.fromkeys(o for k in new if k.info for o in k.info.operators)
    texts = tuple(
        (f"{' '.join(k.info.operators)}: {k.info.signature}", k.info.steps, k.info.loops)
        for k in new
        if k.info
    )
    return KernelFacts(tuple(sources), tuple(operators), _timing(old), _timing(new), texts)


def _timing(kernels: Sequence[KernelTime]) -> Timing:
    known = [k.info.work for k in kernels if k.info]
    longest = max(kernels, key=lambda k: k.seconds, default=None)
    bound = longest.prediction.bound if longest is not None and longest.prediction else ""
    return Timing(
        sum(k.seconds for k in kernels),
        sum(w.flops for w in known),
        sum(w.bytes for w in known),
        bound,
    )
