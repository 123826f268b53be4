"""Measured trials, kept in an SQLite file.

A trial says how long one candidate of a workload took on a target with a number of threads, and how
long the analytic schedule took at the same moment.  Or it says why the candidate failed.  Each
trial is one committed insertion into a write-ahead log.  So a killed process loses only the trial
in flight, and several processes may write at once.  A candidate that is measured again replaces its
trial.

The family of each workload is in a table of its own.  Files from before families get that table
when they are opened; their trials are still used for their own workloads.  `look_up` finds in one
query what is known of a workload and of its relatives.
"""

from __future__ import annotations

import json
import math
import sqlite3
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any, Literal, TypeAlias, get_args

from tilesmith.support.errors import ModelError

from .family import Family, digest
from .space import Candidate, candidate_key, candidate_of
from .version import schedule_version

MARGIN = 0.02
"""A trial is used only if it is faster than the analytic schedule by this share; less is noise."""

Status: TypeAlias = Literal[
    "ok", "slow", "wrong", "crash", "timeout", "memory", "failed", "worse", "unsettled", "lost"
]
"""How a trial ended.

- `ok`: measured.
- `slow`: measurement ended early, since it was clearly slower.
- `wrong`: another result than the reference.
- `crash`, `timeout`, `memory`, `failed`: the candidate did not get as far as being measured.
- `worse`: fast by itself, but the model as a whole was slower with it.
- `unsettled`: fast by itself.  The model was slower with it and others, and there was no time to
  find the cause.  It is not used before another run has settled it.
- `lost`: the machines that were to measure it went away.  This says nothing about the candidate.
"""

SOUND: frozenset[Status] = frozenset(("ok", "slow", "worse", "unsettled"))
"""The statuses of candidates with the right result."""


@dataclass(frozen=True, slots=True)
class Key:
    """What a trial is about.  Trials of other versions are kept until pruned.  They are never used,
    but tuning measures the best of them first.

    workload: hash of its text.
    target: hash of `Target.text`.
    threads: number of threads.
    version: of the schedules (see `choices.version`).
    """

    workload: str
    target: str
    threads: int
    version: int = field(default_factory=schedule_version)

    @property
    def is_current(self) -> bool:
        """True if this process makes the schedules that were measured."""
        return self.version == schedule_version()

    @staticmethod
    def of(workload: str, target: str, threads: int) -> Key:
        """The key of a workload's text on a target's text."""
        return Key(digest(workload), digest(target), threads)


@dataclass(frozen=True, slots=True)
class Trial:
    """One measured candidate.

    key: what it is about.
    decisions: the candidate as text (see `candidate_key`).
    status: how it ended.
    seconds: its time.
    baseline: time of the analytic schedule in seconds, measured in turns with it.
    cause: why it failed, for people.
    label: the workload in words, for people.
    when: seconds since 1970.
    """

    key: Key
    decisions: str
    status: Status
    seconds: float
    baseline: float
    cause: str = ""
    label: str = ""
    when: float = 0.0

    @property
    def candidate(self) -> Candidate:
        return candidate_of(self.decisions)

    @property
    def ratio(self) -> float:
        """Its time relative to the analytic schedule's; infinite for a failure."""
        known = self.status in ("ok", "unsettled")
        return self.seconds / self.baseline if known else float("inf")

    def to_json(self) -> str:
        """One line."""
        return json.dumps({**asdict(self.key), **{k: getattr(self, k) for k in _OWN}})

    @staticmethod
    def from_json(line: str) -> Trial:
        """Raises ModelError for anything that `to_json` does not write."""
        try:
            row = json.loads(line)
            key = Key(*(_typed(row[n], t) for n, t in _KEY.items()))  # type: ignore[arg-type]
            own = {n: _typed(row[n], t) for n, t in _OWN.items()}
            if own["status"] not in get_args(Status) or not isinstance(
                json.loads(str(own["decisions"])), dict
            ):
                raise ValueError("bad status or decisions")
            found = Trial(key, **own)  # type: ignore[arg-type]  # just checked
            least = min(found.seconds, found.baseline)
            if found.status in ("ok", "unsettled") and not least > 0:
                raise ValueError("times must be positive")
            return found
        except (ValueError, KeyError, TypeError, RecursionError) as e:
            raise ModelError(f"this is no tuning record: {line[:80]!r} ({e})") from e


