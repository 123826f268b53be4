"""A pool of devices: who gets which device next.

The pool holds no connections and no threads.  It is told what happens (devices come and go, jobs
begin and end) and says which jobs to start where.  So the same code schedules real devices and,
with a clock of its own, thousands of simulated ones.

- A job goes to a device of its kind.  A free device takes the next job of the user who has had the
  least time so far, so users share devices equally while they have work.
- A job is leased: if its device is silent for longer, the device counts as lost and the job goes to
  another one.  An answer after that is ignored.
- A device that is lost may join again.  A job that `attempts` devices lost is given up.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Hashable, Iterator
from dataclasses import dataclass
from heapq import heappop, heappush
from typing import Generic, TypeVar

D = TypeVar("D", bound=Hashable)
W = TypeVar("W")


@dataclass(eq=False, slots=True)
class Job(Generic[W]):
    """Work for a device.

    work: the work itself.
    kind: the kind of device that it needs.
    user: whose work it is.
    attempts: devices that took it so far.
    """

    work: W
    kind: str
    user: str = ""
    attempts: int = 0


@dataclass(eq=False, slots=True)
class Lease(Generic[D, W]):
    """A job on a device, until a time.

    device: the device.
    job: the job.
    start, end: when it began, and when it expires.
    charged: the seconds that its user was charged in advance.
    is_over: whether it ended in some way.
    """

    device: D
    job: Job[W]
    start: float
    end: float
    charged: float = 0.0
    is_over: bool = False


class Pool(Generic[D, W]):
    """The devices that are there, the jobs that wait, and the leases.

    lease_seconds: the longest time of a job on a device.
    attempts: number of devices that may lose a job before the job is given up.
    lost: jobs that were given up.
    """

    def __init__(
        self, lease_seconds: float, attempts: int = 3, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.lease_seconds, self.attempts = lease_seconds, attempts
        self.lost: list[Job[W]] = []
        self._clock = clock
        self._kinds: dict[D, str] = {}
        self._idle: dict[str, deque[D]] = {}
        self._queues: dict[str, dict[str, deque[Job[W]]]] = {}  # by kind and user
        self._leases: dict[D, Lease[D, W]] = {}
        self._ends: list[tuple[float, int, Lease[D, W]]] = []
        self._count = 0
        self._used: dict[str, float] = {}
        self._floor = 0.0
        self._typical = lease_seconds / 10  # assumed seconds of a job

    @property
    def devices(self) -> int:
        """The number of devices that are there."""
        return len(self._kinds)

    @property
    def waiting(self) -> int:
        """The number of jobs that wait for a device."""
        return sum(len(waiting) for users in self._queues.values() for waiting in users.values())

    @property
    def running(self) -> int:
        """The number of jobs on devices."""
        return len(self._leases)

    def used(self, user: str) -> float:
        """The seconds of devices that a user has had, plus the credit of latecomers."""
        return self._used.get(user, 0.0)

    def join(self, device: D, kind: str) -> None:
        """A device is there, for the first time or again."""
        if device not in self._kinds:
            self._kinds[device] = kind
            self._idle.setdefault(kind, deque()).append(device)

    def leave(self, device: D) -> None:
        """A device is gone.  Its job waits again, before the others of its user."""
        kind = self._kinds.pop(device, None)
        if kind is None:
            return
        lease = self._leases.pop(device, None)
        if lease is None:
            self._idle[kind].remove(device)
            return
        self._charge(lease)
        self._again(lease.job)

    def submit(self, job: Job[W]) -> None:
        """A job waits for a device."""
        waiting = self._queues.setdefault(job.kind, {}).setdefault(job.user, deque())
        if not waiting:  # a new or returning user gets no credit for the time before
            self._used[job.user] = max(self._used.get(job.user, 0.0), self._floor)
        waiting.append(job)

    def grants(self) -> Iterator[Lease[D, W]]:
        """The jobs to start now, each with its device."""
        now = self._clock()
        for kind, idle in self._idle.items():
            users = self._queues.get(kind, {})
            while idle and users:
                user = min(users, key=self.used)
                job = users[user].popleft()
                self._floor = max(self._floor, self._used[user])
                if not users[user]:
                    del users[user]
                job.attempts += 1
                end = now + self.lease_seconds
                lease = Lease(idle.popleft(), job, now, end, self._typical)
                self._used[user] += self._typical  # corrected when the job ends
                self._leases[lease.device] = lease
                self._count += 1
                heappush(self._ends, (lease.end, self._count, lease))
                yield lease

    def done(self, lease: Lease[D, W]) -> bool:
        """A job has ended.  Returns whether its answer counts: not if its lease had expired."""
        if lease.is_over or self._leases.get(lease.device) is not lease:
            return False
        del self._leases[lease.device]
        self._charge(lease)
        self._idle[self._kinds[lease.device]].append(lease.device)
        return True

    def clear(self) -> None:
        """Forget the jobs that wait, and those that were given up."""
        self._queues.clear()
        self.lost.clear()

    def expire(self) -> list[D]:
        """End the leases whose time is over.  Returns their devices, which count as lost."""
        now, silent = self._clock(), []
        while self._ends and (self._ends[0][0] <= now or self._ends[0][2].is_over):
            _, _, lease = heappop(self._ends)
            if not lease.is_over:
                silent.append(lease.device)
                self.leave(lease.device)
        return silent

    def _charge(self, lease: Lease[D, W]) -> None:
        lease.is_over = True
        taken = self._clock() - lease.start
        self._used[lease.job.user] += taken - lease.charged
        self._typical += (taken - self._typical) / 16

    def _again(self, job: Job[W]) -> None:
        if job.attempts >= self.attempts:
            self.lost.append(job)
            return
        self._queues.setdefault(job.kind, {}).setdefault(job.user, deque()).appendleft(job)
