"""Workloads that are alike, and what is done with decisions that were made for another one."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from pathlib import Path

import pytest

import tilesmith as ts
from tilesmith import driver
from tilesmith.driver.request import Request
from tilesmith.graph.nodes import Fused, Graph
from tilesmith.graph.parse import parse_graph
from tilesmith.search_space.family import Family, group_family, nest_family
from tilesmith.search_space.groups import GroupSpace
from tilesmith.search_space.records import Key, Records, trial
from tilesmith.search_space.space import Space, nearest_option
from tilesmith.search_space.workload import group_workload
from tilesmith.support.errors import ScheduleError
from tilesmith.te.knobs import Config, Knob
from tilesmith.tuning.model import tune_model
from tilesmith.tuning.options import TuneOptions
from tilesmith.tuning.search import search


def matmul(rows: int, columns: int, after: str = "relu") -> Graph:
    return parse_graph(f"""
graph net(%x: f32[{rows},64], %w: f32[64,{columns}], %b: f32[{rows},{columns}]) {{
  %0: f32[{rows},{columns}] = matmul(%x, %w)
  %1: f32[{rows},{columns}] = {after}
  return %1 as "y"
}}
""")


def relu(rows: int, columns: int) -> Graph:
    return matmul(rows, columns, "relu(%0)")


def fused(graph: Graph, options: ts.Options | None = None) -> GroupSpace:
    session = driver.Session.of(options)
    (node,) = driver.optimise(graph, session).nodes
    assert isinstance(node.op, Fused)
    return session.group(driver.canonical(node.op.body))


def family(graph: Graph) -> Family:
    return group_family(fused(graph).body, ())


def test_extents_are_no_part_of_a_family() -> None:
    a, b = family(relu(48, 128)), family(relu(96, 128))
    assert (a.anchor, a.group) == (b.anchor, b.group)
    assert a.distance(b) == pytest.approx(math.hypot(1, 1))  # the rows of x and of the result
    assert a.distance(a) == 0
    assert a.distance(family(relu(48 * 8, 128))) == math.inf  # too far
    assert a.distance(family(relu(1, 128))) == math.inf  # a product with a vector is another thing


def test_epilogues_make_other_groups_with_the_same_anchor() -> None:
    a, b = family(relu(48, 128)), family(matmul(48, 128, "add(%0, %b)"))
    assert a.anchor == b.anchor and a.group != b.group
    assert 0 < a.distance(b) < a.distance(family(relu(96, 128)))


def test_other_operators_are_no_relatives() -> None:
    row = 'graph net(%x: f32[48,64]) {\n  %0: f32[48,64] = softmax(%x)\n  return %0 as "y"\n}'
    assert family(parse_graph(row)).distance(family(relu(48, 64))) == math.inf


def test_halos_and_spans_are_no_part_of_an_anchor() -> None:
    conv = """
graph net(%x: f32[1,8,12,12]@"{}", %w: f32[16,8,3,3]) {{
  %0: f32[1,16,10,10]@"0 2 3 1" = conv(%x, %w)
  return %0 as "y"
}}
"""
    plain, halo, span, other = (
        group_family(parse_graph(conv.format(f"0 2{h} 3{h} 1{s}")), ())
        for h, s in (("", ""), ("+1:1", ""), ("", ":32"), ("", ""))
    )
    assert plain.anchor == halo.anchor == span.anchor
    assert plain.group not in (halo.group, span.group) and plain == other


def test_families_of_loop_nests() -> None:
    text = (
        "def k(x: f32[{0}], y: f32[{0}]) -> y:\n    for i in range({0}):\n        y[i] = x[i] * 2.0"
    )
    a, b = nest_family(text.format(64)), nest_family(text.format(128))
    assert a.anchor == b.anchor and a.extents == (64, 64, 64)
    assert a.anchor != nest_family(text.format(64).replace("2.0", "3.0")).anchor


@pytest.mark.parametrize(
    ("options", "value", "expected"),
    [
        ((1, 2, 4, 8), 5, 4),
        ((1, 2, 4, 8), 100, 8),
        (((1, 1), (4, 2), (8, 8)), (5, 3), (4, 2)),
        (((1, 1), (4, 2)), (5, 3, 1), None),
        (("a", "b"), "c", None),
        ((1, 2), "c", None),
        ((1, 2), True, None),
    ],
)
def test_the_nearest_option(options: tuple, value: object, expected: object) -> None:
    assert nearest_option(Knob("k", options, options[0]), value) == expected  # type: ignore[arg-type]


def test_decisions_are_refitted() -> None:
    def ask(cfg: Config) -> None:
        rows = cfg.choice("rows", (1, 2, 3, 6), 2)
        cfg.choice("kind", ("a", "b"), "a")
        if rows == 3:
            raise ScheduleError("three does not work")

    space = Space(ask)
    assert space.refitted({"rows": 7, "kind": "c", "gone": 3}) == {"rows": 6}
    assert space.refitted({"rows": 3}) is None
    assert space.legal({"rows": 7}) == {}


def test_suggestions_come_first() -> None:
    s = search("coordinate", Space(lambda cfg: cfg.choice("n", range(9), 4)))
    s.suggest([{"n": 8}, {"n": 8}])
    assert s.propose(2)[0] == {"n": 8} and len(s.propose(9)) == 6


@pytest.fixture
def options(tmp_path: Path) -> ts.Options:
    return ts.Options(cache_dir=tmp_path, threads=2, jobs=2)


def key_of(group: GroupSpace) -> Key:
    return Key.of(group_workload(group.body, ()), group.target.text, 2)


Store = Callable[..., None]


@pytest.fixture
def store(options: ts.Options) -> Store:
    """Write a record of a graph's one kernel."""

    def write(graph: Graph, ratio: float, status: str = "ok", **decisions: object) -> None:
        group = fused(graph)
        with Records(options.cache_dir / "records.sqlite") as r:  # type: ignore[operator]  # set
            r.describe({key_of(group): group_family(group.body, ())})
            r.add(trial(key_of(group), decisions, status, "", "", ratio, 1.0))  # type: ignore[arg-type]

    return write


