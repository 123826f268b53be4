"""Timings and dumps."""

from __future__ import annotations

import threading
import time

import pytest

from tilesmith.support.arrays import sample_array
from tilesmith.support.dump import Dumper
from tilesmith.support.errors import UsageError
from tilesmith.support.measure import Samples, interleave, measure, ratio
from tilesmith.support.timing import Timings


def test_stages_nest_and_add_up():
    timings = Timings()
    for _ in range(2):
        with timings.stage("outer"), timings.stage("inner"):
            time.sleep(0.002)
    rows = {r.path: r for r in timings.rows()}
    assert list(rows) == [("outer",), ("outer", "inner")]
    assert rows["outer", "inner"].calls == 2
    assert rows[("outer",)].seconds >= rows["outer", "inner"].seconds >= 0.004
    assert timings.total == rows[("outer",)].seconds


def test_a_stage_that_fails_is_closed():
    timings = Timings()
    with pytest.raises(ValueError), timings.stage("a"):
        raise ValueError
    with timings.stage("b"):
        pass
    assert [r.path for r in timings.rows()] == [("a",), ("b",)]


def test_workers_time_below_another_threads_stage():
    timings = Timings()

    def work(under):
        with timings.stage("kernel", under=under):
            pass

    with timings.stage("codegen") as path:
        threads = [threading.Thread(target=work, args=(path,)) for _ in range(4)]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
    assert [(r.path, r.calls) for r in timings.rows()] == [
        (("codegen",), 1),
        (("codegen", "kernel"), 4),
    ]


def test_report_is_a_table():
    timings = Timings()
    timings.add("lower", 0.75)
    timings.add("llvm", 0.25, under=("codegen",))
    assert timings.report().splitlines() == [
        "stage            ms   share   calls",
        "lower         750.0   75.0%       1",
        "codegen       250.0   25.0%       0",
        "  llvm        250.0   25.0%       1",
    ]


def test_only_changes_are_dumped(tmp_path):
    dump = Dumper(tmp_path / "d")
    first = object()
    printed = []

    def text(value):
        printed.append(value)
        return "one" if value is first or value == "equal" else "two"

    dump("import", first, text)
    dump("fold", first, text)  # the same object: not even printed
    dump("cse", "equal", text)  # another object with the same text
    dump("fuse", "changed", text)
    dump("nest", "k", lambda v: v, unit="kernel/0: a b")
    assert printed == [first, "equal", "changed"]
    files = sorted(str(p.relative_to(tmp_path / "d")) for p in tmp_path.rglob("*.txt"))
    assert files == ["graph/00-import.txt", "graph/03-fuse.txt", "kernel-0-a-b/00-nest.txt"]
    assert (tmp_path / "d/graph/03-fuse.txt").read_text() == "two\n"


def test_no_folder_no_work():
    dump = Dumper(None)
    dump("x", 1, lambda v: 1 / 0)  # type: ignore[arg-type]
    assert not dump.enabled


def test_bad_dump_folder(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(UsageError, match="dump folder"):
        Dumper(tmp_path / "file" / "x")


def test_interleaving_takes_turns():
    order = []
    samples = interleave(
        {"a": lambda: order.append("a"), "b": lambda: order.append("b")},
        rounds=3,
        turn_seconds=0.0,
    )
    assert "".join(order) == "aaaabbbb" + "bbbbaaaa" + "aaaabbbb"  # a warm-up and three runs
    assert len(samples["a"].times) == 9 and len(samples["a"].rounds) == 3


def test_statistics_of_samples():
    s = Samples((4.0, 1.0, 2.0, 3.0), (2.0, 4.0))
    assert (s.median, s.minimum, s.p90) == (2.5, 1.0, 4.0)
    assert ratio(s, Samples((1.0,), (1.0, 1.0))) == 3.0
    assert measure(lambda: None, seconds=0.01).median >= 0


def test_sample_arrays():
    import ml_dtypes
    import numpy as np

    rng = np.random.default_rng(0)
    for dtype in (np.float32, np.float16, ml_dtypes.bfloat16, np.int64, np.uint8, np.bool_):
        a = sample_array(np.dtype(dtype), (50, 2), rng)
        assert a.dtype == dtype and a.shape == (50, 2)
        if a.dtype.kind in "iu":
            assert set(np.unique(a)) == {0, 1}
