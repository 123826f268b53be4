"""Rates of the machine: sound ones are kept for good, others are measured again later."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from tilesmith.codegen.targets import host
from tilesmith.perf.machine import Machine, nominal
from tilesmith.runtime import rates as module
from tilesmith.runtime.machine import Measurement

SOUND = nominal(host())


def slow(dram: float) -> Machine:
    """The machine with so much of its described rates of DRAM."""
    return replace(SOUND, rates=tuple(replace(r, dram=r.dram * dram) for r in SOUND.rates))


@dataclass
class World:
    """A clock, and what the next measurements find: the machine, their spread, the load."""

    folder: Path
    now: float = 1e9
    found: Machine = SOUND
    spread: float = 1.05
    load: float | None = 0.0
    calls: int = 0

    def measure(self, *_: object) -> Measurement:
        self.calls += 1
        return Measurement(self.found, self.spread)

    def rates(self, again: bool = False) -> module.Kept:
        return module.kept_rates(self.folder, again)


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    world = World(tmp_path)
    monkeypatch.setattr(module, "measure", world.measure)
    monkeypatch.setattr(module, "share_of_others", lambda *_: world.load)
    monkeypatch.setattr(module.time, "time", lambda: world.now)
    return world


def test_sound_rates_are_measured_once(world: World) -> None:
    assert world.rates().machine == SOUND and world.rates().doubts == ""
    world.now += 1e9
    assert module.machine(world.folder) == SOUND
    assert world.calls == 1
    assert module.machine(world.folder, again=True) == SOUND
    assert world.calls == 2


def busy(world: World) -> None:
    world.load = 0.5


def uneven(world: World) -> None:
    world.spread = 2.0


def implausible(world: World) -> None:
    world.found = slow(0.25)


@pytest.mark.parametrize(
    ("disturb", "why"),
    [
        (busy, "other programs used 50% of the cores meanwhile"),
        (uneven, "repetitions typically took 2.0 times as long as the best ones"),
        (implausible, "dram with 1 threads is 25% of what the description of this machine says"),
    ],
)
def test_what_is_not_sound_is_measured_again_later(
    world: World, disturb: Callable[[World], None], why: str
) -> None:
    world.found = slow(0.6)
    disturb(world)
    first = world.rates()
    assert first.doubts == why
    world.now += module.FIRST_WAIT / 2
    assert world.rates() == first and world.calls == 1
    world.found, world.spread, world.load = SOUND, 1.0, 0.0
    world.now += module.FIRST_WAIT
    again = world.rates()
    assert (again.doubts, again.attempts, again.machine.rates) == ("", 2, SOUND.rates)
    world.now += 1e9
    assert world.rates() == again and world.calls == 2


def test_later_measurements_only_raise_rates(world: World) -> None:
    """Other load makes nothing faster."""
    world.load = 0.5
    world.rates()
    world.found = slow(0.7)
    world.now += 2 * module.FIRST_WAIT
    kept = world.rates()
    assert kept.machine.rates == SOUND.rates and kept.attempts == 2


def test_waits_double_and_a_slow_machine_is_believed_in_the_end(world: World) -> None:
    world.found = slow(0.1)
    world.rates()
    for attempt in range(1, module.ATTEMPTS):
        wait = module.FIRST_WAIT * 2 ** (attempt - 1)
        world.now += wait - 1
        assert world.rates().attempts == attempt
        world.now += 2
        assert world.rates().attempts == attempt + 1
    world.now += 1e9
    assert world.rates().machine.rates == slow(0.1).rates
    assert world.calls == module.ATTEMPTS


def test_a_clock_that_was_put_back_makes_nobody_wait(world: World) -> None:
    world.load = 0.5
    world.rates()
    world.now -= 1e6
    world.load = 0.0
    assert world.rates().doubts == ""


def test_without_a_system_that_tells_the_load_the_rest_decides(world: World) -> None:
    world.load = None
    assert world.rates().doubts == ""


def test_damaged_files_and_those_of_before_are_measured_again(world: World) -> None:
    world.rates()
    (kept,) = (world.folder / "machines").iterdir()
    for damaged in ({"cpu": "?"}, SOUND.to_json(), [], {"machine": SOUND.to_json()}):
        kept.write_text(json.dumps(damaged))
        calls = world.calls
        assert world.rates().machine == SOUND and world.calls == calls + 1


def test_a_folder_that_cannot_be_written_to_is_no_error(world: World) -> None:
    (world.folder / "file").write_text("")
    assert module.machine(world.folder / "file") == SOUND
