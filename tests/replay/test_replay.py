"""The harness says that the same compiler does the same, and shows a difference."""

from __future__ import annotations

from pathlib import Path

from replay import compare, models, record_model


def recorded(folder: Path) -> Path:
    for name, make in models(None, 2):
        if name in ("golden-attention", "graph-0000"):
            record_model(folder / name, make(), "x86-64-v3")
    return folder


def test_the_same_compiler_does_the_same(tmp_path, capsys):
    old, new = recorded(tmp_path / "old"), recorded(tmp_path / "new")
    assert compare(old, new) == 0
    assert capsys.readouterr().out == "2 of 2 models are the same\n"
    assert {p.name for p in (old / "golden-attention").iterdir()} >= {"graph", "objects.txt"}


def test_a_pass_that_is_missing_is_a_difference(tmp_path, capsys, monkeypatch):
    old = recorded(tmp_path / "old")
    monkeypatch.setattr("tilesmith.driver.passes.GRAPH_PASSES", ())
    new = recorded(tmp_path / "new")
    assert compare(old, new) == 1
    out = capsys.readouterr().out
    assert "\n+" in out and "0 of 2 models are the same" in out


def test_nothing_recorded_is_not_the_same(tmp_path):
    for name in ("old", "new"):
        (tmp_path / name).mkdir()
    assert compare(tmp_path / "old", tmp_path / "new") == 1
