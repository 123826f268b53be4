"""Templates of users for kernels of models: in one search with the other schedules."""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import tilesmith as ts
from tilesmith import driver, te
from tilesmith.backend import CPU
from tilesmith.driver.request import Request
from tilesmith.driver.tuned import check_constraints
from tilesmith.graph.evaluate import evaluate
from tilesmith.graph.nodes import Graph
from tilesmith.graph.parse import parse_graph
from tilesmith.ir.layout import Layout
from tilesmith.search_space.constraints import Constraints
from tilesmith.search_space.groups import GroupSpace
from tilesmith.search_space.records import Records, trial
from tilesmith.search_space.templates import templates_for, unregister_template
from tilesmith.strategy.group import Group
from tilesmith.support.errors import ScheduleError, UsageError
from tilesmith.te.knobs import Config
from tilesmith.tuning import scheduler, tasks
from tilesmith.tuning.measure import LocalMeasurer, Task
from tilesmith.tuning.model import tune_model
from tilesmith.tuning.options import TuneOptions
from tilesmith.tuning.search import search
from tilesmith.tuning.tasks import Compiled, tasks_of

TEXT = """
graph net(%x: f32[24,32]) {
  const %w: f32[32,48] = @aa
  %0: f32[24,48] = matmul(%x, %w)
  %1: f32[24,48] = relu(%0)
  %2: f32[24,48] = softmax(%1)
  return %2 as "y"
}
"""


@pytest.fixture(scope="module")
def graph() -> Graph:
    rng = np.random.default_rng(0)
    return parse_graph(TEXT, {"aa": rng.standard_normal((32, 48)).astype(np.float32)})


@pytest.fixture
def options(tmp_path: Path) -> ts.Options:
    return ts.Options(cache_dir=tmp_path, threads=2, jobs=2)


def blocks(cfg: Config, s: te.Schedule, group: Group) -> None:
    """The last stage in blocks of rows, with whatever it reads computed inside of them."""
    last = s[group.stages[-1]]
    outer, _ = cfg.split("rows", last, last.axis[0], default=(4,))
    for stage in group.stages[:-1]:
        s[stage].compute_at(last, outer)
    cfg.annotate("outer", last, outer, ("none", "parallel"))


@pytest.fixture
def registered() -> Iterator[None]:
    ts.register_template("matmul", blocks)
    yield
    unregister_template("blocks")


def matmul_task(graph: Graph, options: ts.Options) -> Task:
    session = driver.Session.of(options)
    found = tasks_of(Compiled.of(graph, session), session)
    return next(t for t in found if "matmul" in t.label)


@pytest.fixture(autouse=True)
def all_kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tasks, "WORTH_SHARE", 0.0)  # however fast a kernel happens to be


def run_checked(exe: ts.Executable, graph: Graph) -> None:
    inputs = driver.random_inputs(graph)
    found = exe.run(inputs)
    for name, want in evaluate(graph, inputs).items():
        np.testing.assert_allclose(found[name], want, rtol=1e-4, atol=1e-6)


@pytest.mark.usefixtures("registered")
def test_all_schedules_are_in_one_space(graph: Graph, options: ts.Options) -> None:
    task = matmul_task(graph, options)
    knob = task.space.knobs({})["schedule"]
    assert knob.options == ("strategy", "user:blocks", "sketch") and knob.default == "strategy"
    assert task.space.starts == [{}, {"schedule": "user:blocks"}]
    assert "blocks.rows" in task.space.knobs({"schedule": "user:blocks"})
    rng = random.Random(0)
    found = [{}, *({"schedule": o} for o in knob.options[1:])]
    found += [task.space.random(rng) for _ in range(12)]
    assert any(k.startswith("blocks.") for c in found for k in c)
    with LocalMeasurer("tilesmith.driver.worker", 2, 2) as measurer:
        trials = list(measurer.measure(task, found, 0.0))
    assert {t.status for t in trials} <= {"ok", "slow"}, [t.cause for t in trials]


@pytest.mark.usefixtures("registered")
def test_coordinate_descent_starts_from_templates_too(graph: Graph, options: ts.Options) -> None:
    task = matmul_task(graph, options)
    s = search("coordinate", task.space)
    s.observe({}, 1.0)
    tried = []
    for _ in range(40):
        (c,) = s.propose(1)
        tried.append(c)
        s.observe(c, 0.5 if c.get("blocks.rows") == (8,) else 2.0)
    assert tried[0] == {"schedule": "user:blocks"}
    assert s.best["blocks.rows"] == (8,)
    first = next(i for i, c in enumerate(tried) if c.get("blocks.rows") == (8,))
    assert any(c.get("schedule") != "user:blocks" for c in tried[1:first])


