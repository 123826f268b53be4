"""The scheduler with measurements that are made up: where the budget goes, and what is kept."""

from __future__ import annotations

import dataclasses
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest

from tilesmith.search_space.records import Key, Records, Status, Trial, trial
from tilesmith.search_space.space import Candidate, Space
from tilesmith.te.knobs import Config
from tilesmith.tuning.interrupt import Interrupt
from tilesmith.tuning.measure import Task
from tilesmith.tuning.scheduler import CONFIRM, Budget, Progress, tune_tasks
from tilesmith.tuning.search import search
from tilesmith.tuning.tasks import resume, slack


def ask(cfg: Config) -> None:
    for name in "abc":
        cfg.choice(name, range(8), 4)


def task(name: str, seconds: float) -> Task:
    unused: Callable[..., object] = lambda *_: None  # noqa: E731
    return Task(Key.of(name, "t", 1), name, Space(ask), unused, unused, unused, (), seconds)  # type: ignore[arg-type]


class Fake:
    """Measures by formula: a task called "gain" gets faster with smaller numbers; a measurement
    takes a second.
    """

    def __init__(self, noise: float = 0.0) -> None:
        self.now = 0.0
        self.noise = noise
        self.count: dict[str, int] = {}
        self.stored: list[Trial] = []

    def clock(self) -> float:
        return self.now

    def add(self, *trials: Trial) -> None:
        self.stored += trials

    def measure(
        self, task: Task, candidates: Sequence[Candidate], seconds: float
    ) -> Iterator[Trial]:
        for c in candidates:
            self.now += 1
            self.count[task.label] = self.count.get(task.label, 0) + 1
            values = [int(str(c.get(k, 4))) for k in "abc"]
            status: Status = "crash" if values[0] == 7 else "ok"
            time = 0.5 + sum(values) / 24 if "gain" in task.label else 1.0
            if seconds != CONFIRM:
                time -= self.noise * (len(self.stored) % 3)
            yield trial(task.key, c, status, task.label, "", time, 1.0)


def run(fake: Fake, tasks: Sequence[Task], budget: Budget) -> list[Progress]:
    states = [Progress(t, search("coordinate", t.space)) for t in tasks]
    tune_tasks(states, fake, fake, budget, batch=4)
    return states


def test_budget_goes_where_the_model_gains() -> None:
    fake = Fake()
    tasks = [task("small gain", 0.1), task("large gain", 1.0), task("large flat", 1.0)]
    run(fake, tasks, Budget(90, clock=fake.clock))
    assert fake.count["large gain"] > fake.count["large flat"] > fake.count.get("small gain", 0)
    assert fake.now <= 95


def test_search_begins_where_kernels_are_slower_than_predicted() -> None:
    fake = Fake()
    slow, fast = (
        dataclasses.replace(task(n, 1.0), slack=slack(r)) for n, r in (("s", 0.4), ("f", 1.1))
    )
    assert (slow.slack, fast.slack, slack(None)) == (pytest.approx(0.5), 0.1, 0.3)
    run(fake, [fast, slow], Budget(60, clock=fake.clock))
    assert fake.count["s"] > fake.count["f"] > 0


def test_search_ends_when_little_is_left_to_gain() -> None:
    fake = Fake()
    (state,) = run(fake, [task("flat", 1.0)], Budget(10_000, clock=fake.clock))
    assert not state.is_done and 0 < state.gain < 1e-3
    assert fake.now < 150


def test_without_early_stopping_all_of_the_space_or_of_the_time_is_used() -> None:
    fake = Fake()
    budget = Budget(1e6, clock=fake.clock, early_stopping=False)
    (state,) = run(fake, [task("flat", 1.0)], budget)
    assert state.is_done and fake.now < 1e6
    again = Fake()
    seconds = fake.now / 2
    (state,) = run(
        again, [task("flat", 1.0)], Budget(seconds, clock=again.clock, early_stopping=False)
    )
    assert not state.is_done and again.now >= seconds * 5 / 6


