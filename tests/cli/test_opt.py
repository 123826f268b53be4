"""`tilesmith opt`: every stage as text, and text read back in."""

from __future__ import annotations

import pytest

from tilesmith.graph.compare import structural_equal as equal_graphs
from tilesmith.graph.parse import parse_graph
from tilesmith.loop.compare import structural_equal as equal_loops
from tilesmith.loop.parse import parse_func


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


@pytest.mark.parametrize(("stage", "has"), [("llvm", "define "), ("asm", "ret")])
def test_code(tilesmith, model, stage, has):
    done = tilesmith("opt", model, "--to", stage, "--json").json
    assert done["texts"]
    assert all(has in t["text"] for t in done["texts"])


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
    bad.write_bytes(b"\xff\xfe\x00")
    assert tilesmith("opt", bad).code == 1


def test_parse_of_print_is_equal(tilesmith, model, tmp_path):
    a = tmp_path / "a.txt"
    tilesmith("opt", model, "-o", a)
    from tilesmith.cli.opt import _load_constants

    constants = _load_constants(a.with_suffix(".npz")) if a.with_suffix(".npz").exists() else {}
    graph = parse_graph(a.read_text(), constants)
    assert equal_graphs(graph, parse_graph(a.read_text(), constants))
