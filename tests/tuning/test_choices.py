"""Choices of the whole model, with times that are made up."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np
import pytest

import tilesmith as ts
from tilesmith import driver
from tilesmith.graph.nodes import Graph
from tilesmith.graph.parse import parse_graph
from tilesmith.runtime.executable import Executable
from tilesmith.tuner import choices
from tilesmith.tuner.choices import asked, decide
from tilesmith.tuner.profiles import Times, compared
from tilesmith.tuner.tasks import Compiled
from tilesmith.tuning.records import Records

TEXT = """
graph net(%x: f32[1,16,12,12]) {
  const %w: f32[16,16,3,3] = @aa
  const %v: f32[24,16,3,3] = @bb
  %0: f32[1,16,12,12] = conv(%x, %w) {pads=(1, 1, 1, 1)}  # "first"
  %1: f32[1,16,12,12] = conv(%0, %w) {pads=(1, 1, 1, 1)}  # "second"
  %2: f32[1,24,10,10] = conv(%1, %v)  # "third"
  return %2 as "y"
}
"""


@pytest.fixture(scope="module")
def graph() -> Graph:
    rng = np.random.default_rng(0)
    data = {n: rng.standard_normal(s).astype(np.float32) * 0.1
            for n, s in {"aa": (16, 16, 3, 3), "bb": (24, 16, 3, 3)}.items()}  # fmt: skip
    return parse_graph(TEXT, data)


@pytest.fixture
def options(tmp_path: Path) -> ts.Options:
    return ts.Options(cache_dir=tmp_path, threads=1, jobs=1)


def fake(cost: Mapping[str, float]) -> Callable[[Executable], Times]:
    """Times of kernels: `cost` of what their code says they do, for each source node."""

    def of(exe: Executable, *_: object) -> Times:
        found = []
        for c in exe.program.calls:
            operators = " ".join(exe.program.kernels[c.symbol].operators)
            kind = next((k for k in cost if k in operators), "")
            found.append((frozenset(c.sources), cost.get(kind, 1.0)))
        return found

    return of


def test_equal_work_is_asked_for_once(graph: Graph, options: ts.Options) -> None:
    found = asked(graph, driver.Session.of(options))
    algorithms = [q for q in found.values() if q.knob.name == "algorithm"]
    assert [sorted(q.sources) for q in algorithms] == [["first", "second"], ["third"]]
    assert all(set(q.knob.options) == {0, 2, 4} for q in algorithms)


@pytest.mark.parametrize("winner", ["winograd_conv", "conv"])
def test_what_is_measured_faster_is_kept(
    winner: str, graph: Graph, options: ts.Options, monkeypatch: pytest.MonkeyPatch
) -> None:
    times = fake({"winograd_conv": 0.5 if winner == "winograd_conv" else 2.0, "conv": 1.0})
    monkeypatch.setattr(choices, "times", times)
    monkeypatch.setattr(choices, "in_turns", lambda a, b, _: (times(a), times(b)))
    session = driver.Session.of(options)
    plain = Compiled.of(graph, session)
    with Records(options.cache_dir / "records.sqlite") as records:  # type: ignore[operator]  # set
        _, chosen = decide(graph, session, records, plain)
        operators = {
            n.op.name
            for node in chosen.fused.nodes
            for n in node.op.body.nodes  # type: ignore[attr-defined]  # fused
        }
        assert operators & {"conv", "winograd_conv"} == {winner}
        trials = records.trials()
        assert len(trials) == 4  # two workloads, two values other than the default of each

        def nothing(*_: object) -> Times:
            raise AssertionError("measured again")

        monkeypatch.setattr(choices, "in_turns", nothing)
        _, again = decide(graph, session, records, plain)
        assert [c.symbol for c in again.executable.program.calls] == [
            c.symbol for c in chosen.executable.program.calls
        ]
        assert len(records.trials()) == len(trials)
    exe = ts.compile(graph, options=options)  # and `compile` does the same
    assert [c.symbol for c in exe.program.calls] == [
        c.symbol for c in chosen.executable.program.calls
    ]


def test_nothing_is_tried_without_time(graph: Graph, options: ts.Options) -> None:
    session = driver.Session.of(options)
    plain = Compiled.of(graph, session)
    with Records(options.cache_dir / "records.sqlite") as records:  # type: ignore[operator]  # set
        _, chosen = decide(graph, session, records, plain, lambda: False)
        assert chosen is plain and not records.trials()


def test_kernels_are_compared_by_the_source_nodes_that_they_share() -> None:
    def names(text: str) -> frozenset[str]:
        return frozenset(text)

    before = [(names("ab"), 3.0), (names("c"), 1.0), (names("d"), 9.0)]
    after = [(names("a"), 1.0), (names("bc"), 2.0), (names("d"), 9.0)]
    assert compared("a", before, after) == (4.0, 3.0)
    assert compared("d", before, after) == (9.0, 9.0)
    assert compared("c", before) == (1.0, 0)