def test_best_is_found_and_confirmed() -> None:
    fake = Fake()
    (state,) = run(fake, [task("gain", 1.0)], Budget(120, clock=fake.clock))
    assert state.winner is not None
    assert state.winner.candidate == {"a": 0, "b": 0, "c": 0}
    assert state.winner.decisions in state.confirmed
    assert state.best == state.winner.ratio == 0.5


def test_lucky_measurements_do_not_survive_confirmation() -> None:
    fake = Fake(noise=0.1)
    (state,) = run(fake, [task("flat", 1.0)], Budget(60, clock=fake.clock))
    assert state.winner is None or state.winner.decisions not in state.confirmed
    assert all(t.ratio == 1.0 for d, t in state.seen.items() if d in state.confirmed)


def test_budget_in_trials() -> None:
    fake = Fake()
    (state,) = run(fake, [task("gain", 1.0)], Budget(trials=10, clock=fake.clock))
    assert state.trials == 10


def test_one_candidate_is_measured_without_time_but_none_after_an_interrupt() -> None:
    fake = Fake()
    (state,) = run(fake, [task("gain", 1.0)], Budget(0.0, clock=fake.clock))
    assert state.trials == 1
    interrupt = Interrupt()
    interrupt.requested = True
    budget = Budget(0.0, clock=fake.clock, interrupt=interrupt)
    (state,) = run(fake, [task("gain", 1.0)], budget)
    assert state.trials == 0


def test_failures_are_counted_and_stored() -> None:
    fake = Fake()
    (state,) = run(fake, [task("gain", 1.0)], Budget(trials=60, clock=fake.clock))
    failed = [t for t in fake.stored if t.status == "crash"]
    assert state.errors == len(failed)


def test_a_candidate_that_was_lost_is_no_bad_candidate(tmp_path: Path) -> None:
    state = Progress(task("gain", 1.0), search("coordinate", Space(ask)))
    gone = trial(state.task.key, {"a": 3}, "lost", "", "its machine went away")
    state.note(gone)
    assert (state.trials, state.errors, state.search.costs) == (1, 1, {})
    again = Progress(state.task, search("grid", Space(ask)))
    with Records(tmp_path / "records.sqlite") as records:
        records.add(gone)
        resume(again, records)
    assert again.trials == 0 and {"a": 3} in again.search.propose(8**3)


def test_an_interrupt_keeps_what_was_measured() -> None:
    fake = Fake()
    state = Progress(task("gain", 1.0), search("coordinate", Space(ask)))

    interrupt = Interrupt()

    def seven(states: Sequence[Progress]) -> None:
        interrupt.requested = states[0].trials == 7

    tune_tasks([state], fake, fake, Budget(100, clock=fake.clock, interrupt=interrupt), 4, seven)
    assert len(fake.stored) == 7 and state.best < 1 and not state.confirmed


def test_the_first_signal_asks_and_the_second_interrupts() -> None:
    interrupt = Interrupt()
    with pytest.raises(KeyboardInterrupt), interrupt.on_signal():
        assert not interrupt.requested
        signal.raise_signal(signal.SIGINT)
        assert interrupt.requested
        signal.raise_signal(signal.SIGINT)
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_handlers_of_the_application_stay() -> None:
    def mine(number: int, frame: object) -> None: ...

    signal.signal(signal.SIGINT, mine)
    try:
        with Interrupt().on_signal():
            assert signal.getsignal(signal.SIGINT) is mine
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def test_other_threads_get_no_handler() -> None:
    found: list[object] = []

    def tune() -> None:
        with Interrupt().on_signal():
            found.append(signal.getsignal(signal.SIGINT))

    thread = threading.Thread(target=tune)
    thread.start()
    thread.join()
    assert found == [signal.default_int_handler]


def test_it_is_deterministic() -> None:
    first, second = Fake(), Fake()
    for fake in (first, second):
        run(fake, [task("gain", 1.0), task("flat", 2.0)], Budget(40, clock=fake.clock))
    assert [(t.key, t.decisions) for t in first.stored] == [
        (t.key, t.decisions) for t in second.stored
    ]
