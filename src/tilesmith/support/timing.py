"""Compile times of nested, named stages.

    timings = Timings()
    with timings.stage("lower"):
        with timings.stage("simplify"):
            ...
    print(timings.report())

Times of stages with the same name and parent are added up.  Several threads may time at once.  Each
thread has its own stack of open stages; `under` puts a worker's stages below a stage that another
thread opened.  Times of concurrent stages are added too, so a parent that waits for workers may
show less time than its children.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Row:
    """One stage.

    path: names, outermost first.
    seconds: time inside, children included.
    calls: number of times that the stage was entered.
    """

    path: tuple[str, ...]
    seconds: float
    calls: int

    @property
    def name(self) -> str:
        return self.path[-1]

    @property
    def depth(self) -> int:
        return len(self.path) - 1


class Timings:
    """Seconds per stage, gathered while compiling."""

    def __init__(self) -> None:
        self._totals: dict[tuple[str, ...], tuple[float, int]] = {}
        self._lock = threading.Lock()
        self._local = threading.local()

    @contextmanager
    def stage(self, name: str, under: tuple[str, ...] | None = None) -> Iterator[tuple[str, ...]]:
        """Time the body as stage `name`, below the current stage of this thread or below `under`.

        Yields the stage's path, for workers to pass as their `under`.
        """
        before = self.path
        path = (*(before if under is None else under), name)
        # Parents are recorded before their children, so that the report has that order.
        with self._lock:
            self._totals.setdefault(path, (0.0, 0))
        self._local.path = path
        start = time.perf_counter()
        try:
            yield path
        finally:
            spent = time.perf_counter() - start
            self._local.path = before
            self._add(path, spent, 1)

    @property
    def path(self) -> tuple[str, ...]:
        """The current stage of this thread."""
        return getattr(self._local, "path", ())

    def add(self, name: str, seconds: float, under: tuple[str, ...] = ()) -> None:
        """Add `seconds` measured elsewhere (in another process, for instance) to a stage."""
        self._add((*under, name), seconds, 1)

    def _add(self, path: tuple[str, ...], seconds: float, calls: int) -> None:
        with self._lock:
            total, count = self._totals.get(path, (0.0, 0))
            self._totals[path] = (total + seconds, count + calls)

    @property
    def total(self) -> float:
        """Total seconds of all outermost stages."""
        return sum(r.seconds for r in self.rows() if r.depth == 0)

    def rows(self) -> list[Row]:
        """All stages: parents before children, otherwise in the order in which they first began."""
        children: dict[tuple[str, ...], list[tuple[str, ...]]] = {}
        with self._lock:
            totals = dict(self._totals)
        for path in totals:
            # A parent that occurs only in `under` also gets a row.
            for end in range(1, len(path) + 1):
                siblings = children.setdefault(path[: end - 1], [])
                if path[:end] not in siblings:
                    siblings.append(path[:end])

        rows: list[Row] = []

        def visit(path: tuple[str, ...]) -> None:
            for child in children.get(path, ()):
                own = len(rows)
                seconds, calls = totals.get(child, (0.0, 0))
                rows.append(Row(child, seconds, calls))
                visit(child)
                if child not in totals:
                    inner = sum(r.seconds for r in rows[own + 1 :] if len(r.path) == len(child) + 1)
                    rows[own] = Row(child, inner, 0)

        visit(())
        return rows

    def report(self) -> str:
        """A plain table: stage (indented), milliseconds, fraction of the total, number of calls."""
        rows = self.rows()
        total = sum(r.seconds for r in rows if r.depth == 0) or 1e-9
        width = max([len("stage"), *(2 * r.depth + len(r.name) for r in rows)])
        lines = [f"{'stage':<{width}}  {'ms':>10}  {'share':>6}  {'calls':>6}"]
        lines += [
            f"{'  ' * r.depth + r.name:<{width}}  {r.seconds * 1e3:>10.1f}  "
            f"{r.seconds / total:>6.1%}  {r.calls:>6}"
            for r in rows
        ]
        return "\n".join(lines)