@dataclass(frozen=True, slots=True)
class Known:
    """What the records know about a workload.

    best: its own fastest trial that beats the analytic schedule.
    is_tuned: whether it has any trial.
    relatives: the best trials of workloads of its family on other extents or in other groups,
        nearest first.
    """

    best: Trial | None = None
    is_tuned: bool = False
    relatives: tuple[Trial, ...] = ()


_KEY = {"workload": str, "target": str, "threads": int, "version": int}
_OWN = {f.name: {"seconds": float, "baseline": float, "when": float}.get(f.name, str)
        for f in fields(Trial) if f.name != "key"}  # fmt: skip
_COLUMNS = (*_KEY, *_OWN)
_FAMILY = '"anchor": "'
"""A mark of a family's JSON line that a trial's line cannot contain, since quotes are escaped
there.
"""
_NAMES = ", ".join(f't."{n}"' for n in _COLUMNS)
_OF_KEY = " AND ".join(f"t.{n} = ?" for n in _KEY)
_FASTER = f"t.seconds <= {1 - MARGIN} * t.baseline"
_LOOK_UP = f"""
SELECT {_NAMES}, '' AS "group", '' AS extents,
       min(CASE WHEN t.status IN ('ok', ?) AND {_FASTER} THEN t.seconds / t.baseline ELSE 9e9 END)
FROM trials t WHERE {_OF_KEY} AND t.status <> 'lost'
UNION ALL
SELECT {_NAMES}, w."group", w.extents, min(t.seconds / t.baseline)
FROM workloads w JOIN trials t USING ({", ".join(_KEY)})
WHERE w.anchor = ? AND w.workload <> ? AND w.target = ? AND w.threads = ? AND w.version = ?
  AND t.status = 'ok' AND {_FASTER} GROUP BY w.workload
"""
"""One row about the workload itself (NULLs when nothing is known), then the best trial of each
relative; sqlite takes the other columns from the row that has the minimum."""


def _typed(value: object, wanted: type) -> object:
    if wanted is float and isinstance(value, int):
        return float(value)
    if not isinstance(value, wanted) or isinstance(value, bool):
        raise TypeError(f"expected {wanted.__name__}, found {value!r}")
    if isinstance(value, (int, float)) and not 0 <= value < 1 << 63:  # nor is it NaN
        raise ValueError(f"expected a number from 0 on, found {value!r}")
    return value


