"""Load of many callers at once, to measure a server's latency and throughput."""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import numpy as np

from tilesmith.support.measure import Samples


def load(
    call: Callable[[], object], concurrency: int, seconds: float, rate: float | None, seed: int
) -> tuple[Samples, float]:
    """Latencies of `call`, and the seconds that all calls took together.

    concurrency: number of threads that call.
    seconds: how long calls are started.
    rate: mean number of requests a second, whose arrivals are independent of the answers (a Poisson
        process); None: each thread calls again as soon as it has its answer.  With a rate, a
        latency begins with the arrival, even if all threads are busy then.
    """
    begin = time.perf_counter()
    arrivals, lock = _arrivals(rate, begin, seed), threading.Lock()

    def caller() -> list[float]:
        latencies: list[float] = []
        while True:
            with lock:
                arrival = next(arrivals)
            now = time.perf_counter()
            if max(arrival, now) > begin + seconds and latencies:
                return latencies
            if arrival > now:
                time.sleep(arrival - now)
            start = time.perf_counter() if rate is None else arrival
            call()
            latencies.append(time.perf_counter() - start)

    with ThreadPoolExecutor(concurrency) as threads:
        callers = [threads.submit(caller) for _ in range(concurrency)]
        times = tuple(itertools.chain.from_iterable(c.result() for c in callers))
    return Samples(times, times), time.perf_counter() - begin


def _arrivals(rate: float | None, begin: float, seed: int) -> Iterator[float]:
    """Arrival times of the performance counter; without a rate, all are at the beginning."""
    if rate is None:
        yield from itertools.repeat(begin)
        return
    rng, now = np.random.default_rng(seed), begin
    while True:
        now += rng.exponential(1 / rate)
        yield now
