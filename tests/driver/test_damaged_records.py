"""Damaged, locked and read-only records never break a compilation."""

from __future__ import annotations

import logging
import random
import shutil
import sqlite3
from pathlib import Path

import numpy as np
import pytest

import tilesmith as ts
from tilesmith import driver
from tilesmith.driver.session import Session
from tilesmith.graph.nodes import Graph
from tilesmith.graph.parse import parse_graph
from tilesmith.search_space.family import group_family
from tilesmith.search_space.records import Key, Records, trial

TEXT = """
graph net(%x: f32[16,24]) {
  const %w: f32[24,32] = @aa
  const %v: f32[32,WIDTH] = @bb
  %0: f32[16,32] = matmul(%x, %w)
  %1: f32[16,32] = relu(%0)
  %2: f32[16,WIDTH] = matmul(%1, %v)
  %3: f32[16,WIDTH] = softmax(%2) {axis=1}
  return %3 as "y"
}
"""
X = np.random.default_rng(1).standard_normal((16, 24)).astype(np.float32)
CELLS = (
    *(b"\x00\xff", b"\xff\xfe{", "fast", "", "[", "[1]", "{}", '{"rows": "x"}', "[" * 5000),
    *('{"rows": 1e999}', '{"tile": [[[{}]]]}', f'{{"tile": {10**400}}}', "great", "2"),
    *(0, 0.0, -0.001, 1 << 62, 1e308, float("inf")),
)
COLUMNS = (
    (
        "trials",
        ["workload", "threads", "version", "decisions", "status", "seconds", "baseline", "when"],
    ),
    ("workloads", ["anchor", "group", "extents", "workload"]),
)


def network(width: int = 40) -> Graph:
    rng = np.random.default_rng(0)
    weights = {
        "aa": rng.standard_normal((24, 32)).astype(np.float32),
        "bb": rng.standard_normal((32, width)).astype(np.float32),
    }
    return parse_graph(TEXT.replace("WIDTH", str(width)), weights)


@pytest.fixture
def options(tmp_path: Path) -> ts.Options:
    return ts.Options(cache_dir=tmp_path / "cache", threads=1, jobs=1)


@pytest.fixture
def path(tmp_path: Path, options: ts.Options) -> Path:
    """Records of random candidates for the kernels of `network()`, and for relatives of them."""
    session = Session.of(options)
    rng = random.Random(0)
    path = tmp_path / "cache" / "records.sqlite"
    with Records(path) as records:
        for width in (40, 48):
            fused = driver.optimise(network(width), session)
            for node in fused.nodes:
                found = driver.group_space(node, fused, session)
                if found is None:
                    continue
                workload, group = found
                key = Key.of(workload, session.target.text, 1)
                records.describe({key: group_family(group.body, group.constants)})
                space = group.space()
                for n in range(8):
                    seconds = 0.5 + 0.01 * n
                    records.add(trial(key, space.random(rng), "ok", "k", "", seconds, 1.0))
        assert len(records.trials()) > 20
    return path


def answer(options: ts.Options, width: int = 40) -> np.ndarray:
    return ts.compile(network(width), options=options)(X)


def overwrite(path: Path, rng: random.Random) -> str:
    """Overwrite or cut off some bytes of a file; says which."""
    content = bytearray(path.read_bytes())
    start, count = rng.randrange(len(content)), 1 << rng.randrange(13)
    if rng.random() < 0.1:
        path.write_bytes(content[:start])
        return f"cut at {start}"
    content[start : start + count] = rng.randbytes(min(count, len(content) - start))
    path.write_bytes(content)
    return f"{count} random bytes at {start}"


def edit(path: Path, rng: random.Random) -> str:
    """Change cells of a table of the records; says how."""
    table, columns = rng.choice(COLUMNS)
    column, cell = rng.choice(columns), rng.choice(CELLS)
    where = rng.choice(["1", "substr(workload, 1, 1) < '8'"])
    db = sqlite3.connect(path)
    try:
        with db:
            db.execute(f'UPDATE OR IGNORE {table} SET "{column}" = ? WHERE {where}', (cell,))
    except sqlite3.DatabaseError as e:  # the log of the file that was damaged before is applied
        return f"no edit: {e}"
    finally:
        db.close()
    return f"{table}.{column} = {str(cell)[:30]!r} where {where}"