class Records:
    """The trials in a file, which is made at the first write.  Use as a context manager, in one
    thread.

    Raises ModelError if the file is something else or damaged.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        types = {str: "TEXT", int: "INTEGER", float: "REAL"}
        columns = ", ".join(f'"{n}" {types[t]} NOT NULL' for n, t in {**_KEY, **_OWN}.items())
        with self._readable():
            self._db = sqlite3.connect(path, timeout=30, isolation_level=None)
            self._db.execute("PRAGMA journal_mode=WAL")
            self._db.execute("PRAGMA synchronous=NORMAL")
            self._db.execute(
                f"CREATE TABLE IF NOT EXISTS trials ({columns}, "
                f"PRIMARY KEY ({', '.join((*_KEY, 'decisions'))}))"
            )
            self._db.execute(
                "CREATE TABLE IF NOT EXISTS workloads (workload TEXT NOT NULL, target TEXT NOT "
                "NULL, threads INTEGER NOT NULL, version INTEGER NOT NULL, anchor TEXT NOT NULL, "
                '"group" TEXT NOT NULL, extents TEXT NOT NULL, '
                "PRIMARY KEY (anchor, target, threads, version, workload)) WITHOUT ROWID"
            )

    @contextmanager
    def _readable(self) -> Iterator[None]:
        """Raises ModelError for a file that SQLite can't read."""
        try:
            yield
        except sqlite3.DatabaseError as e:
            raise ModelError(f"{str(self.path)!r} holds no tuning records: {e}") from e

    @contextmanager
    def _writing(self) -> Iterator[sqlite3.Connection]:
        """One transaction: all of it happens or nothing."""
        with self._readable():
            self._db.execute("BEGIN IMMEDIATE")
            with self._db:
                yield self._db

    def _query(self, text: str, values: Sequence[object] = ()) -> list[tuple[Any, ...]]:
        with self._readable():
            return self._db.execute(text, values).fetchall()

    def __enter__(self) -> Records:
        return self

    def __exit__(self, *_: object) -> None:
        self._db.close()

    def add(self, *trials: Trial) -> None:
        """Store trials, all or none.  They replace earlier ones of the same candidates."""
        marks = ", ".join("?" * len(_COLUMNS))
        rows = [
            (
                *(getattr(t.key, n) for n in _KEY),
                *(getattr(t, n) for n in _OWN if n != "when"),
                t.when or time.time(),
            )
            for t in trials
        ]
        with self._writing() as db:
            db.executemany(f"INSERT OR REPLACE INTO trials VALUES ({marks})", rows)

    def trials(self, key: Key | None = None) -> list[Trial]:
        """The trials of a key, or all, oldest first."""
        where, values = _where(key)
        rows = self._query(f'SELECT {_NAMES} FROM trials t {where} ORDER BY t."when"', values)
        return [Trial(Key(*row[: len(_KEY)]), *row[len(_KEY) :]) for row in rows]

    def best(self, key: Key) -> Trial | None:
        """The fastest trial, if it is faster than the analytic schedule."""
        settled = (t for t in self.trials(key) if t.status != "unsettled")
        found = min(settled, key=lambda t: t.ratio, default=None)
        return found if found is not None and found.ratio <= 1 - MARGIN else None

    def earlier(self, key: Key) -> list[Trial]:
        """The trials of other versions of the schedules that beat their analytic schedule, fastest
        first, each candidate once.
        """
        rows = self._query(
            f"SELECT {_NAMES} FROM trials t WHERE t.workload = ? AND t.target = ? "
            f"AND t.threads = ? AND t.version <> ? AND t.status = 'ok' AND {_FASTER}",
            tuple(getattr(key, n) for n in _KEY),
        )
        found = (Trial(Key(*row[: len(_KEY)]), *row[len(_KEY) :]) for row in rows)
        once: dict[str, Trial] = {}
        for t in sorted(found, key=lambda t: t.ratio):
            once.setdefault(t.decisions, t)
        return list(once.values())

    def describe(self, family_of: Mapping[Key, Family]) -> None:
        """Store the families of workloads."""
        rows = [
            (*(getattr(k, n) for n in _KEY), f.anchor, f.group, " ".join(map(str, f.extents)))
            for k, f in family_of.items()
        ]
        with self._writing() as db:
            db.executemany("INSERT OR REPLACE INTO workloads VALUES (?,?,?,?,?,?,?)", rows)

    def families(self) -> dict[Key, Family]:
        """The families of all workloads that have been described."""
        names = ", ".join(_KEY)
        rows = self._query(f'SELECT {names}, anchor, "group", extents FROM workloads')
        return {Key(*r[: len(_KEY)]): _family(*r[len(_KEY) :]) for r in rows}

    def look_up(self, key: Key, family: Family, unsettled: bool = False) -> Known:
        """What is known of a workload, and of its nearest relatives.

        unsettled: whether its own trials that are not settled count.
        """
        own = [getattr(key, n) for n in _KEY]
        also = "unsettled" if unsettled else "ok"
        rows = self._query(_LOOK_UP, (also, *own, family.anchor, *own))
        at = len(_COLUMNS)
        near: list[tuple[float, Trial]] = []
        mine: Trial | None = None
        for row in rows:
            if row[0] is None:
                continue
            found = Trial(Key(*row[: len(_KEY)]), *row[len(_KEY) : at])
            if found.key == key:
                mine = found
                continue
            distance = family.distance(_family(family.anchor, *row[at : at + 2]))
            if distance < math.inf:
                near.append((distance, found))
        near.sort(key=lambda n: (n[0], n[1].ratio, n[1].key.workload))
        is_better = mine is not None and mine.ratio <= 1 - MARGIN and mine.status in ("ok", also)
        return Known(mine if is_better else None, mine is not None, tuple(t for _, t in near))

    def prune(self, keep: int = 1) -> int:
        """Remove trials of other versions, failures, and all but the `keep` fastest of each key.
        Returns how many.
        """
        by_key: dict[Key, list[Trial]] = {}
        for t in self.trials():
            by_key.setdefault(t.key, []).append(t)
        gone: list[Trial] = []
        for key, trials in by_key.items():
            good = [t for t in trials if t.ratio < math.inf and key.is_current]
            kept = sorted(good, key=lambda t: t.ratio)[:keep]
            gone += [t for t in trials if t not in kept]
        with self._writing() as db:
            for t in gone:
                where, values = _where(t.key)
                db.execute(f"DELETE FROM trials {where} AND decisions = ?", (*values, t.decisions))
            db.execute(
                "DELETE FROM workloads AS w WHERE NOT EXISTS (SELECT 1 FROM trials t WHERE "
                + " AND ".join(f"t.{n} = w.{n}" for n in _KEY)
                + ")"
            )
        return len(gone)


