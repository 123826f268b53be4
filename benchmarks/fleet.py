"""The pool of devices with up to 1,000 simulated ones that fail: throughput, fairness, lost work.

    python benchmarks/fleet.py                      # 1 to 1,000 devices
    python benchmarks/fleet.py --devices 64 --seconds 120 --faults none

The pool is the real one.  Devices, network and time are simulated: devices crash and return, some
without a word; answers are late or lost; some devices are slow; a part of the network is cut off
for a while.  Each event also takes the dispatching process as long as the pool's own code took
here, and `MESSAGE_SECONDS`; events wait while it is busy.  Building candidates is not simulated.

Efficiency is the work done, relative to what the devices could have done while they were up and
reachable.
"""

from __future__ import annotations

import argparse
import heapq
import random
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace

from tilesmith.runtime.remote.pool import Job, Lease, Pool

MESSAGE_SECONDS = 1.5e-4
"""Seconds of the dispatching process for one request and its answer."""
JOB_SECONDS = 0.3
"""Mean seconds of a job on a device of normal speed."""
LEASE_SECONDS = 5.0
RETURN_SECONDS = 1.0
"""Seconds until a device that was lost, but is up, is reached again."""
AHEAD = 2
"""Jobs of each user that wait, for each device."""


@dataclass(frozen=True)
class Faults:
    """Faults of the simulated fleet.

    up, down: mean seconds between crashes of a device, and until it is back.
    silent: fraction of the crashes that only the end of a lease shows.
    lost: fraction of the answers that get lost.
    delay: mean seconds of a message's way.
    slow: fraction of the devices that take four times as long.
    cut: fraction of the devices that can't be reached during a fifth of the time.
    """

    up: float = 120.0
    down: float = 10.0
    silent: float = 0.3
    lost: float = 0.002
    delay: float = 0.005
    slow: float = 0.1
    cut: float = 0.2


NONE = Faults(up=1e12, silent=0.0, lost=0.0, slow=0.0, cut=0.0)


@dataclass
class Found:
    """What a simulation found.

    devices: number of devices.
    efficiency: work done, relative to the capacity of the devices that were up and reachable.
    fairness: Jain's index of the users' device seconds; 1 if all had the same.
    wasted: fraction of the device seconds whose answers did not count.
    jobs: jobs that ended, that were given up, and that were answered twice.
    busy: fraction of the time in which the dispatching process was busy.
    """

    devices: int
    efficiency: float
    fairness: float
    wasted: float
    jobs: tuple[int, int, int]
    busy: float


