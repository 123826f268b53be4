"""`tilesmith opt`: every stage as text, and text read back in."""

from __future__ import annotations

import re

import numpy as np
import onnx
import pytest

import tilesmith as ts
from tilesmith import driver
from tilesmith.graph.compare import structural_equal as equal_graphs
from tilesmith.graph.parse import parse_graph
from tilesmith.loop.compare import structural_equal as equal_loops
from tilesmith.loop.parse import parse_func
from tilesmith.program.nodes import KernelCall
from tilesmith.program.parse import parse_program
from tilesmith.program.text import print_program
from tilesmith.search_space.records import Key, Records, trial


def test_all_passes_by_default(tilesmith, model):
    listed = tilesmith("opt", model, "--list").out.split()
    done = tilesmith("opt", model, "--json").json
    assert [p["name"] for p in done["passes"]] == listed
    assert any(p["changed"] for p in done["passes"])
    assert "fused(" in done["texts"][0]["text"]
    assert "changed" in tilesmith("opt", model).out


def test_chosen_passes(tilesmith, model):
    shown = tilesmith("opt", model, "--passes", "fold,fuse", "--print")
    assert shown.code == 0, shown.err
    assert shown.out.startswith("graph ")
    each = tilesmith("opt", model, "--passes", "decompose,dce", "--print-each")
    assert "# after decompose" in each.out


def test_text_goes_out_and_comes_back(tilesmith, model, tmp_path):
    a = tmp_path / "a.txt"
    assert tilesmith("opt", model, "--passes", "decompose,fold", "-o", a).code == 0
    assert a.is_file()
    back = tilesmith("opt", a, "--print")
    assert back.code == 0, back.err
    assert back.out == a.read_text()
    # The rest of the road gives the same from the text as from the model.
    listed = tilesmith("opt", model, "--list").out.split()
    rest = ",".join(listed[2:])
    from_text = tilesmith("opt", a, "--passes", rest, "--print").out
    from_model = tilesmith("opt", model, "--passes", "decompose,fold," + rest, "--print").out
    assert from_text == from_model


def test_both_forms_are_read_as_the_same_graph(tilesmith, model, tmp_path):
    graphs = []
    for form in ("graph", "anf"):
        path = tmp_path / f"{form}.txt"
        assert tilesmith("opt", model, "--to", "fuse", "--form", form, "-o", path).code == 0
        back = tilesmith("opt", path, "--print", "--form", form)
        assert back.out == path.read_text()
        graphs.append(parse_graph(path.read_text(), constants_beside(path)))
        assert ("    let %" in back.out) == (form == "anf")
    assert equal_graphs(*graphs)
    assert "the forms are graph, anf" in tilesmith("opt", model, "--form", "ssa").err


def constants_beside(path):
    beside = path.with_suffix(".npz")
    return dict(np.load(beside)) if beside.is_file() else {}


@pytest.mark.parametrize("stage", ["nest", "loops"])
def test_loops_go_out_and_come_back(tilesmith, model, tmp_path, stage):
    path = tmp_path / "k.txt"
    assert tilesmith("opt", model, "--to", stage, "--kernel", 0, "-o", path).code == 0
    back = tilesmith("opt", path, "--print")
    assert back.code == 0, back.err
    assert equal_loops(parse_func(back.out), parse_func(path.read_text()))


def test_loop_passes_run_on_text(tilesmith, model, tmp_path):
    path = tmp_path / "k.txt"
    assert tilesmith("opt", model, "--to", "nest", "--kernel", 0, "-o", path).code == 0
    passes = tilesmith("opt", path, "--list").out.split()
    stepwise = tilesmith("opt", path, "--passes", ",".join(passes), "--print").out
    whole = tilesmith("opt", model, "--to", "loops", "--kernel", 0, "--print").out
    assert equal_loops(parse_func(stepwise), parse_func(whole))


@pytest.mark.parametrize(("stage", "has"), [("code", "define "), ("asm", "ret")])
def test_code(tilesmith, model, stage, has):
    done = tilesmith("opt", model, "--to", stage, "--json").json
    assert done["texts"]
    assert all(has in t["text"] for t in done["texts"])


@pytest.fixture
def stages(tilesmith, model, tmp_path) -> tuple[list[str], list[str]]:
    """The names of the graph passes and of the loop passes."""
    path = tmp_path / "nest.txt"
    assert tilesmith("opt", model, "--to", "nest", "--kernel", 0, "-o", path).code == 0
    return tilesmith("opt", model, "--list").out.split(), tilesmith(
        "opt", path, "--list"
    ).out.split()


