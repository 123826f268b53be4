"""Measured trials, kept in an SQLite file.

A trial belongs to one candidate of a workload on a target with a number of threads.  It holds the
candidate's time and the time of the analytic schedule at the same moment, or else the reason why
the candidate failed.  Each trial is one committed insertion into a write-ahead log.  So a killed
process loses only the trial in flight, and several processes may write at once.  A new measurement
of a candidate replaces its trial.

A second table holds the family of each workload.  Files that predate families get this table when
they are opened; their trials are still used for their own workloads.  `look_up` reads the trials of
a workload and of its relatives (the other workloads of its family) in one query.

A file is only data: disks fail, and anybody may edit it.  So each row is checked when it is read. A
row that `add` would not have stored is skipped, and the first such row is reported.
"""

from __future__ import annotations

import json
import math
import sqlite3
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field, fields
from itertools import islice
from pathlib import Path
from typing import Any, Literal, TypeAlias, get_args

from tilesmith.support.errors import ModelError, UsageError
from tilesmith.support.folders import make_private
from tilesmith.support.logs import logger

from .family import Family, digest
from .space import Candidate, candidate_key, candidate_of
from .version import schedule_version

_log = logger("records")

MARGIN = 0.02
"""Least relative gain over the analytic schedule for which a trial is used.  A smaller gain is
noise.
"""

PATIENCE = 0.5
"""Seconds for which a reader waits until another process unlocks the file."""

Status: TypeAlias = Literal[
    "ok", "slow", "wrong", "crash", "timeout", "memory", "failed", "worse", "unsettled", "lost"
]
"""The outcome of a trial.

- `ok`: measured.
- `slow`: the measurement was ended early, since the candidate was clearly slower.
- `wrong`: the candidate's result differs from the reference.
- `crash`, `timeout`, `memory`, `failed`: the candidate could not be measured.
- `worse`: fast by itself, but the whole model was slower with it.
- `unsettled`: fast by itself, but in doubt for one of two reasons.  Either the model was slower
  with this candidate and others, and there was no time to find the cause.  Or this short
  measurement gave a better ratio than the schedule that won the longer measurements.  The trial is
  not used before another run has settled it.
- `lost`: the machines that were to measure it disconnected.  The candidate itself may be good.
"""

SOUND: frozenset[Status] = frozenset(("ok", "slow", "worse", "unsettled"))
"""The statuses of candidates with the right result."""


@dataclass(frozen=True, slots=True)
class Key:
    """The subject of a trial.  Trials of other versions of the schedules are kept until `prune`
    removes them.  They are never used, but tuning measures the best of them first.

    workload: hash of its text.
    target: hash of `Target.text`.
    threads: number of threads.
    version: version of the schedules (see `search_space.version`).
    """

    workload: str
    target: str
    threads: int
    version: int = field(default_factory=schedule_version)

    @property
    def is_current(self) -> bool:
        """Whether the trial was measured with this process's version of the schedules."""
        return self.version == schedule_version()

    @staticmethod
    def of(workload: str, target: str, threads: int) -> Key:
        """The key of a workload's text on a target's text."""
        return Key(digest(workload), digest(target), threads)

    @staticmethod
    def of_row(row: Sequence[object]) -> Key:
        """The key in the first values of a row.  Raises ValueError or TypeError."""
        return Key(*(_typed(v, t) for v, t in zip(row, _KEY.values(), strict=False)))  # type: ignore[arg-type]


