"""The final check: which decisions are kept, with profiles that are made up and real ones."""

from __future__ import annotations

from pathlib import Path

import pytest

import tilesmith as ts
from tilesmith import driver
from tilesmith.graph.parse import parse_graph
from tilesmith.search_space.records import Key, Records, trial
from tilesmith.support.measure import Ratio
from tilesmith.tuning import verdict
from tilesmith.tuning.profiles import Times
from tilesmith.tuning.tasks import Compiled, tasks_of
from tilesmith.tuning.verdict import (
    CHECK_ROUNDS,
    NONE,
    better_of,
    check_rounds,
    seconds_needed,
    slower,
)

A, B = (Key.of(n, "t", 1) for n in "ab")


def ratio(speedup: float) -> Ratio:
    return Ratio(speedup, speedup, speedup, 7)


def names(text: str) -> frozenset[str]:
    return frozenset(text)


def test_only_what_is_slower_is_dropped() -> None:
    sources = {A: names("a"), B: names("b")}
    before = [(names("a"), 1.0), (names("b"), 1.0), (names("c"), 1.0)]
    after = [(names("a"), 1.3), (names("b"), 0.8), (names("c"), 9.0)]
    assert slower(sources, before, after, 1.02) == [A]
    assert slower(sources, before, after, 0.5) == [A, B]
    assert slower(sources, before, before, 1.02) == []


def test_kernels_that_cover_other_nodes_are_compared_together() -> None:
    sources = {A: names("a")}
    before = [(names("ab"), 1.0), (names("c"), 1.0)]
    assert slower(sources, before, [(names("a"), 0.5), (names("bc"), 1.4)], 1.02) == []
    assert slower(sources, before, [(names("a"), 0.5), (names("bc"), 1.6)], 1.02) == [A]


def test_one_bad_decision_does_not_cost_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = """
graph net(%x: f32[64,96], %w: f32[96,128], %v: f32[128,80]) {
  %0: f32[64,128] = matmul(%x, %w)  # "first"
  %1: f32[64,80] = matmul(%0, %v)  # "second"
  return %1 as "y"
}
"""
    options = ts.Options(cache_dir=tmp_path, threads=1, jobs=1)
    graph, session = parse_graph(text), driver.Session.of(options)
    found = Compiled.of(graph, session)
    good, bad = (t.key for t in tasks_of(found, session))

    def profiles(*_: object) -> tuple[Times, Times]:
        first, second = names_of("first"), names_of("second")
        return [(first, 1.0), (second, 1.0)], [(first, 0.5), (second, 2.0)]

    def names_of(name: str) -> frozenset[str]:
        return frozenset((name,))

    speedups = iter((ratio(1.4),))
    monkeypatch.setattr(verdict, "in_turns", profiles)
    monkeypatch.setattr(verdict, "_speedup", lambda *_: next(speedups))
    with Records(tmp_path / "records.sqlite") as records:
        records.add(*(trial(k, {"rows": 2}, "ok", "", "", 0.5, 1.0) for k in (good, bad)))
        exe, speedup = better_of(graph, session, found.executable, records)
        assert exe is not found.executable and speedup.median == 1.4
        assert records.best(good) is not None and records.best(bad) is None
        (marked,) = records.trials(bad)
        assert marked.status == "worse" and "slower in the model" in marked.cause

        monkeypatch.setattr(verdict, "in_turns", lambda *_: ([], []))
        speedups = iter((ratio(0.9),))  # and no time to find out why
        exe, speedup = better_of(graph, session, found.executable, records, lambda: 0.0)
        assert exe is found.executable and speedup is NONE
        assert records.best(good) is None
        (unsettled,) = records.trials(good)
        assert unsettled.status == "unsettled" and unsettled.ratio == 0.5
        with driver.recorded(session) as recorded:  # no compilation uses it
            same = Compiled.of(graph, recorded).executable.program.calls
        assert [c.symbol for c in same] == [c.symbol for c in found.executable.program.calls]
        speedups = iter((ratio(1.2),))  # the next run settles it
        assert better_of(graph, session, found.executable, records)[1].median == 1.2
        assert records.best(good) is not None

        records.add(trial(good, {"rows": 1}, "ok", "", "", 0.7, 1.0))
        speedups = iter((ratio(0.9),) * 3)  # whatever is dropped, the whole is slower
        exe, speedup = better_of(graph, session, found.executable, records)
        assert exe is found.executable and speedup is NONE
        assert records.best(good) is None
        assert [t.status for t in records.trials(good)] == ["worse", "unsettled"]  # the next best


