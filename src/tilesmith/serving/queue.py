"""Requests that wait, in the order of their arrival.

A queue is not safe for threads: `Batcher` calls it under its lock.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Hashable, Iterator
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any

from .layout import Accepted


@dataclass(slots=True, eq=False, weakref_slot=True)
class Request:
    """A request that waits for a run.

    accepted: its arrays.
    arrived: time of its submission, of the monotonic clock in seconds.
    expires: time after which no run may begin; infinite without a deadline.
    future: its answer.
    admitted: set when the request has a place in the queue, or has ended.
    context: OpenTelemetry's context of its caller; None without OpenTelemetry.
    """

    accepted: Accepted
    arrived: float
    expires: float = math.inf
    future: Future[Any] = field(default_factory=Future)
    admitted: threading.Event = field(default_factory=threading.Event)
    context: Any = None


class Queue:
    """Requests with a place, by the keys under which they may share a call, and those that wait for
    a place.

    places: largest number of requests with a place.
    max_rows: rows of a call.
    max_wait: seconds that a request waits for others.
    """

    def __init__(self, places: int, max_rows: int, max_wait: float) -> None:
        self._places = places
        self._max_rows, self._max_wait = max_rows, max_wait
        self._groups: dict[Hashable, dict[Request, None]] = {}  # ordered sets
        self._rows: dict[Hashable, int] = {}
        self._outside: dict[Request, None] = {}
        self._count = 0
        self._expiry = math.inf

    def __len__(self) -> int:
        return self._count + len(self._outside)

    def __iter__(self) -> Iterator[Request]:
        for group in self._groups.values():
            yield from group
        yield from self._outside

    @property
    def is_full(self) -> bool:
        return self._count >= self._places

    def add(self, request: Request) -> None:
        """Give a request a place, or let it wait for one behind all others."""
        self._expiry = min(self._expiry, request.expires)
        if self.is_full or self._outside:
            self._outside[request] = None
            return
        self._place(request)

    def remove(self, request: Request) -> bool:
        """Remove a request.  Returns whether it was in the queue."""
        if request in self._outside:
            del self._outside[request]
        elif request in self._groups.get(request.accepted.key, ()):
            self._drop(request)
            self._admit()
        else:
            return False
        request.admitted.set()
        return True

    def expired(self, now: float) -> list[Request]:
        """Remove and return the requests whose deadlines have passed."""
        if now < self._expiry:
            return []
        late = [r for r in self if r.expires <= now]
        for request in late:
            self.remove(request)
        self._expiry = min((r.expires for r in self), default=math.inf)
        return late

    def take(self, now: float, at_once: bool) -> list[Request]:
        """Remove and return the requests of the next call; none if all groups wait for more.

        Among the groups that are due, the one whose first request is the oldest comes first.
        Requests of a group are taken in the order of their arrival.

        at_once: whether no group waits for more requests.
        """
        due = [k for k in self._groups if at_once or now >= self._due(k)]
        if not due:
            return []
        key = min(due, key=lambda k: next(iter(self._groups[k])).arrived)
        taken: list[Request] = []
        rows = 0
        for request in self._groups[key]:
            rows += request.accepted.rows
            if rows > self._max_rows:
                break
            taken.append(request)
        for request in taken:
            self._drop(request)
        self._admit()
        return taken

    @property
    def next_due(self) -> float:
        """When a group is due at the latest; infinite for an empty queue."""
        return min(map(self._due, self._groups), default=math.inf)

    @property
    def next_expiry(self) -> float:
        """A time before which no deadline passes; infinite if there is none."""
        return self._expiry

    def _due(self, key: Hashable) -> float:
        if self._rows[key] >= self._max_rows:
            return -math.inf
        return next(iter(self._groups[key])).arrived + self._max_wait

    def _place(self, request: Request) -> None:
        key = request.accepted.key
        self._groups.setdefault(key, {})[request] = None
        self._rows[key] = self._rows.get(key, 0) + request.accepted.rows
        self._count += 1
        request.admitted.set()

    def _drop(self, request: Request) -> None:
        key = request.accepted.key
        group = self._groups[key]
        del group[request]
        self._rows[key] -= request.accepted.rows
        self._count -= 1
        if not group:
            del self._groups[key], self._rows[key]

    def _admit(self) -> None:
        """Give free places to requests that wait for one."""
        while self._outside and not self.is_full:
            request = next(iter(self._outside))
            del self._outside[request]
            self._place(request)