def test_every_stage_leads_to_the_same_code(tilesmith, model, tmp_path, stages):
    """Each stage's text is read back and goes on from there."""
    path = tmp_path / "stage.txt"

    def code(source, *more):
        (text,) = tilesmith("opt", source, *more, "--to", "code", "--json").json["texts"]
        return text["text"].partition("define")[2]

    conv = ("--kernel", "conv1")
    whole = code(model, *conv)
    for name in stages[0][::3]:
        assert tilesmith("opt", model, "--to", name, "-o", path).code == 0
        assert code(path, "--from", name, *conv) == whole, name
    for name in ("nest", *stages[1]):
        assert tilesmith("opt", model, "--to", name, *conv, "-o", path).code == 0
        assert code(path, "--from", name) == whole, name
    for name in ("nest", "loops"):  # these are known by their form
        assert tilesmith("opt", model, "--to", name, *conv, "-o", path).code == 0
        assert code(path) == whole, name
    assert tilesmith("opt", model, "--to", "vectorize", "--kernel", "conv1", "-o", path).code == 0
    assert "say with --from which pass" in tilesmith("opt", path, "--to", "asm").err
    assert "past that stage" in tilesmith("opt", path, "--to", "fuse").err
    assert "comes before --from" in tilesmith("opt", path, "--from", "peel", "--to", "flatten").err
    assert "--to nowhere: the stages are" in tilesmith("opt", model, "--to", "nowhere").err


def test_passes_that_leave_loops_unfinished_are_the_users(tilesmith, tmp_path):
    path = tmp_path / "k.txt"
    path.write_text("def k(x: f32[4]) -> x:\n    for i in vectorized(4):\n        x[i] = 1.0\n")
    for given, said in (
        (("--from", "vectorize", "--to", "asm"), "not what this pass leaves: a loop of kind"),
        (("--passes", "unroll", "--to", "loops"), "name all passes that they need"),
        (("--passes", "flatten", "--to", "code"), "the loops are not final"),
    ):
        shown = tilesmith("opt", path, *given)
        assert (shown.code, said in shown.err) == (1, True), shown.err
    assert tilesmith("opt", path, "--from", "tensorize", "--to", "loops").code == 0


def test_each_loop_pass_is_shown(tilesmith, model, stages):
    shown = tilesmith("opt", model, "--to", "loops", "--kernel", "conv1", "--print-each").out
    after = [line.removeprefix("# after ") for line in shown.splitlines() if "# after" in line]
    assert set(after) <= {*stages[0], *stages[1]}
    assert {"fuse", "flatten", "unroll"} <= set(after)


def steps(shown) -> dict[str, list[str]]:
    """By source, the steps that `opt --to schedule` shows."""
    found = {}
    for t in shown.json["texts"]:
        lines = t["text"].splitlines()
        found[lines[0].partition(": ")[2]] = [line for line in lines if line[0] != "#"]
    return found


def compiled_steps(exe: ts.Executable) -> dict[str, list[str]]:
    program = exe.program
    return {c.label: list(program.kernels[c.symbol].steps) for c in program.calls}


def test_schedules_are_those_of_compilation(tilesmith, model, tmp_path, monkeypatch):
    """The rules' own, pinned ones, and those on record."""
    options = ts.Options(cache_dir=tmp_path / "cache", threads=1)
    monkeypatch.setenv("TILESMITH_NUM_THREADS", "1")
    plain = steps(tilesmith("opt", model, "--to", "schedule", "--json"))
    assert plain == compiled_steps(ts.compile(model, options=options))
    pinned = tilesmith("opt", model, "--to", "schedule", "--pin", "rows=2", "--json")
    assert steps(pinned) == compiled_steps(ts.compile(model, options=options, pins={"rows": 2}))
    assert steps(pinned) != plain
    assert any(t["decisions"].get("rows") == 2 for t in pinned.json["texts"])

    session = driver.Session.of(options)
    fused = driver.optimise(
        driver.load_graph(driver.Request(model, session.options), session), session
    )
    node = next(n for n in fused.nodes if "conv1" in n.loc)
    found = driver.group_space(node, fused, session)
    assert found is not None
    key = Key.of(found[0], session.target.text, 1)
    with Records(tmp_path / "cache" / "records.sqlite") as records:
        records.add(trial(key, {"rows": 2}, "ok", "conv", "", 0.5, 1.0))
    recorded = tilesmith("opt", model, "--to", "schedule", "--json")
    assert steps(recorded) == compiled_steps(ts.compile(model, options=options)) != plain
    shown = tilesmith("opt", model, "--to", "nest", "--kernel", "conv1", "--print").out
    assert '# decided: {"rows": 2}' in shown
    without = tilesmith("opt", model, "--to", "schedule", "--no-use-records", "--json")
    assert steps(without) == plain


