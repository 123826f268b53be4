"""Records survive what may happen to the process and to the file."""

from __future__ import annotations

import dataclasses
import os
import re
import signal
import sqlite3
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from tilesmith.search_space.family import Family
from tilesmith.search_space.lookup import Lookup
from tilesmith.search_space.record_lines import json_lines, read_families, read_lines
from tilesmith.search_space.records import Key, Known, Records, Trial, trial
from tilesmith.support.errors import ModelError

KEY = Key.of("workload", "target", 2)
OLD = dataclasses.replace(KEY, version=KEY.version + 1)


def timed(seconds: float, n: int = 0, key: Key = KEY) -> Trial:
    return trial(key, {"rows": n}, "ok", "conv", "", seconds, 1.0)


def test_best_is_the_fastest_that_beats_the_analytic_schedule(tmp_path: Path) -> None:
    with Records(tmp_path / "r.sqlite") as r:
        assert r.best(KEY) is None
        r.add(timed(0.99, 1), timed(1.5, 2), trial(KEY, {"rows": 3}, "wrong", "conv", "off"))
        assert r.best(KEY) is None  # one per cent may be noise
        r.add(timed(0.8, 4), timed(0.7, 5), timed(0.1, 6, Key.of("workload", "target", 1)))
        best = r.best(KEY)
        assert best is not None and best.candidate == {"rows": 5}
        r.add(dataclasses.replace(best, status="worse"))
        again = r.best(KEY)
        assert again is not None and again.candidate == {"rows": 4}


def test_other_versions_are_not_used(tmp_path: Path) -> None:
    family = Family("conv", "conv", (4, 8))
    with Records(tmp_path / "r.sqlite") as r:
        r.add(timed(0.5, 1, OLD))
        r.describe({OLD: family})
        assert KEY.is_current and not OLD.is_current
        assert r.best(KEY) is None
        assert r.look_up(KEY, family) == Known()
        other = Key.of("relative", "target", 2)
        assert r.look_up(other, family) == Known()
        assert r.prune() == 1 and r.trials() == []


def test_what_helped_with_other_versions_is_known_fastest_first(tmp_path: Path) -> None:
    older = dataclasses.replace(KEY, version=KEY.version + 2)
    elsewhere = dataclasses.replace(OLD, threads=1)
    with Records(tmp_path / "r.sqlite") as r:
        r.add(timed(0.7, 1, OLD), timed(0.99, 2, OLD), timed(0.5, 3, older), timed(0.6, 3, OLD))
        r.add(timed(0.4, 4), timed(0.4, 5, elsewhere))
        r.add(trial(OLD, {"rows": 6}, "worse", "conv", "slower", 0.4, 1.0))
        assert [t.candidate["rows"] for t in r.earlier(KEY)] == [3, 1]


def test_prune_keeps_the_best(tmp_path: Path) -> None:
    with Records(tmp_path / "r.sqlite") as r:
        r.add(
            *(timed(0.5 + n / 10, n) for n in range(4)), trial(KEY, {}, "crash", "conv", "SIGSEGV")
        )
        assert r.prune(keep=2) == 3
        assert [t.candidate["rows"] for t in r.trials()] == [0, 1]


def test_json_lines(tmp_path: Path) -> None:
    t = trial(KEY, {"tile": (4, 2), "fast": True}, "timeout", "conv", "no result", 0.0, 0.0)
    (back,) = read_lines([t.to_json(), "", "\n"])
    assert back == t and back.candidate == {"tile": (4, 2), "fast": True}


@pytest.mark.parametrize(
    "line",
    [
        "{}",
        "[1]",
        "nonsense",
        timed(1.0).to_json().replace('"ok"', '"great"'),
        timed(1.0).to_json().replace('"threads": 2', '"threads": "2"'),
        timed(1.0).to_json().replace('{\\"rows\\": 0}', "7"),
        timed(1.0).to_json().replace('"baseline": 1.0', '"baseline": 0.0'),
        timed(1.0).to_json().replace('"baseline": 1.0', '"baseline": NaN'),
        timed(1.0).to_json().replace('"seconds": 1.0', '"seconds": -1.0'),
        timed(1.0).to_json().replace('"threads": 2', f'"threads": {1 << 70}'),
        "[" * 100_000,
    ],
)
def test_bad_lines(line: str) -> None:
    with pytest.raises(ModelError, match="this is no tuning record"):
        list(read_lines([line]))


def test_another_file(tmp_path: Path) -> None:
    path = tmp_path / "r.sqlite"
    path.write_bytes(b"this is not a database, but it is long enough to be one" * 40)
    with pytest.raises(ModelError, match=r"tuning records in .* can.t be used"):
        Records(path)


def test_a_database_of_something_else(tmp_path: Path) -> None:
    path = tmp_path / "r.sqlite"
    with sqlite3.connect(path) as db:
        db.execute("CREATE TABLE trials (song TEXT, bars INTEGER)")
    with Records(path) as r, pytest.raises(ModelError, match=r"tuning records in .* can.t be used"):
        r.trials()