def test_random_damages(path: Path, options: ts.Options, tmp_path: Path) -> None:
    seed = random.randrange(1 << 32)
    print(f"seed {seed}")
    rng = random.Random(seed)
    expected = {width: answer(options, width) for width in (40, 44)}
    sound = tmp_path / "sound.sqlite"
    shutil.copyfile(path, sound)
    for n in range(200):
        shutil.copyfile(sound, path)
        for damage in rng.choice([(edit,), (overwrite,), (edit, edit), (edit, overwrite)]):
            print(n, damage(path, rng))
        width = rng.choice([40, 44])  # the kernels of 44 have relatives only
        np.testing.assert_allclose(answer(options, width), expected[width], rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ("decisions = CAST(x'00ff' || decisions AS BLOB)", "expected str"),
        ("seconds = 'fast'", "expected float"),
        ("baseline = 0", "times must be positive"),
        ("seconds = -1.0", "expected a number from 0 on"),
    ],
)
def test_bad_rows_are_skipped_with_one_warning(
    path: Path, caplog: pytest.LogCaptureFixture, change: str, says: str
) -> None:
    with sqlite3.connect(path) as db:
        db.execute(f"UPDATE trials SET {change} WHERE seconds < 0.535")
    db.close()
    with Records(path, read_only=True) as records:
        sound = records.trials()
        assert sound and all(t.seconds > 0.535 for t in sound)
        for t in sound:
            best = records.look_up(t.key, records.families()[t.key]).best
            assert best is not None and best.seconds > 0.535
    (warning,) = [r.getMessage() for r in caplog.records if "are skipped" in r.getMessage()]
    assert says in warning and str(path) in warning
    caplog.clear()
    with Records(path) as records:
        records.prune(keep=100)
    with Records(path) as records:
        assert records.trials() == sound
    assert not caplog.records


def test_a_locked_file(path: Path, options: ts.Options, caplog: pytest.LogCaptureFixture) -> None:
    with sqlite3.connect(path, isolation_level=None) as db:
        db.execute("PRAGMA journal_mode=DELETE")
        db.execute("BEGIN EXCLUSIVE")
        caplog.set_level(logging.WARNING)
        answer(options)
        (message,) = [r.getMessage() for r in caplog.records]
        assert "database is locked; compiling goes on without them" in message
        db.execute("ROLLBACK")
    db.close()


def test_a_file_that_SQLite_cannot_share(path: Path, options: ts.Options) -> None:
    """As in a folder where nobody may write."""
    used, plain = (
        ts.compile(network(), options=options.with_(use_records=use)).program.objects.keys()
        for use in (True, False)
    )
    assert used != plain
    shared = path.with_name(path.name + "-shm")
    shared.unlink(missing_ok=True)
    shared.mkdir()
    with Records(path, read_only=True) as records:
        assert records.trials()
    assert driver.compile(network(), options=options).program.objects.keys() == used
    assert (
        used
        != driver.compile(
            network(), options=options.with_(use_records=False)
        ).program.objects.keys()
    )


def test_reading_writes_nothing(path: Path, options: ts.Options, tmp_path: Path) -> None:
    path.write_bytes(b"")  # a process was killed before it had made the tables
    answer(options)
    assert path.read_bytes() == b""
    with pytest.raises(ts.ModelError, match="can't be used"):
        Records(tmp_path / "absent.sqlite", read_only=True)
    assert not (tmp_path / "absent.sqlite").exists()


@pytest.mark.parametrize("place", ["file", "folder"])
def test_records_that_cant_be_written_are_a_wrong_option(tmp_path: Path, place: str) -> None:
    file = tmp_path / "a file" / "records.sqlite"
    if place == "file":
        file.parent.write_text("not a folder")
    else:
        file.mkdir(parents=True)
    with pytest.raises(ts.UsageError, match=r"records\.sqlite' can't be written: "):
        Records(file)


def test_records_without_permission_are_a_wrong_option(path: Path) -> None:
    """SQLite is told to write nothing: permissions don't bind the tests' own user everywhere."""
    with Records(path) as records:
        records._db.execute("PRAGMA query_only=1")
        with pytest.raises(ts.UsageError, match="can't be written: attempt to write a readonly"):
            records.prune()