@pytest.mark.usefixtures("registered")
def test_tuning_with_pins_and_forbidden_values(
    graph: Graph, options: ts.Options, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Both kernels get trials, however long they happen to take: little is hoped of either.
    monkeypatch.setattr(tasks, "SLACK", (0.1, 0.1))
    monkeypatch.setattr(scheduler, "FADING", 0.1)
    tuning = TuneOptions(
        trials=24, pins={"schedule": "user:blocks"}, forbid={"blocks.rows": [(4,), (2,)]}
    )
    result = tune_model(Request(graph, options), tuning)
    run_checked(result.executable, graph)
    mine = next(s for s in result.tasks if "matmul" in s.task.label)
    tried = [t.candidate for t in mine.seen.values()]
    assert tried and all(c["schedule"] == "user:blocks" for c in tried)
    assert all(c["blocks.rows"] not in ((4,), (2,)) for c in tried)
    assert {t.status for t in mine.seen.values()} <= {"ok", "slow"}
    others = [s for s in result.tasks if s is not mine]  # it is no template of theirs
    assert all(c.get("schedule") != "user:blocks" for s in others for c in [s.task.space.start])
    wrong = r"'blocks\.columns' can't be pinned: no kernel has .*did you mean 'blocks\.rows'"
    with pytest.raises(UsageError, match=wrong):
        tune_model(Request(graph, options), TuneOptions(trials=1, pins={"blocks.columns": 3}))


@pytest.mark.usefixtures("registered")
def test_layouts_of_weights_can_be_forbidden(graph: Graph, options: ts.Options) -> None:
    session = driver.Session.of(options)
    compiled = Compiled.of(graph, session)
    (free,) = (t for t in tasks_of(compiled, session) if "matmul" in t.label)
    knob = free.space.knobs({})["vectors"]
    assert len(knob.options) > 1
    constraints = Constraints.of(None, {"vectors": [knob.default]})
    constrained = dataclasses.replace(session, constraints=constraints)
    check_constraints(compiled.fused, constrained)
    (task,) = (t for t in tasks_of(compiled, constrained) if t.key == free.key)
    start = task.space.start
    assert start["vectors"] != knob.default
    assert task.space.baseline == {}  # others are compared with the analytic schedule all the same
    assert task.arguments(start)[0][1].layout != free.arguments({})[0][1].layout
    assert search("coordinate", task.space).propose(1) == [start]


def test_records_need_the_template(
    graph: Graph, options: ts.Options, caplog: pytest.LogCaptureFixture
) -> None:
    plain = [c.symbol for c in ts.compile(graph, options=options).program.calls]
    ts.register_template("matmul", blocks)
    try:
        task = matmul_task(graph, options)
        chosen = {"schedule": "user:blocks", "blocks.rows": (8,)}
        with Records(options.cache_dir / "records.sqlite") as r:  # type: ignore[operator]  # set
            r.add(trial(task.key, chosen, "ok", "", "", 0.5, 1.0))
        with driver.recorded(driver.Session.of(options)) as session:
            driver.compile_program(graph, session)
        assert session.outside == {"template blocks"}  # of this process: never kept in the cache
        exe = ts.compile(graph, options=options)
        assert [c.symbol for c in exe.program.calls] != plain
        run_checked(exe, graph)
        ts.register_template("matmul", lambda cfg, s, group: None, name="blocks")
        again = ts.compile(graph, options=options)  # the same decisions mean something else now
        assert [c.symbol for c in again.program.calls] != [c.symbol for c in exe.program.calls]
    finally:
        unregister_template("blocks")
    without = ts.compile(graph, options=options)
    assert [c.symbol for c in without.program.calls] == plain
    assert "the template 'blocks' are not used: it is not registered here" in caplog.text
    run_checked(without, graph)


def test_bad_templates(graph: Graph, options: ts.Options, caplog: pytest.LogCaptureFixture) -> None:
    def picky(cfg: Config, s: te.Schedule, group: Group) -> None:
        if cfg.choice("fine", (False, True), False):
            return
        raise ScheduleError("not like this")

    def crooked(cfg: Config, s: te.Schedule, group: Group) -> None:
        s.transform_layout(group.inputs[0], Layout.parse("1 0"))  # what it is given is not

    def broken(cfg: Config, s: te.Schedule, group: Group) -> None:
        raise KeyError("stage")

    for template in (picky, crooked):
        ts.register_template("matmul", template)
    try:
        task = matmul_task(graph, options)
        assert "not like this" in caplog.text
        assert task.space.legal({"schedule": "user:picky"}) is None
        fine = task.space.legal({"schedule": "user:picky", "picky.fine": True})
        assert fine is not None
        with LocalMeasurer("tilesmith.driver.worker", 2, 2) as measurer:
            wanted = [fine, {"schedule": "user:crooked"}, {}]
            trials = list(measurer.measure(task, wanted, 0.0))
        assert trials[1].status == "wrong" and "off by" in trials[1].cause
        assert {trials[0].status, trials[2].status} <= {"ok", "slow"}
        ts.register_template("matmul", broken)
        with pytest.raises(UsageError, match="template 'broken' fails: KeyError: 'stage'"):
            matmul_task(graph, options)
    finally:
        for name in ("picky", "crooked", "broken"):
            try:
                unregister_template(name)
            except UsageError:
                assert name == "broken"


def test_matching(graph: Graph) -> None:
    fused = driver.optimise(graph, driver.Session.of(None))
    bodies = [driver.canonical(n.op.body) for n in fused.nodes]  # type: ignore[attr-defined]
    target = driver.Session.of(None).target
    ts.register_template(lambda g: len(g.stages) > 1 and not g.layouts, blocks, name="by shape")
    try:
        for body in bodies:
            space = GroupSpace(body, (), target, CPU.rules)
            group = space.schedule(Config())[1]
            wanted = len(group.stages) > 1 and not group.layouts
            assert [t.name for t in templates_for(body, group)] == ["by shape"] * wanted
            assert ("user:by shape" in space.origins) == wanted
    finally:
        unregister_template("by shape")
    with pytest.raises(UsageError, match="no template 'by shape' is registered"):
        unregister_template("by shape")
    with pytest.raises(UsageError, match="matches: expected a string or a function, found 3"):
        ts.register_template(3, blocks)  # type: ignore[arg-type]