class Simulation:
    """A pool, simulated devices and their clock."""

    def __init__(self, devices: int, users: int, seconds: float, faults: Faults, seed: int) -> None:
        self.rng, self.faults, self.seconds = random.Random(seed), faults, seconds
        self.now, self.busy, self.dispatching = 0.0, 0.0, 0.0
        self.cut = 0.4 * seconds, 0.6 * seconds
        self.users = [f"user {i}" for i in range(users)]
        self.pool: Pool[int, tuple[int, float]] = Pool(LEASE_SECONDS, clock=lambda: self.now)
        rng = self.rng
        self.speed = [0.25 if rng.random() < faults.slow else 1.0 for _ in range(devices)]
        self.is_cut = [rng.random() < faults.cut for _ in range(devices)]
        self.up_since: list[float | None] = [0.0] * devices
        self.capacity = self.done = self.spent = self.counted = 0.0
        self.ended: Counter[int] = Counter()
        self.given_up = 0
        self.by_user: Counter[str] = Counter()
        self.events: list[tuple[float, int, str, object]] = []
        self.number = self.made = 0
        for d in range(devices):
            self.pool.join(d, "board")
            self.after(rng.expovariate(1 / faults.up), "crash", d)
        self.after(0.0, "tick", None)

    def after(self, delay: float, what: str, about: object) -> None:
        self.number += 1
        heapq.heappush(self.events, (self.now + delay, self.number, what, about))

    def run(self) -> Found:
        while self.events and self.events[0][0] < self.seconds:
            when, _, what, about = heapq.heappop(self.events)
            # What reaches the dispatching process waits until it is free.
            concerns = what in ("answer", "gone", "back", "tick")
            self.now = max(when, self.now, self.busy if concerns else 0.0)
            start = time.perf_counter()
            getattr(self, what)(about)
            if concerns:
                self.dispatch()
                took = time.perf_counter() - start
                self.busy = self.now + took
                self.dispatching += took
        self.now = self.seconds
        for d in range(len(self.speed)):
            self.was_up(d)
        shares = [self.by_user[u] for u in self.users]
        fairness = sum(shares) ** 2 / (len(shares) * sum(s * s for s in shares))
        return Found(
            len(self.speed),
            self.done / self.capacity,
            fairness,
            1 - self.counted / max(self.spent, 1e-9),
            (len(self.ended), self.given_up, sum(n > 1 for n in self.ended.values())),
            self.dispatching / self.seconds,
        )

    def dispatch(self) -> None:
        """Start what the pool grants, after new jobs and the ends of leases."""
        for user in self.users:
            for _ in range(max(AHEAD * len(self.speed) // len(self.users), 2) - self.pending(user)):
                work = JOB_SECONDS * self.rng.lognormvariate(-0.125, 0.5)
                self.made += 1
                self.pool.submit(Job((self.made, work), "board", user))
        for d in self.pool.expire():
            self.after(RETURN_SECONDS, "back", d)
        self.given_up += len(self.pool.lost)
        self.pool.lost.clear()
        for lease in self.pool.grants():
            self.dispatching += MESSAGE_SECONDS
            self.now += MESSAGE_SECONDS
            self.start(lease)

    def pending(self, user: str) -> int:
        return len(self.pool._queues.get("board", {}).get(user, ()))

    def start(self, lease: Lease[int, tuple[int, float]]) -> None:
        d = lease.device
        if self.unreachable(d):
            return  # nothing is heard of it until the lease ends
        takes = lease.job.work[1] / self.speed[d]
        delay = self.rng.expovariate(1 / self.faults.delay) + self.faults.delay
        if self.rng.random() >= self.faults.lost:
            self.after(takes + delay, "answer", (lease, takes, self.up_since[d]))
        else:
            self.spent += takes

    def unreachable(self, d: int) -> bool:
        begin, end = self.cut
        return self.up_since[d] is None or (self.is_cut[d] and begin < self.now < end)

    def was_up(self, d: int) -> None:
        """Count the time in which a device could have worked."""
        since = self.up_since[d]
        if since is not None:
            begin, end = self.cut
            cut = max(min(self.now, end) - max(since, begin), 0.0) if self.is_cut[d] else 0.0
            self.capacity += (self.now - since - cut) * self.speed[d]

    def answer(self, about: object) -> None:
        lease, takes, since = about  # type: ignore[misc]
        self.spent += takes
        if self.unreachable(lease.device) or self.up_since[lease.device] != since:
            return
        if self.pool.done(lease):
            self.ended[lease.job.work[0]] += 1
            self.done += lease.job.work[1]
            self.counted += takes
            self.by_user[lease.job.user] += takes

    def crash(self, about: object) -> None:
        assert isinstance(about, int)
        self.was_up(about)
        self.up_since[about] = None
        if self.rng.random() >= self.faults.silent:
            self.after(self.faults.delay, "gone", about)
        self.after(self.rng.expovariate(1 / self.faults.down), "repaired", about)

    def repaired(self, about: object) -> None:
        assert isinstance(about, int)
        self.up_since[about] = self.now
        self.after(self.rng.expovariate(1 / self.faults.up), "crash", about)
        self.after(RETURN_SECONDS, "back", about)

    def gone(self, about: object) -> None:
        assert isinstance(about, int)
        self.pool.leave(about)

    def back(self, about: object) -> None:
        assert isinstance(about, int)
        if self.unreachable(about):
            self.after(RETURN_SECONDS, "back", about)
            return
        self.pool.leave(about)  # what it was doing before is lost
        self.pool.join(about, "board")

    def tick(self, about: object) -> None:
        self.after(0.25, "tick", None)


def simulated(devices: int, seconds: float, faults: Faults, users: int = 8, seed: int = 0) -> Found:
    """The result of one simulation."""
    return Simulation(devices, users, seconds, faults, seed).run()


def main(words: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--devices", type=int, nargs="+", default=[1, 4, 16, 64, 256, 1000])
    parser.add_argument("--users", type=int, default=8)
    parser.add_argument("--seconds", type=float, default=60.0, help="Simulated seconds.")
    parser.add_argument("--faults", choices=["none", "some"], nargs="+", default=["none", "some"])
    parser.add_argument("--up", type=float, default=Faults.up)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args(words)
    print("faults devices efficiency fairness  wasted    jobs given up twice busy")
    for kind in arguments.faults:
        faults = NONE if kind == "none" else replace(Faults(), up=arguments.up)
        for n in arguments.devices:
            f = simulated(n, arguments.seconds, faults, arguments.users, arguments.seed)
            ended, given_up, twice = f.jobs
            print(
                f"{kind:6} {n:7} {f.efficiency:10.3f} {f.fairness:8.3f} {f.wasted:7.1%} "
                f"{ended:7} {given_up:8} {twice:5} {f.busy:4.0%}"
            )


if __name__ == "__main__":
    main()