def schedule_of(graph: Graph, options: ts.Options) -> tuple[str, ...]:
    exe = ts.compile(graph, options=options)
    (call,) = exe.program.calls
    return exe.program.kernels[call.symbol].steps


def test_compile_uses_the_nearest_shape(
    options: ts.Options, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    graph = relu(96, 256)
    analytic = schedule_of(graph, options)
    monkeypatch.setattr("tilesmith.driver.tuned.BELIEVED", math.inf)
    store(relu(64, 256), 0.5, rows=2)
    nearest = schedule_of(graph, options)
    assert nearest != analytic
    assert schedule_of(graph, options.with_(nearest=False)) == analytic
    store(relu(80, 256), 0.9, rows=3)  # nearer, though it gained less
    assert schedule_of(graph, options) not in (analytic, nearest)
    store(graph, 1.5, rows=1)  # once it was tuned itself, only that counts
    assert schedule_of(graph, options) == analytic


def test_decisions_predicted_to_be_slow_are_refused(options: ts.Options, store: Store) -> None:
    graph = relu(96, 256)
    store(relu(64, 256), 0.5, rows=1, vectors=1)
    analytic = schedule_of(graph, options.with_(use_records=False))
    assert schedule_of(graph, options) == analytic
    assert schedule_of(graph, options) == analytic  # what was found is remembered


def test_the_largest_groups_are_fitted_first(
    options: ts.Options, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tilesmith.driver.tuned.BELIEVED", math.inf)
    store(relu(64, 256), 0.5, rows=2)
    sizes = (48, 96, 80)
    inputs = ", ".join(f"%x{n}: f32[{n},64]" for n in sizes)
    groups = [
        f"%p{n}: f32[{n},256] = matmul(%x{n}, %w)\n%y{n}: f32[{n},256] = relu(%p{n})" for n in sizes
    ]
    results = ", ".join(f'%y{n} as "y{n}"' for n in sizes)
    text = f"graph net({inputs}, %w: f32[64,256]) {{\n" + "\n".join(groups)
    graph = parse_graph(f"{text}\nreturn {results}\n}}\n")

    def fitted(share: float) -> set[int]:
        """The rows of the groups that get decisions."""
        session = dataclasses.replace(driver.Session.of(options), fitted_share=share)
        with driver.recorded(session) as recorded:
            _, decisions = driver.apply_tuning(driver.optimise(graph, session), recorded)
        rows = (n.outputs[0].type.static_shape[0] for n, found in decisions.items() if found)
        return set(rows)

    assert fitted(0.4) == {96}
    assert fitted(0.4) == {96, 80}  # what is known already is used, and the next one fitted
    assert fitted(1.0) == {96, 80, 48}


def test_one_query_for_each_distinct_kernel(options: ts.Options, store: Store) -> None:
    text = """
graph net(%x: f32[48,64], %w: f32[64,64]) {
  %0: f32[48,64] = matmul(%x, %w)
  %1: f32[48,64] = matmul(%0, %w)
  %2: f32[48,64] = softmax(%1)
  return %2 as "y"
}
"""
    store(relu(64, 256), 0.5, rows=2)
    session = driver.Session.of(options)
    with driver.recorded(session) as recorded:
        driver.compile_program(parse_graph(text), recorded)
    (row,) = (r for r in session.timings.rows() if r.name == "records")
    assert row.calls == 2


def test_tuning_begins_with_what_relatives_found(options: ts.Options, store: Store) -> None:
    store(matmul(96, 256, "add(%0, %b)"), 0.5, rows=2)
    result = tune_model(Request(relu(96, 256), options), TuneOptions(trials=1))
    (task,) = result.tasks
    (first,) = task.seen.values()
    assert first.candidate == {"rows": 2}


def test_the_work_of_a_long_chain_is_beyond_floats():
    """Its extents' product has more than a thousand bits."""
    assert Family("a", "g", (1 << 20,) * 60).size == math.inf
    assert Family("a", "g", (1 << 20,) * 2).size == 1 << 20
