"""Allocation of the budget: the next round goes to the task with the largest expected gain.

The expected gain of another round on a task is the time that the program spends in it, times the
fraction that may still be saved.  At first this fraction is the task's excess over the performance
model's prediction.  It shrinks with every round without improvement.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from tilesmith.search_space.records import MARGIN, SOUND, Trial
from tilesmith.search_space.space import Candidate

from .interrupt import Interrupt
from .measure import Measurer, Task
from .search import Search

ENOUGH = 2e-4
"""The search ends if the expected gain is below this fraction of all tasks' time."""
FADING = 0.75
"""Factor of the expected gain after a round without improvement."""
TURN, CONFIRM = 0.05, 0.3
"""Seconds of running per candidate: in the search, and to confirm the best."""
CONTENDERS = 3
"""Number of candidates that are measured again before the best is settled."""


class Store(Protocol):
    """The receiver of trials."""

    def add(self, *trials: Trial) -> None: ...


@dataclass
class Budget:
    """The time and trials of a search; it ends when they are used up, or with an interrupt.

    seconds: seconds from `started` on.
    trials: upper bound on the trials.
    clock: gives the time in seconds.
    interrupt: ends the search early.
    early_stopping: whether a search that can hardly gain anything ends early.
    started: time of its start.
    spent: trials so far.
    """

    seconds: float = float("inf")
    trials: float = float("inf")
    clock: Callable[[], float] = time.monotonic
    interrupt: Interrupt = field(default_factory=Interrupt)
    early_stopping: bool = True
    started: float = field(init=False)
    spent: int = 0

    def __post_init__(self) -> None:
        self.started = self.clock()

    @property
    def elapsed(self) -> float:
        return self.clock() - self.started

    @property
    def is_late(self) -> bool:
        """Whether no time is left, regardless of the number of trials."""
        return self.elapsed >= self.seconds or self.interrupt.requested

    @property
    def is_over(self) -> bool:
        return self.is_late or self.spent >= self.trials


@dataclass(eq=False)
class Progress:
    """The state of one task.

    task: the workload.
    search: proposes its candidates.
    best: time of its best candidate relative to the analytic schedule's.
    trials: number of trials so far.
    errors: number of failed trials.
    hope: fraction of its time that may still be saved.
    is_done: whether the search has ended.
    seen: trials by candidate.
    confirmed: the candidates that were measured for longer.
    """

    task: Task
    search: Search
    best: float = 1.0
    trials: int = 0
    errors: int = 0
    hope: float = field(init=False)
    is_done: bool = False
    seen: dict[str, Trial] = field(default_factory=dict)
    confirmed: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.hope = self.task.slack

    @property
    def gain(self) -> float:
        """Seconds of the program that may still be saved."""
        return 0.0 if self.is_done else self.task.seconds * self.best * self.hope

    @property
    def saved(self) -> float:
        """Seconds of the program that the best candidate saves."""
        return self.task.seconds * (1 - self.best)

    @property
    def winner(self) -> Trial | None:
        """The best trial, if it is better than the analytic schedule."""
        best = min(self.seen.values(), key=lambda t: t.ratio, default=None)
        return best if best is not None and best.ratio <= 1 - MARGIN else None

    def note(self, trial: Trial) -> None:
        """Record a trial."""
        self.seen[trial.decisions] = trial
        self.trials += 1
        self.errors += trial.status not in SOUND
        if trial.status != "lost":
            self.search.observe(trial.candidate, trial.ratio)
        self.best = min(self.best, trial.ratio)


def tune_tasks(
    states: Sequence[Progress],
    measurer: Measurer,
    store: Store,
    budget: Budget,
    batch: int,
    report: Callable[[Sequence[Progress]], object] = lambda _: None,
) -> None:
    """Search until the budget is spent, or until no candidates or expected gains are left.  Every
    trial is stored at once.  One candidate is measured even if no time is left, unless an interrupt
    was requested.

    The last sixth of the time confirms the best of each task.  The budget's interrupt ends both
    phases after the trial in flight.
    """
    seconds = budget.seconds * 5 / 6 - budget.elapsed
    searching = Budget(seconds, budget.trials, budget.clock, budget.interrupt)
    enough = ENOUGH * sum(s.task.seconds for s in states) if budget.early_stopping else 0.0
    while sum(s.gain for s in states) > enough:
        is_over = searching.is_over
        if is_over and (searching.spent or searching.interrupt.requested):
            break
        state = max(states, key=lambda s: s.gain)
        room = 1 if is_over else min(batch, searching.trials - searching.spent)
        candidates = state.search.propose(int(room))
        if not candidates:
            state.is_done = True
            continue
        before = state.best
        for trial in measurer.measure(state.task, candidates, TURN):
            store.add(trial)
            state.note(trial)
            searching.spent += 1
            report(states)
            if searching.is_over:
                break
        improved = (before - state.best) / before
        faded = max(improved, state.hope * FADING, sys.float_info.min)  # zero would end the search
        state.hope = faded if improved < MARGIN else state.task.slack
    budget.spent += searching.spent
    confirm(states, measurer, store, budget)
    report(states)


def confirm(states: Sequence[Progress], measurer: Measurer, store: Store, budget: Budget) -> None:
    """Measure the best candidates again, for longer: the least of many noisy ratios is biased.

    The tasks that save most come first; tasks that the budget does not reach keep their
    measurements.
    """
    for state in sorted(states, key=lambda s: -s.saved):
        while not budget.is_late and (again := _contenders(state)):
            for trial in measurer.measure(state.task, again, CONFIRM):
                store.add(trial)
                state.seen[trial.decisions] = trial
                state.confirmed.add(trial.decisions)
                if budget.is_late:
                    break
        state.best = min([1.0, *(t.ratio for t in state.seen.values())])


def _contenders(state: Progress) -> list[Candidate]:
    """The candidates to measure again: the best unconfirmed ones; none if the best one is
    confirmed.
    """
    best = sorted(state.seen.values(), key=lambda t: t.ratio)[:CONTENDERS]
    if not best or best[0].decisions in state.confirmed:
        return []
    open_ = [t for t in best if t.decisions not in state.confirmed]
    return [t.candidate for t in open_ if t.ratio <= 1 - MARGIN]