def test_kernels_are_found_by_source(tilesmith, model):
    every = tilesmith("opt", model, "--to", "nest", "--json").json["texts"]
    some = tilesmith("opt", model, "--to", "nest", "--kernel", "conv1", "--json").json["texts"]
    assert 1 <= len(some) < len(every)
    assert tilesmith("opt", model, "--to", "nest", "--kernel", "999").code == 1


def test_bad_text(tilesmith, tmp_path):
    bad = tmp_path / "bad.txt"
    bad.write_text("graph g(")
    assert tilesmith("opt", bad).code == 1
    bad.write_text("no such thing")
    assert tilesmith("opt", bad).code == 1
    bad.write_bytes(b"\xff\xfe\x00")  # no text, so it should be a model
    assert tilesmith("opt", bad).code == 2


def test_parse_of_print_is_equal(tilesmith, model, tmp_path):
    a = tmp_path / "a.txt"
    tilesmith("opt", model, "-o", a)
    from tilesmith.cli.opt import _load_constants

    constants = _load_constants(a.with_suffix(".npz")) if a.with_suffix(".npz").exists() else {}
    graph = parse_graph(a.read_text(), constants)
    assert equal_graphs(graph, parse_graph(a.read_text(), constants))


def test_a_graph_is_written_for_viewers(tilesmith, model, tmp_path):
    path = tmp_path / "v.onnx"
    done = tilesmith("opt", model, "--to", "graph", "-o", path)
    assert done.code == 0 and f"wrote {path}, to be looked at with Netron" in done.err
    shown = onnx.load(path)
    onnx.checker.check_model(shown)
    assert {f.name for f in shown.functions} >= {n.op_type for n in shown.graph.node} - {"Identity"}
    refused = tilesmith("opt", model, "--to", "nest", "-o", path)
    assert refused.code == 1 and "is for a graph; loops and code are text" in refused.err


_LOOPS = """def f(A: {type}[8]) -> A:
    for i in {kind}({extent}):
        A[i] = {value}
"""


_GRAPH = "graph g(%x: f32[2]) {{\n  {node}\n  return %y as {name}\n}}"


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (_GRAPH.format(node="%y: f32[3] = relu(%x)", name='"y"'), r"\(f32\[2\]\)"),
        (_GRAPH.format(node="%y: f32[2] = relu(%x, %x)", name='"y"'), "do not fit"),
        (_GRAPH.format(node="%y: f32[2] = relu(%x)", name='""'), "has no name"),
        (_LOOPS.format(type="f32", kind="range", extent=8, value="1"), "gets a value of type i64"),
        (_LOOPS.format(type="i64", kind="range", extent=8, value="exp(A[i])"), "defined on i64"),
        (_LOOPS.format(type="f32", kind="range", extent="1.0", value="1.0"), "its range f32"),
        (_LOOPS.format(type="f32", kind="range", extent=8, value="A[i, i]"), "has rank 1"),
        (_LOOPS.format(type="f32", kind="unrolled", extent="A", value="1"), "of a variable"),
    ],
)  # fmt: skip
def test_text_that_is_no_program_is_the_users_mistake(tilesmith, tmp_path, text, says):
    path = tmp_path / "t.txt"
    path.write_text(text)
    for more in ([], ["--print"], ["--to", "asm"]):
        done = tilesmith("opt", path, *more)
        assert done.code == 1, done.err
        assert re.search(says, done.err)


@pytest.mark.parametrize(("kind", "code"), [("vectorized", 0), ("unrolled", 1)])
def test_loops_of_very_many_lanes_or_copies(tilesmith, tmp_path, kind, code):
    path = tmp_path / "t.txt"
    path.write_text(_LOOPS.format(type="f32", kind=kind, extent=1 << 40, value="1.0"))
    done = tilesmith("opt", path, "--to", "loops", "--print")
    assert done.code == code, done.err
    assert f"range({1 << 40})" in done.out if code == 0 else "copies" in done.err


def test_the_main_program(tilesmith, model):
    shown = tilesmith("opt", model, "--to", "program", "--print")
    assert shown.code == 0, shown.err
    main = parse_program(shown.out)
    assert print_program(main) == shown.out
    assert [s.label for s in main.steps if isinstance(s, KernelCall)][:1] == ["conv1+relu1"]
    refused = tilesmith("opt", model, "--to", "program", "--passes", "fold")
    assert refused.code == 1 and "through all passes; leave out --passes" in refused.err
