"""`tilesmith tune` and `tilesmith records`."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

Run = Callable[..., Any]


def test_tune_and_move_records(tilesmith: Run, model: Path, tmp_path: Path) -> None:
    page = tmp_path / "report.html"
    done = tilesmith(
        "tune", model, "--trials", 4, "--seconds", 60, "--threads", 1, "--json", "--report", page
    )
    assert "conv1" in page.read_text()
    assert done.json["speedup"] >= 1
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


def test_usage(tilesmith: Run, model: Path, tmp_path: Path) -> None:
    assert "is none of list, export" in tilesmith("records", "burn").err
    assert "records export takes a file" in tilesmith("records", "export").err
    assert "records list takes no file" in tilesmith("records", "list", "x").err
    (tmp_path / "bad").write_text("{}\n")
    bad = tilesmith("records", "import", tmp_path / "bad")
    assert bad.code == 2 and "this is no tuning record" in bad.err
    assert "there is no search 'x'" in tilesmith("tune", model, "--search", "x").err
    assert "compiled already" in tilesmith("tune", "m.tsm").err