@dataclass(frozen=True, slots=True)
class Trial:
    """One measured candidate.

    key: the subject of the trial.
    decisions: the candidate as text (see `candidate_key`).
    status: the outcome.
    seconds: the candidate's time.
    baseline: time of the analytic schedule in seconds, measured alternately with the candidate's.
    cause: why the candidate failed, for people.
    label: the workload in words, for people.
    when: time of the measurement, in seconds since 1970.
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
        """The candidate's time divided by the time of the analytic schedule; infinite for a
        failure.
        """
        known = self.status in ("ok", "unsettled")
        return self.seconds / self.baseline if known else float("inf")

    def to_json(self) -> str:
        """The trial as one line of JSON."""
        return json.dumps({**asdict(self.key), **{k: getattr(self, k) for k in _OWN}})

    @staticmethod
    def from_json(line: str) -> Trial:
        """The trial in a line of `to_json`.  Raises ModelError for any other text."""
        try:
            row = json.loads(line)
            return Trial.of_row([row[n] for n in _COLUMNS])
        except (ValueError, KeyError, TypeError, RecursionError) as e:
            raise ModelError(f"this is no tuning record: {line[:80]!r} ({e})") from e

    @staticmethod
    def of_row(row: Sequence[object]) -> Trial:
        """The trial whose fields are the values of `row`, in the order of `_COLUMNS`.

        Raises ValueError or TypeError for values that no measurement can have.
        """
        values = [_typed(v, t) for v, t in zip(row, _TYPES.values(), strict=True)]
        trial = Trial(Key(*values[: len(_KEY)]), *values[len(_KEY) :])  # type: ignore[arg-type]
        if trial.status not in get_args(Status):
            raise ValueError(f"unknown status {trial.status!r}")
        if trial.status in ("ok", "unsettled") and not min(trial.seconds, trial.baseline) > 0:
            raise ValueError("times must be positive")
        candidate_of(trial.decisions)
        return trial


@dataclass(frozen=True, slots=True)
class Known:
    """The records about a workload and its relatives.

    best: the workload's own fastest trial that beats the analytic schedule; None without one.
    is_tuned: whether the workload has any trial.
    relatives: the best trials of its family's other workloads (other extents or other groups),
        nearest first.
    """

    best: Trial | None = None
    is_tuned: bool = False
    relatives: tuple[Trial, ...] = ()


_KEY = {"workload": str, "target": str, "threads": int, "version": int}
_OWN = {f.name: {"seconds": float, "baseline": float, "when": float}.get(f.name, str)
        for f in fields(Trial) if f.name != "key"}  # fmt: skip
_TYPES = {**_KEY, **_OWN}
_COLUMNS = tuple(_TYPES)
_NAMES = ", ".join(f't."{n}"' for n in _COLUMNS)
_OF_KEY = " AND ".join(f"t.{n} = ?" for n in _KEY)
_FASTER = (
    "typeof(t.seconds) = 'real' AND typeof(t.baseline) = 'real' "
    f"AND 0 < t.seconds AND t.seconds <= {1 - MARGIN} * t.baseline"
)
_SQL = {str: "TEXT NOT NULL", int: "INTEGER NOT NULL", float: "REAL NOT NULL"}
_COLUMN_TYPES = ", ".join(f'"{n}" {_SQL[t]}' for n, t in _TYPES.items())
_TABLES = {
    "trials": f"({_COLUMN_TYPES}, PRIMARY KEY ({', '.join(_KEY)}, decisions))",
    "workloads": "(workload TEXT NOT NULL, target TEXT NOT NULL, threads INTEGER NOT NULL, version "
    'INTEGER NOT NULL, anchor TEXT NOT NULL, "group" TEXT NOT NULL, extents TEXT NOT NULL, '
    "PRIMARY KEY (anchor, target, threads, version, workload)) WITHOUT ROWID",
}
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
"""A query that returns one row about the workload itself (NULLs if it has no trial), then one row
for each relative: its best trial.  SQLite takes the columns outside `min` from the row with the
minimum.
"""


def _typed(value: object, wanted: type) -> object:
    if wanted is float and isinstance(value, int):
        return float(value)
    if not isinstance(value, wanted) or isinstance(value, bool):
        raise TypeError(f"expected {wanted.__name__}, found {value!r}")
    if isinstance(value, (int, float)) and not 0 <= value < 1 << 63:  # NaN is excluded too
        raise ValueError(f"expected a number from 0 on, found {value!r}")
    return value


_UNWRITABLE = (sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_READONLY)
"""SQLite's codes for a file that can't be created or written."""


class Records:
    """The trials in a file, which is made at the first write.  Use as a context manager, in one
    thread.

    read_only: the file must exist.  It is not written to, and a table that it lacks counts as
        empty.

    Raises ModelError if the file has another format, is damaged, or stays locked too long;
    UsageError if it can't be created or written.
    """

    def __init__(self, path: Path, *, read_only: bool = False) -> None:
        self.path = path
        self._has_warned = False
        with self._usable(writes=not read_only):
            self._db = _reading(path) if read_only else _writing(path)
        self._db.text_factory = lambda stored: stored.decode(errors="replace")

    @contextmanager
    def _usable(self, writes: bool = False) -> Iterator[None]:
        """Raises ModelError for a file that SQLite can't use, UsageError if it can't be written
        (`writes`).
        """
        try:
            yield
        # UnicodeDecodeError comes from SQLite's messages
        except (sqlite3.Error, OSError, UnicodeDecodeError) as e:
            code = getattr(e, "sqlite_errorcode", 0) & 0xFF
            if writes and (isinstance(e, OSError) or code in _UNWRITABLE):
                reason = e.strerror if isinstance(e, OSError) else e
                raise UsageError(
                    f"the tuning records {str(self.path)!r} can't be written: {reason}; expected a "
                    "file in a folder that may be written to"
                ) from e
            raise ModelError(f"the tuning records in {str(self.path)!r} can't be used: {e}") from e

    @contextmanager
    def _writing(self) -> Iterator[sqlite3.Connection]:
        """A transaction: all its changes are made, or none."""
        with self._usable(writes=True):
            self._db.execute("BEGIN IMMEDIATE")
            with self._db:
                yield self._db

    def _query(self, text: str, values: Sequence[object] = ()) -> list[tuple[Any, ...]]:
        with self._usable():
            return self._db.execute(text, values).fetchall()

    def _sound(self, rows: Iterable[Sequence[object]]) -> Iterator[Trial]:
        """The valid trials in rows of `_COLUMNS`."""
        for row in rows:
            try:
                yield Trial.of_row(row)
            except (ValueError, TypeError) as e:
                if not self._has_warned:
                    self._has_warned = True
                    _log.warning(
                        "rows of the tuning records in %s are skipped, since they are no records "
                        "(%s); `tilesmith records prune` removes them", self.path, e,
                    )  # fmt: skip

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
        """The trials of `key`, or all trials if it is None; oldest first."""
        where, values = _where(key)
        rows = self._query(f'SELECT {_NAMES} FROM trials t {where} ORDER BY t."when"', values)
        return list(self._sound(rows))

    def best(self, key: Key) -> Trial | None:
        """The fastest trial, if it is faster than the analytic schedule."""
        settled = (t for t in self.trials(key) if t.status != "unsettled")
        fastest = min(settled, key=lambda t: t.ratio, default=None)
        return fastest if fastest is not None and fastest.ratio <= 1 - MARGIN else None

    def earlier(self, key: Key) -> list[Trial]:
        """Trials of other versions of the schedules, if they beat the analytic schedule of their
        version.  The fastest comes first, and each candidate occurs once.
        """
        rows = self._query(
            f"SELECT {_NAMES} FROM trials t WHERE t.workload = ? AND t.target = ? "
            f"AND t.threads = ? AND t.version <> ? AND t.status = 'ok' AND {_FASTER}",
            tuple(getattr(key, n) for n in _KEY),
        )
        once: dict[str, Trial] = {}
        for t in sorted(self._sound(rows), key=lambda t: t.ratio):
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
        families: dict[Key, Family] = {}
        for row in rows:
            # Only the search for related workloads needs a family.
            with suppress(ValueError, TypeError):
                families[Key.of_row(row)] = Family.of_row(*row[len(_KEY) :])
        return families

    def look_up(
        self, key: Key, family: Family, unsettled: bool = False, relatives: int = 1
    ) -> Known:
        """The records about a workload and its nearest relatives.

        unsettled: whether the workload's own trials of status `unsettled` count.
        relatives: upper bound on the number of relatives.
        """
        own = [getattr(key, n) for n in _KEY]
        also = "unsettled" if unsettled else "ok"
        rows = self._query(_LOOK_UP, (also, *own, family.anchor, *own))
        width = len(_COLUMNS)
        near: list[tuple[float, float, str, Sequence[object]]] = []
        mine: Sequence[object] | None = None
        for row in rows:
            if row[0] is None:
                continue
            if list(row[: len(_KEY)]) == own:
                mine = row[:width]
                continue
            with suppress(ValueError, TypeError):
                distance = family.distance(Family.of_row(family.anchor, *row[width : width + 2]))
                if distance < math.inf:
                    near.append((distance, row[-1], row[0], row[:width]))
        near.sort(key=lambda n: (n[0], n[1], str(n[2])))
        known = tuple(islice(self._sound(row for *_, row in near), relatives))
        best: Trial | None = None
        if mine is not None:
            # The query returns only the fastest row.  If it is not valid, slower rows may be.
            fastest = next(self._sound([mine]), None) or self.best(key)
            if (
                fastest is not None
                and fastest.status in ("ok", also)
                and fastest.ratio <= 1 - MARGIN
            ):
                best = fastest
        return Known(best, mine is not None, known)

    def prune(self, keep: int = 1) -> int:
        """Keep the `keep` fastest trials of each key of the current version.  Remove all other
        rows: failures, trials of other versions, and invalid rows.  Returns the number of removed
        rows.
        """
        rows = self._query(f"SELECT t.rowid, {_NAMES} FROM trials t")
        by_key: dict[Key, list[tuple[float, int]]] = {}
        for place, *row in rows:
            with suppress(ValueError, TypeError):
                t = Trial.of_row(row)
                if t.ratio < math.inf and t.key.is_current:
                    by_key.setdefault(t.key, []).append((t.ratio, place))
        kept = {place for trials in by_key.values() for _, place in sorted(trials)[:keep]}
        gone = [(row[0],) for row in rows if row[0] not in kept]
        with self._writing() as db:
            db.executemany("DELETE FROM trials WHERE rowid = ?", gone)
            db.execute(
                "DELETE FROM workloads AS w WHERE NOT EXISTS (SELECT 1 FROM trials t WHERE "
                + " AND ".join(f"t.{n} = w.{n}" for n in _KEY)
                + ")"
            )
        return len(gone)


@contextmanager
def _opened(database: str, **options: Any) -> Iterator[sqlite3.Connection]:
    """A new connection; closed if it can't be initialised."""
    db = sqlite3.connect(database, isolation_level=None, **options)
    try:
        yield db
    except BaseException:
        db.close()
        raise