@pytest.mark.parametrize("read_only", [False, True])
def test_a_file_that_cannot_be_used_is_closed(
    read_only: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "r.sqlite"
    path.write_bytes(b"this is not a database, but it is long enough to be one" * 40)
    made: list[sqlite3.Connection] = []
    connect = sqlite3.connect

    def connected(*args: Any, **options: Any) -> sqlite3.Connection:
        made.append(connect(*args, **options))
        return made[-1]

    monkeypatch.setattr(sqlite3, "connect", connected)
    with pytest.raises(ModelError):
        Records(path, read_only=read_only)
    (db,) = made
    with pytest.raises(sqlite3.ProgrammingError, match="closed"):
        db.execute("SELECT 1")


def test_a_damaged_page(tmp_path: Path) -> None:
    path = tmp_path / "r.sqlite"
    with Records(path) as r:
        r.add(*(timed(0.5, n) for n in range(1000)))
    with path.open("r+b") as file:
        file.seek(8192)
        file.write(b"\xff" * 32768)
    with Records(path) as r, pytest.raises(ModelError, match="malformed"):
        r.trials()


def relative(n: int, group: str = "g") -> tuple[Key, Family]:
    return Key.of(f"workload {n} {group}", "target", 2), Family("anchor", group, (n, n))


def test_look_up_finds_relatives_nearest_first(tmp_path: Path) -> None:
    mine, family = relative(64)
    with Records(tmp_path / "r.sqlite") as r:
        assert r.look_up(mine, family) == Known()
        others = [relative(128), relative(80), relative(64, "h"), relative(1000), relative(72)]
        r.describe(dict(others))
        for n, (key, _) in enumerate(others):
            r.add(timed(0.9, n, key), timed(0.6, 10 + n, key), timed(1.2, 20 + n, key))
        r.add(dataclasses.replace(timed(0.1, 30, others[0][0]), status="worse"))
        r.add(*(timed(2.0, n, relative(72)[0]) for n in (4, 14)))  # nothing is better there
        found = r.look_up(mine, family, relatives=9)
        assert found.best is None and not found.is_tuned
        assert [t.candidate["rows"] for t in found.relatives] == [11, 12, 10]
        r.add(timed(1.1, 1, mine))
        assert r.look_up(mine, family).best is None and r.look_up(mine, family).is_tuned
        r.add(timed(0.7, 2, mine), timed(0.6, 3, mine))
        assert r.look_up(mine, family).best == r.best(mine)
        assert r.look_up(mine, Family("other", "g", ())).relatives == ()


def test_files_of_before_families(tmp_path: Path) -> None:
    path = tmp_path / "r.sqlite"
    with Records(path) as r:
        r.add(timed(0.5, 1))
    with sqlite3.connect(path) as db:
        db.execute("DROP TABLE workloads")
    with Records(path) as r:
        assert r.families() == {} and r.look_up(KEY, relative(1)[1]).best == r.best(KEY)
        r.describe({KEY: relative(64)[1]})
        assert [t.candidate for t in r.look_up(*relative(80)).relatives] == [{"rows": 1}]


def test_families_move_with_their_trials(tmp_path: Path) -> None:
    key, family = relative(64)
    with Records(tmp_path / "r.sqlite") as r:
        r.describe({key: family, relative(80)[0]: relative(80)[1]})
        r.add(timed(0.5, 1, key))
        lines = list(json_lines(r))
        assert read_families(lines) == r.families() and list(read_lines(lines)) == r.trials()
        r.prune()
        assert r.families() == {key: family}
    for bad in ('"group": 3', '"extents": [1]', '"extents": ["a"]'):
        name = bad.partition(":")[0]
        line = re.sub(name + r": (\[.*?\]|\"\w+\")", bad, lines[0])
        with pytest.raises(ModelError, match="this is no tuning record"):
            read_families([line])


WRITER = """
import sys
from pathlib import Path
from tilesmith.search_space.records import Key, Records, trial
with Records(Path(sys.argv[1])) as r:
    for n in range(100000):
        r.add(trial(Key.of("w", "t", 1), {"n": n}, "ok", "", "", 1.0, 1.0))
        print(n, flush=True)
"""


def test_a_killed_process_loses_nothing_that_was_stored(tmp_path: Path) -> None:
    path = tmp_path / "r.sqlite"
    process = subprocess.Popen(
        [sys.executable, "-c", WRITER, str(path)], stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    last = -1
    while last < 20:
        last = int(process.stdout.readline())
    os.kill(process.pid, signal.SIGKILL)
    last = max([last, *map(int, process.stdout.read().split())])
    process.wait()
    with Records(path) as r:
        found = sorted(int(str(t.candidate["n"])) for t in r.trials())
        assert found in (list(range(last + 1)), list(range(last + 2)))
        r.add(timed(0.5))  # and it goes on


def test_two_writers(tmp_path: Path) -> None:
    path = tmp_path / "r.sqlite"
    command = [sys.executable, "-c", WRITER.replace("100000", "50"), str(path)]
    command_b = [*command[:2], command[2].replace('"w"', '"v"'), command[3]]
    processes = [subprocess.Popen(c, stdout=subprocess.DEVNULL) for c in (command, command_b)]
    assert [p.wait() for p in processes] == [0, 0]
    with Records(path) as r:
        assert len(r.trials()) == 100
        assert time.time() - r.trials()[0].when < 600


def test_a_lookup_asks_how_many_relatives_may_be_fitted(tmp_path: Path) -> None:
    asked: list[int] = []

    def may_fit(_key: Key, so_far: int) -> bool:
        asked.append(so_far)
        return so_far < 2

    with Records(tmp_path / "r.sqlite") as r:
        r.add(timed(0.5, 1))
        r.describe({KEY: Family("conv", "conv", (4, 8))})
        find = Lookup(r, "target", 2, may_fit=may_fit)
        found = [find(f"other {n}", lambda: Family("conv", "conv", (4, 12))) for n in range(3)]
    assert [m.decisions for m in found] == [{"rows": 1}, {"rows": 1}, {}]
    assert asked == [0, 1, 2]
