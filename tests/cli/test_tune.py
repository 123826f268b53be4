"""`tilesmith tune` and `tilesmith records`."""

from __future__ import annotations

import dataclasses
import io
import json
import sqlite3
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from tilesmith.cli.tune import _headline
from tilesmith.search_space import templates
from tilesmith.search_space.records import Key, Records, trial
from tilesmith.support.measure import Ratio

Run = Callable[..., Any]


def test_records_of_other_schedules_are_marked(tilesmith: Run, tmp_path: Path) -> None:
    key = Key.of("workload", "target", 2)
    old = dataclasses.replace(key, version=key.version + 1)
    path = tmp_path / "some.sqlite"
    with Records(path) as r:
        r.add(*(trial(k, {"rows": 1}, "ok", "conv", "", 0.5, 1.0) for k in (key, old)))
    listed = tilesmith("records", "list", "--records", path, "--json").json
    assert {row["version"]: row["is_current"] for row in listed} == {
        key.version: True, old.version: False
    }  # fmt: skip
    assert tilesmith("records", "list", "--records", path).out.count("old") == 1
    assert "removed 1 trials" in tilesmith("records", "prune", "--records", path).out
    (kept,) = tilesmith("records", "list", "--records", path, "--json").json
    assert kept["is_current"]


def test_tune_and_move_records(tilesmith: Run, model: Path, tmp_path: Path) -> None:
    page = tmp_path / "report.html"
    done = tilesmith(
        "tune", model, "--trials", 4, "--seconds", 60, "--threads", 1, "--json", "--report", page
    )
    assert "conv1" in page.read_text()
    low, high = done.json["interval"]
    assert done.json["speedup"] >= 1 and low <= done.json["speedup"] <= high
    assert list(done.json["spent"])[-2:] == ["comparing with untuned", "writing the report"]
    assert sum(t["trials"] for t in done.json["tasks"]) == 4
    assert "comparing with untuned" in done.err  # plain lines: this is no terminal
    listed = tilesmith("records", "list", "--all", "--json").json
    assert len(listed) >= 4 and all(t["threads"] == 1 for t in listed)
    lines, other = tmp_path / "t.jsonl", tmp_path / "other.sqlite"
    count = len(listed)
    assert f"wrote {count} trials" in tilesmith("records", "export", lines).out
    assert "added 0 trials" in tilesmith("records", "import", lines).out
    imported = tilesmith("records", "import", lines, "--records", other)
    assert f"added {count} trials" in imported.out
    assert "added 0 trials" in tilesmith("records", "merge", other).out
    assert "removed" in tilesmith("records", "prune").out
    assert len(tilesmith("records", "list", "--all", "--json").json) < count
    assert "of analytic" in tilesmith("records", "list").out


def test_constraints(tilesmith: Run, model: Path) -> None:
    done = tilesmith(
        "tune", model, "--trials", 4, "--threads", 1, "--flush",
        "--pin", "unroll=1", "--forbid", "schedule=sketch", "--forbid", "rows=1",
    )  # fmt: skip
    assert "4 candidates measured" in done.out
    listed = tilesmith("records", "list", "--all", "--json").json
    tried = [json.loads(t["decisions"]) for t in listed]
    assert any(d.get("unroll") == 1 for d in tried)
    assert not any(d.get("rows") == 1 or d.get("schedule") == "sketch" for d in tried)
    unknown = tilesmith("tune", model, "--trials", 1, "--pin", "colour=red")
    assert unknown.code == 1 and "'colour' can't be pinned: no kernel has a knob" in unknown.err
    assert "--pin wants NAME=VALUE, not 'x'" in tilesmith("tune", model, "--pin", "x").err
    twice = ("--pin", "rows=1", "--pin", "rows=2")
    assert "given twice for 'rows'" in tilesmith("tune", model, *twice).err


@pytest.fixture
def unregistered() -> Iterator[None]:
    """Whatever a test registers is forgotten."""
    before = dict(templates._REGISTERED)
    yield
    templates._REGISTERED.clear()
    templates._REGISTERED.update(before)


@pytest.fixture
def product(tmp_path: Path) -> Path:
    """One matrix product: `x` f32[24,32] to `y` f32[24,48]."""
    w = numpy_helper.from_array(np.ones((32, 48), np.float32), "w")
    x, y = (
        helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, shape)
        for name, shape in (("x", [24, 32]), ("y", [24, 48]))
    )
    graph = helper.make_graph([helper.make_node("MatMul", ["x", "w"], ["y"])], "g", [x], [y], [w])
    opset = helper.make_opsetid("", 18)
    path = tmp_path / "product.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[opset], ir_version=9), path)
    return path