def _writing(path: Path) -> sqlite3.Connection:
    """A connection to a file with all tables."""
    make_private(path.parent)
    with _opened(str(path), timeout=30) as db:
        db.execute("PRAGMA journal_mode=WAL")
        db.execute("PRAGMA synchronous=NORMAL")
        for name, columns in _TABLES.items():
            db.execute(f"CREATE TABLE IF NOT EXISTS {name} {columns}")
        return db


def _reading(path: Path) -> sqlite3.Connection:
    """A read-only connection.  Tables that the file lacks are replaced by empty ones."""
    file = path.absolute().as_uri()

    def opened(mode: str) -> sqlite3.Connection:
        with _opened(f"{file}?{mode}", timeout=PATIENCE, uri=True) as db:
            names = {str(row[0]) for row in db.execute("SELECT name FROM sqlite_master")}
            for name in _TABLES.keys() - names:
                db.execute(f"CREATE TEMP TABLE {name} {_TABLES[name]}")
            return db

    try:
        return opened("mode=ro")
    except sqlite3.OperationalError as e:
        # Readers of a write-ahead log share a file beside the log.  In a folder without write
        # permission SQLite can't make it.  But then no other process writes the records either.
        log = Path(f"{path}-wal")
        is_alone = not log.exists() or not log.stat().st_size
        if e.sqlite_errorcode & 0xFF not in _UNWRITABLE or (not is_alone):
            raise
        return opened("mode=ro&immutable=1")


def _where(key: Key | None) -> tuple[str, tuple[object, ...]]:
    if key is None:
        return "", ()
    return "WHERE " + " AND ".join(f"{n} = ?" for n in _KEY), tuple(getattr(key, n) for n in _KEY)


def trial(key: Key, candidate: Candidate, status: Status, label: str, cause: str = "",
          seconds: float = 0.0, baseline: float = 0.0) -> Trial:  # fmt: skip
    """A trial of a candidate with the current time."""
    decisions = candidate_key(candidate)
    return Trial(key, decisions, status, seconds, baseline, cause, label, time.time())