def test_nothing_is_measured_where_nothing_is_decided(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = """
graph net(%x: f32[8,8]) {
  %0: f32[8,8] = exp(%x)
  return %0 as "y"
}
"""
    graph = parse_graph(text)
    session = driver.Session.of(ts.Options(cache_dir=tmp_path, threads=1, jobs=1))
    found = Compiled.of(graph, session)
    for name in ("in_turns", "_speedup"):
        monkeypatch.setattr(verdict, name, None)  # whoever calls it fails
    with Records(tmp_path / "records.sqlite") as records:
        assert better_of(graph, session, found.executable, records) == (found.executable, NONE)


def test_relatives_are_fitted_only_while_there_is_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = """
graph net(%x: f32[64,96], %w: f32[96,128], %v: f32[128,96]) {
  %0: f32[64,128] = matmul(%x, %w)  # "first"
  %1: f32[64,96] = matmul(%0, %v)  # "second"
  return %1 as "y"
}
"""
    options = ts.Options(cache_dir=tmp_path, threads=1, jobs=1)
    graph, session = parse_graph(text), driver.Session.of(options)
    plain = Compiled.of(graph, session)
    first, second = tasks_of(plain, session)
    family_of = {t.key: t.family for t in (first, second) if t.family is not None}
    assert len(family_of) == 2
    clock = iter(range(100))
    rounds: list[int] = []

    def others(exe: ts.Executable) -> list[bool]:
        """Which kernels are others than the analytic ones."""
        calls = zip(exe.program.calls, plain.executable.program.calls, strict=True)
        return [a.symbol != b.symbol for a, b in calls]

    def pinned(unroll: int) -> ts.Executable:
        return ts.compile(graph, options=options, pins={"unroll": unroll})

    unroll = next(n for n in (2, 4, 8) if all(others(pinned(n))))

    def speedup(_plain: object, _tuned: object, _inputs: object, turns: int) -> Ratio:
        rounds.append(turns)
        return ratio(1.2)

    def expected(_group: object, decisions: object, *_: object) -> float:
        return 0.5 if decisions else 1.0

    monkeypatch.setattr(verdict, "in_turns", lambda *_: ([], []))
    monkeypatch.setattr(verdict, "_speedup", speedup)
    monkeypatch.setattr("tilesmith.driver.tuned.predicted_seconds", expected)

    def tuned(seconds: float, needed: float, each: float = 0.0) -> list[bool]:
        end = next(clock) + seconds
        with Records(tmp_path / "records.sqlite") as records:
            records.add(trial(first.key, {"unroll": unroll}, "ok", "", "", 0.5, 1.0))
            records.describe(family_of)
            exe, _ = better_of(
                graph, session, plain.executable, records, lambda: end - next(clock), needed, each
            )
        return others(exe)

    assert tuned(50, 60) == [True, False]
    assert tuned(50, 10) == [True, True]
    assert tuned(1, 0) == [True, False]  # time is over when the second is asked for
    least, _, most = CHECK_ROUNDS
    assert rounds == [most, most, least]


def test_the_check_takes_as_many_turns_as_fit() -> None:
    least, wanted, most = CHECK_ROUNDS
    assert check_rounds(1e9, 1e-3) == most  # short turns
    assert check_rounds(1e9, 0.1) == check_rounds(float("inf"), 0.1) == wanted
    assert check_rounds(0.0, 0.1) == check_rounds(-5.0, 0.1) == least
    assert check_rounds(5 * 0.8, 0.1) == 5  # turns of four runs of both
    assert seconds_needed(1.0, 0.1) > 2 + wanted * 0.8