def _family(anchor: str, group: str, extents: str) -> Family:
    return Family(anchor, group, tuple(map(int, extents.split())))


def _where(key: Key | None) -> tuple[str, tuple[object, ...]]:
    if key is None:
        return "", ()
    return "WHERE " + " AND ".join(f"{n} = ?" for n in _KEY), tuple(getattr(key, n) for n in _KEY)


def json_lines(records: Records) -> Iterator[str]:
    """The whole contents of a file: families of workloads first, then trials."""
    for key, family in records.families().items():
        yield json.dumps({**asdict(key), **asdict(family)})
    yield from (t.to_json() for t in records.trials())


def read_lines(lines: Iterable[str]) -> Iterator[Trial]:
    """The trials of JSON lines; blank ones and families are skipped.  Raises ModelError."""
    return (Trial.from_json(line) for line in lines if line.strip() and _FAMILY not in line)


def read_families(lines: Iterable[str]) -> dict[Key, Family]:
    """The families of JSON lines.  Raises ModelError."""
    found: dict[Key, Family] = {}
    for line in lines:
        if _FAMILY not in line:
            continue
        try:
            row = json.loads(line)
            key = Key(*(_typed(row[n], t) for n, t in _KEY.items()))  # type: ignore[arg-type]
            anchor, group = (str(_typed(row[n], str)) for n in ("anchor", "group"))
            extents = tuple(int(str(_typed(n, int))) for n in row["extents"])
            if min(extents, default=2) < 2:
                raise ValueError("bad extents")
            found[key] = Family(anchor, group, extents)
        except (ValueError, KeyError, TypeError, RecursionError) as e:
            raise ModelError(f"this is no tuning record: {line[:80]!r} ({e})") from e
    return found


def trial(key: Key, candidate: Candidate, status: Status, label: str, cause: str = "",
          seconds: float = 0.0, baseline: float = 0.0) -> Trial:  # fmt: skip
    """A trial of a candidate, now."""
    decisions = candidate_key(candidate)
    return Trial(key, decisions, status, seconds, baseline, cause, label, time.time())
