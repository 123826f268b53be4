"""Scripts for AutoTVM and Ansor run with one import changed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tilesmith.compat.tvm as tvm
from tilesmith.compat.tvm import auto_scheduler, autotvm, te
from tilesmith.support.errors import ModelError, UsageError


@autotvm.template("tests/product")
def _product(n: int, dtype: str) -> Any:
    a, b = te.placeholder((n, n), dtype, name="A"), te.placeholder((n, n), dtype, name="B")
    k = te.reduce_axis((0, n), name="k")
    c = te.compute((n, n), lambda i, j: te.sum(a[i, k] * b[k, j], axis=k), name="C")
    s = te.create_schedule(c.op)
    y, x = s[c].op.axis
    (k,) = s[c].op.reduce_axis
    cfg = autotvm.get_config()
    cfg.define_split("tile_y", y, num_outputs=2)
    cfg.define_split("tile_x", x, num_outputs=2, filter=lambda e: e.size[-1] in (1, 8, 16))
    cfg.define_knob("parallel", [False, True])
    cfg.define_reorder("order", [y, k], policy="candidate", candidate=[[y, k], [k, y]])
    yo, yi = cfg["tile_y"].apply(s, c, y)
    xo, xi = cfg["tile_x"].apply(s, c, x)
    s[c].reorder(yo, xo, k, yi, xi)
    cfg["order"].apply(s, c, [k, yi])
    cfg.define_annotate("kinds", [xi], policy="try_vec")
    cfg["kinds"].apply(s, c, [xi])
    if cfg["parallel"].val:
        s[c].parallel(yo)
    return s, [a, b, c]


def _check(schedule: Any, args: Any, n: int) -> None:
    f = tvm.build(schedule, args, "llvm")
    a, c = np.random.default_rng(0).random((n, n), np.float32), tvm.nd.empty((n, n))
    f(a, a, c)
    tvm.testing.assert_allclose(c, a @ a, rtol=1e-4)


def test_a_task_lists_its_decisions():
    task = autotvm.task.create("tests/product", args=(32, "float32"), target="llvm")
    assert len(task.config_space) == 6 * 3 * 2 * 2 * 2
    assert "tile_x: 3 options" in str(task.config_space)


def test_a_search_writes_a_log_that_later_calls_apply(tmp_path: Path):
    log = tmp_path / "product.log"
    task = autotvm.task.create("tests/product", args=(32, "float32"), target="llvm")
    tuner = autotvm.tuner.RandomTuner(task)
    options = autotvm.measure_option(builder="local", runner=autotvm.LocalRunner(number=2))
    tuner.tune(4, options, callbacks=[autotvm.callback.log_to_file(log)])
    lines = [json.loads(row) for row in log.read_text().splitlines()]
    assert 1 <= len(lines) <= 4
    assert lines[0]["input"][:3] == ["llvm", "tests/product", [32, "float32"]]
    assert [e[:2] for e in lines[0]["config"]["entity"]] == [
        ["tile_y", "sp"], ["tile_x", "sp"], ["parallel", "ot"], ["order", "re"], ["kinds", "an"],
    ]  # fmt: skip
    with autotvm.apply_history_best(str(log)):
        _check(*_product(32, "float32"), 32)


def test_a_log_of_tvm_is_applied(tmp_path: Path):
    entities = [["tile_y", "sp", [-1, 4]], ["tile_x", "sp", [-1, 16]], ["parallel", "ot", True],
                ["order", "re", [0, 1]], ["kinds", "an", ["vec"]]]  # fmt: skip
    rows = [
        {"input": ["llvm -keys=cpu", "tests/product", [64, "float32"], {}],
         "config": {"index": n, "code_hash": None, "entity": e},
         "result": [[cost], 0, 1.5, 1620000000.0], "version": 0.2, "tvm_version": "0.8.0"}
        for n, (cost, e) in enumerate([(2e-3, [*entities[:1]]), (1e-3, entities)])
    ]  # fmt: skip
    log = tmp_path / "tvm.log"
    log.write_text("".join(json.dumps(r) + "\n" for r in rows))
    with autotvm.apply_history_best(log):
        schedule, args = _product(64, "float32")
        other, _ = _product(32, "float32")
    steps = str(schedule)
    assert "split('i', factor=4)" in steps
    assert "vectorize('ji')" in steps
    assert "parallel('io')" in steps
    assert "parallel" not in str(other), "the log says nothing about this size"
    _check(schedule, args, 64)


def test_lines_that_are_no_measurement_are_refused(tmp_path: Path):
    log = tmp_path / "bad.log"
    log.write_text('{"input": ["llvm"]}\n')
    with pytest.raises(ModelError, match="a line of an AutoTVM log"):
        autotvm.apply_history_best(log)
    with pytest.raises(UsageError, match=r"@autotvm\.template"):
        autotvm.get_config()


def test_wrong_arguments_of_searches_are_refused(tmp_path: Path):
    with pytest.raises(UsageError, match="expected an AutoTVM log, found No such file"):
        autotvm.apply_history_best(str(tmp_path / "none"))
    with pytest.raises(UsageError, match="func: expected a function or a string, found 3"):
        auto_scheduler.SearchTask(3, [1])  # type: ignore[arg-type]


def test_sizes_without_a_tail_divide_the_loop():
    @autotvm.template("even")
    def template():
        config = autotvm.get_config()
        config.define_split("s", 12, policy="verbose", no_tail=True)
        with pytest.raises(TypeError, match="num_output"):
            config.define_split("t", 12, num_output=3)  # type: ignore[call-arg]
        return [], []

    space = autotvm.task.create("even", (), "llvm").config_space
    assert {12 % n for (n,) in space.space_map["s"].options} == {0}


@pytest.mark.parametrize(
    "declare, message",
    [
        (lambda c: c.define_split("s", 8, policy="powers"), "expected the policy factors, power2"),
        (lambda c: c.define_split("s", 8, policy="candidate"), "or candidate with candidate="),
        (
            lambda c: c.define_split("s", 8, filter=lambda e: False),
            "'s': expected values",
        ),
        (lambda c: c.define_split("s", 8, num_outputs=0), "num_outputs from 1"),
        (
            lambda c: c.define_split("s", 8, num_outputs=3, candidate=[[-1, 4]]),
            "candidates of 3 sizes",
        ),
        (lambda c: c.define_split("s", 8, policy="candidate", candidate=4), "candidate: expected"),
        (lambda c: c.define_knob("k", []), "'k': expected values to choose from, found none"),
        (lambda c: c.define_reorder("r", [1, 2], "candidate", [[1, 3]]), "its own loops"),
        (lambda c: c.define_reorder("r", [1, 2], "some"), "expected the policy all, identity"),
    ],
)
def test_a_decision_without_values_is_refused(declare, message: str):
    @autotvm.template("decisions")
    def template():
        declare(autotvm.get_config())

    with pytest.raises(UsageError, match=message):
        template()


@auto_scheduler.register_workload
def _sum_of_product(n: int, dtype: str) -> list[te.Tensor]:
    a, b = te.placeholder((n, n), dtype, name="A"), te.placeholder((n, n), dtype, name="B")
    c = te.placeholder((n, n), dtype, name="C")
    k = te.reduce_axis((0, n), name="k")
    product = te.compute((n, n), lambda i, j: te.sum(a[i, k] * b[k, j], axis=k), name="product")
    return [a, b, c, te.compute((n, n), lambda i, j: product[i, j] + c[i, j], name="out")]


def test_a_workload_may_have_a_name_of_its_own():
    auto_scheduler.register_workload("first", f=_sum_of_product)
    auto_scheduler.register_workload("second")(_sum_of_product)
    for name in ("first", "second"):
        assert name in auto_scheduler.SearchTask(name, args=(8, "float32")).workload_key


def test_a_generated_schedule_is_found_logged_and_applied(tmp_path: Path):
    log = tmp_path / "sum.json"
    target = tvm.target.Target("llvm")
    task = auto_scheduler.SearchTask(_sum_of_product, args=(32, "float32"), target=target)
    assert "product[i_1, j_1] + C" in task.compute_dag
    task.tune(
        auto_scheduler.TuningOptions(
            num_measure_trials=2, measure_callbacks=[auto_scheduler.RecordToFile(log)]
        )
    )
    assert len(log.read_text().splitlines()) >= 1
    schedule, args = task.apply_best(str(log))
    f = tvm.build(schedule, args, target)
    a, out = np.random.default_rng(0).random((32, 32), np.float32), tvm.nd.empty((32, 32))
    f(a, a, a, out)
    tvm.testing.assert_allclose(out, a @ a + a, rtol=1e-4)
    assert "s['product']" in task.print_best(log)
    (tmp_path / "tvm.json").write_text('{"i": [["[]", "llvm"], [[], []]], "r": [[0.1], 0]}\n')
    with pytest.raises(ModelError, match="tune again"):
        task.apply_best(tmp_path / "tvm.json")