@pytest.mark.usefixtures("unregistered")
def test_templates_of_a_file(tilesmith: Run, product: Path, tmp_path: Path) -> None:
    example = Path(__file__).resolve().parents[2] / "examples" / "row_blocks.py"
    done = tilesmith(
        "tune", product, "--trials", 6, "--threads", 1, "--templates", example,
        "--pin", "schedule=user:row_blocks", "--pin", "row_blocks.columns=[16]",
    )  # fmt: skip
    assert done.code == 0 and "(0 failed)" in done.out, done.err
    listed = tilesmith("records", "list", "--all", "--json").json
    tried = [json.loads(t["decisions"]) for t in listed]
    mine = [d for d in tried if d.get("schedule") == "user:row_blocks"]
    assert mine and all(d["row_blocks.columns"] == [16] for d in mine)
    assert tilesmith("run", product, "--templates", example).code == 0  # verbs that compile have it

    def refused(text: str | None) -> str:
        path = tmp_path / "mine.py"
        path.unlink(missing_ok=True)
        if text is not None:
            path.write_text(text)
        outcome = tilesmith("tune", product, "--trials", 1, "--templates", path)
        assert outcome.code == 1
        return outcome.err

    assert "there is no file of templates" in refused(None)
    assert "registers none: it is to call tilesmith.register_template" in refused("x = 1\n")
    known = dict(templates._REGISTERED)
    half = "import tilesmith as ts\nts.register_template('conv', lambda *a: None, 'half')\n"
    assert "mine.py', line 3 fails: NameError: name 'oops'" in refused(half + "oops\n")
    assert "fails: SyntaxError" in refused("def (\n")
    assert "fails: SystemExit: 3" in refused("raise SystemExit(3)\n")
    assert "matches: expected a string or a function, found 3" in refused(
        "import tilesmith as ts\nts.register_template(3)(4)"
    )
    assert known == templates._REGISTERED  # a file that fails leaves nothing behind


def test_usage(tilesmith: Run, model: Path, tmp_path: Path) -> None:
    assert "is none of list, export" in tilesmith("records", "burn").err
    assert "records export takes a file" in tilesmith("records", "export").err
    assert "records list takes no file" in tilesmith("records", "list", "x").err
    (tmp_path / "bad").write_text("{}\n")
    bad = tilesmith("records", "import", tmp_path / "bad")
    assert bad.code == 2 and "this is no tuning record" in bad.err
    assert "there is no search 'x'" in tilesmith("tune", model, "--search", "x").err
    assert "compiled already" in tilesmith("tune", "m.tsm").err


def test_bad_record_files(tilesmith: Run, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    assert "can't be read" in tilesmith("records", "import", tmp_path / "absent").err
    assert "there is no file" in tilesmith("records", "merge", tmp_path / "absent").err
    assert "can't be written" in tilesmith("records", "export", tmp_path / "no" / "f").err
    assert "must not be negative" in tilesmith("records", "prune", "--keep", -1).err
    (tmp_path / "bytes").write_bytes(b"\xff\xfe\x00")
    assert "no text of JSON lines" in tilesmith("records", "import", tmp_path / "bytes").err
    other = tmp_path / "other.sqlite"
    with Records(other) as store:
        store.add(trial(Key.of("w", "t", 1), {}, "ok", "conv", "", 0.5, 1.0))
    with sqlite3.connect(other) as db:
        db.execute("UPDATE trials SET seconds = 'soon'")
    merged = tilesmith("records", "merge", other)
    assert merged.code == 0 and merged.out == "added 0 trials\n"
    assert "are skipped" in caplog.text
    assert tilesmith("records", "list", "--json").json == []


def test_records_through_pipes(
    tilesmith: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "r.sqlite"
    with Records(path) as store:
        store.add(trial(Key.of("w", "t", 1), {"a": 1}, "ok", "conv", "", 0.5, 1.0))
    lines = tilesmith("records", "export", "-", "--records", path).out
    monkeypatch.setattr("sys.stdin", io.StringIO(lines))
    assert "added 1 trials" in tilesmith("records", "import", "-").out
    assert tilesmith("records", "export", "-").out == lines


def test_the_headline_says_how_certain_it_is() -> None:
    (line,) = _headline(Ratio(1.25, 1.2, 1.31, 15, 0.05))
    assert line == (
        "the tuned model is 1.250 times as fast as the untuned one "
        "(95% interval 1.200 to 1.310, 15 turns)"
    )
    few, unsure, busy = _headline(Ratio(1.29, 0.98, 1.4, 3, 0.6))
    assert "(range 0.980 to 1.400, 3 turns)" in few
    assert "contains 1" in unsure and "other programs used 60% of the cores" in busy
    assert len(_headline(Ratio(1.25, 1.2, 1.31, 15, None))) == 1


def test_tuning_that_measured_nothing_says_so(tilesmith, tmp_path) -> None:
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [2, 4])
    y = helper.make_tensor_value_info("y", TensorProto.INT64, None)
    graph = helper.make_graph([helper.make_node("NonZero", ["x"], ["y"])], "plain", [x], [y])
    model = tmp_path / "plain.onnx"
    onnx.save(helper.make_model(graph, ir_version=8), model)
    done = tilesmith("tune", model)
    assert done.code == 1 and "0 candidates measured" in done.out
    assert "no candidate was measured" in done.err and "no kernel of this model has" in done.err


def test_few_seconds_measure_one_candidate(tilesmith, model) -> None:
    done = tilesmith("tune", model, "--seconds", 0.01)
    assert done.code == 0 and "1 candidates measured" in done.out
