"""Choices of the whole model, with times that are made up."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np
import pytest

import tilesmith as ts
from tilesmith import driver
from tilesmith.codegen.targets import target
from tilesmith.driver.request import Request
from tilesmith.driver.session import Tuned
from tilesmith.graph.evaluate import evaluate
from tilesmith.graph.nodes import Graph
from tilesmith.graph.parse import parse_graph
from tilesmith.graph.text import print_graph
from tilesmith.runtime.executable import Executable
from tilesmith.search_space.constraints import Constraints
from tilesmith.search_space.lookup import Match
from tilesmith.search_space.records import Records
from tilesmith.support.arrays import difference
from tilesmith.support.errors import UsageError
from tilesmith.te.knobs import Value
from tilesmith.tuning import graph_choices as choices
from tilesmith.tuning.graph_choices import asked, decide, forced
from tilesmith.tuning.model import tune_model
from tilesmith.tuning.options import TuneOptions
from tilesmith.tuning.profiles import Times, compared
from tilesmith.tuning.tasks import Compiled

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


EVERYTHING = """
graph net(%x: f32[1,32,8,8], %q: f32[2,12,16], %k: f32[2,12,16]) {
  const %w: f32[32,32,1,1] = @aa
  const %v: f32[32,1,3,3] = @bb
  %0: f32[1,32,8,8] = conv(%x, %w)  # "left"
  %1: f32[1,32,8,8] = sigmoid(%0)  # "sigmoid"
  %2: f32[1,32,8,8] = conv(%1, %v) {pads=(1, 1, 1, 1), groups=32}  # "right"
  %3: f32[1,64,8,8] = concat(%1, %2) {axis=1}  # "concat"
  %4: f32[1,64,8,8] = relu(%3)  # "relu"
  %5: f32[64,64] = reshape(%4) {shape=(64, 64)}  # "reshape"
  %6: f32[64,64] = softmax(%5)  # "rows"
  %7: f32[2,12,12] = matmul(%q, %k) {transpose_b=True}  # "scores"
  %8: f32[2,12,12] = softmax(%7)  # "softmax"
  %9: f32[2,12,16] = matmul(%8, %k)  # "values"
  %10: f32[1,8,64,8] = transpose(%4) {perm=(0, 2, 1, 3)}  # "transpose"
  %11: f32[1,8,64,8] = exp(%10)  # "exp"
  return %6 as "y", %9 as "z", %11 as "t"
}
"""


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


def test_every_choice_gives_the_same_answer(everything: Graph, options: ts.Options) -> None:
    graph = everything
    session = driver.Session.of(options)
    inputs = driver.random_inputs(graph)
    want = evaluate(graph, inputs)
    plain = print_graph(driver.optimise(graph, session))
    questions = asked(graph, session)
    kinds = {q.knob.name for q in questions.values()}
    assert kinds >= {"halo", "epilogue", "attention", "in_place", "layout"}
    for workload, question in questions.items():
        for value in question.knob.options:
            other = forced(session, {workload: {question.knob.name: value}})
            if value != question.knob.default:
                assert print_graph(driver.optimise(graph, other)) != plain, question
            exe = Compiled.of(graph, other).executable
            for name, array in exe.run(inputs).items():
                assert difference(array, want[name]) <= 1e-5, (question, value)


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
        algorithms = [t for t in trials if "algorithm" in t.candidate]
        assert len(algorithms) == 4  # two workloads, two values other than the default of each

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


@pytest.fixture(scope="module")
def everything() -> Graph:
    rng = np.random.default_rng(0)
    data = {n: rng.standard_normal(s).astype(np.float32) * 0.1
            for n, s in {"aa": (32, 32, 1, 1), "bb": (32, 1, 3, 3)}.items()}  # fmt: skip
    return parse_graph(EVERYTHING, data)


NHWC = "0 2 3 1"


@pytest.mark.parametrize(
    ("knob", "value", "free", "pinned"),
    [
        ("attention", False, '# "scores+softmax+values"', '}}  # "scores"'),
        ("halo", False, '@"0 2+1:1 3+1:1 1', f'@"{NHWC}:64" = fused('),
        ("in_place", False, "= in_place(", '= concat(%in0, %in1) {axis=1}  # "concat"'),
        ("epilogue", False, '# "left+sigmoid"', '}}  # "left"'),
        ("layout", "row-major", f'f32[1,64,8,8]@"{NHWC}" = relu', "f32[1,64,8,8] = relu"),
        ("algorithm", 2, "{m=4}", "{m=2}"),
    ],
)
def test_the_graph_obeys_constraints(
    knob: str, value: Value, free: str, pinned: str, graph: Graph, everything: Graph,
    options: ts.Options,
) -> None:  # fmt: skip
    # a machine that prefers {m=4}
    machine = target("x86-64-v3").with_model(fma_ports=1, overlap=0.99)
    session = dataclasses.replace(driver.Session.of(options), target=machine)
    graph = graph if knob == "algorithm" else everything
    others = {o for q in asked(graph, session).values() if q.knob.name == knob
              for o in q.knob.options} - {value}  # fmt: skip
    plain = print_graph(driver.optimise(graph, session))
    assert free in plain and pinned not in plain

    def text(constraints: Constraints, tuned: Tuned | None = None) -> str:
        wanted = dataclasses.replace(session, constraints=constraints, tuned=tuned)
        return print_graph(driver.optimise(graph, wanted))

    found = text(Constraints({knob: value}))
    assert pinned in found and free not in found
    assert text(Constraints({}, {knob: others})) == found
    if len(others) == 1:  # whatever the records say
        (other,) = others

        def recorded(workload: str, *_: object, **__: object) -> Match:
            del workload
            return Match({knob: other})

        assert text(Constraints({knob: value}), recorded) == found
    without = text(Constraints({}, {knob: [value]}))
    assert free in without and pinned not in without
    assert text(Constraints({knob: "blue"})) == plain  # no such value: nowhere an option
    with pytest.raises(UsageError, match=f"choice {knob}: all of its values are forbidden"):
        text(Constraints({}, {knob: {*others, value}}))


def test_tuning_under_constraints(everything: Graph, options: ts.Options) -> None:
    pins: dict[str, Value] = {"attention": False, "halo": False}
    result = tune_model(Request(everything, options), TuneOptions(trials=1, pins=pins))
    calls = result.executable.program.calls
    assert not any({"scores", "values"} <= set(c.sources) for c in calls)
    with Records(options.cache_dir / "records.sqlite") as records:  # type: ignore[operator]  # set
        assert not any(t.candidate.keys() & pins.keys() for t in records.trials())
    inputs = driver.random_inputs(everything)
    for name, want in evaluate(everything, inputs).items():
        assert difference(result.executable.run(inputs)[name], want) <= 1e-5
    with pytest.raises(UsageError, match=r"'attention' can't be pinned to 'no'.* True, False"):
        tune_model(Request(everything, options), TuneOptions(trials=1, pins={"attention": "no"}))


def test_what_was_measured_under_constraints_counts_only_there(
    graph: Graph, options: ts.Options
) -> None:
    """With another default a ratio means something else."""
    session = driver.Session.of(options)
    defaults = {w: q.knob.default for w, q in asked(graph, session).items()
                if q.knob.name == "algorithm"}  # fmt: skip
    forbidden = next(iter(defaults.values()))
    constraints = Constraints({}, {"algorithm": [forbidden]})
    found = asked(graph, dataclasses.replace(session, constraints=constraints))
    for workload, default in defaults.items():
        assert (workload in found) == (default != forbidden)


def test_nothing_is_tried_without_time(graph: Graph, options: ts.Options) -> None:
    session = driver.Session.of(options)
    plain = Compiled.of(graph, session)
    with Records(options.cache_dir / "records.sqlite") as records:  # type: ignore[operator]  # set
        _, chosen = decide(graph, session, records, plain, lambda: 0.0)
        assert chosen is plain and not records.trials()


def test_kernels_are_compared_by_the_source_nodes_that_they_share() -> None:
    def names(text: str) -> frozenset[str]:
        return frozenset(text)

    before = [(names("ab"), 3.0), (names("c"), 1.0), (names("d"), 9.0)]
    after = [(names("a"), 1.0), (names("bc"), 2.0), (names("d"), 9.0)]
    assert compared("a", before, after) == (4.0, 3.0)
    assert compared("d", before, after) == (9.0, 9.0)
    assert compared("c", before) == (1.0, 0)
