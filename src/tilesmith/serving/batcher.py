"""Requests of many callers, gathered into calls of an executable.

One thread, the dispatcher, decides which requests share the next call, and when.  Workers make the
calls.  Futures are completed outside the lock, since their callbacks are the callers' code.
"""

from __future__ import annotations

import asyncio
import itertools
import math
import os
import threading
import time
import weakref
from collections import Counter
from collections.abc import Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

from tilesmith.runtime.executable import Executable
from tilesmith.runtime.runner import as_given
from tilesmith.runtime.threads import physical_cores
from tilesmith.support.arguments import checked, shown
from tilesmith.support.errors import (
    DeadlineError,
    ModelError,
    TilesmithError,
    UnavailableError,
    UsageError,
)

from .layout import Accepted, Layout
from .queue import Queue, Request
from .spans import current, record
from .stats import OUTCOMES, SECONDS, STAGES, BatcherStats, Histogram

_LONGEST_DEADLINE = 365 * 24 * 3600
"""Seconds of the longest deadline."""


@dataclass(frozen=True, slots=True)
class _Outcome:
    """What a call gave.

    answers: for each request its answer, or the error of its run.
    seconds: for the stages after `queue`, the time of the call.
    batches: rows of the calls that were made.
    """

    answers: list[Any]
    seconds: Mapping[str, float]
    batches: Sequence[int]


class Batcher:
    """Gathers requests of several threads or coroutines into calls of an executable.

    `batcher(x)` waits for the answer, `await batcher.call(x)` does so in a coroutine, and
    `batcher.submit(x)` returns a `concurrent.futures.Future`.  A request has the executable's
    inputs with any number of rows from 1 to `max_batch` along the batch dimension; its answer has
    the same rows, in memory of its own.

    The answers are those of single calls, up to rounding, if the model computes each row
    independently of the other rows.  The batcher can't check that.

    Requests share a call if their shapes agree in all dimensions but the batch.  With `length`,
    they may differ in one more dimension: shorter inputs are padded, and outputs with that
    dimension are cut.  The model must then give the same results for padded inputs, for instance
    since it reads a mask.

    The arrays of a request must not change until it is answered.  A batcher belongs to the process
    that made it.  Use it as a context manager, or call `close`.
    """

    @checked(UsageError)
    def __init__(
        self,
        exe: Executable,
        max_batch: int | None = None,
        max_wait: float = 0.0,
        *,
        batch: str | None = None,
        length: str | None = None,
        padding: float | Mapping[str, float] = 0,
        mask: str | None = None,
        buckets: Sequence[int] = (),
        queue: int = 1024,
        full: Literal["wait", "refuse"] = "wait",
        deadline: float | None = None,
        workers: int | None = None,
    ) -> None:
        """exe: the executable, with an open batch dimension in all inputs and outputs.
        max_batch: largest number of rows of a call; by default 32, or what the dimension allows.
        max_wait: seconds that a request waits for others while a worker is idle.  With 0, requests
            gather only while all workers are busy.
        batch: name of the batch dimension; by default the first dimension of the first input.
        length: name of the dimension along which inputs are padded; None: no padding.
        padding: the padding's value, or the value for each input by name; others have 0.
        mask: name of an input `[batch, length]` that requests don't have: the batcher gives 1 for
            the elements of requests and 0 for padding.
        buckets: lengths to which requests are padded.  Requests with the same smallest sufficient
            length share calls.  Without buckets, a call is as long as its longest request.
        queue: largest number of requests that wait for a run.
        full: what happens to a request that finds the queue full: it waits for a place, or is
            refused.
        deadline: seconds after submission at which a request expires if its run has not begun;
            None: never.
        workers: number of calls that may run at once; by default, the number of cores divided by
            the executable's threads.

        Raises UsageError for options out of range, and for an executable whose calls can't be
        shared: without an open batch dimension, with states, or with outputs that lack it.
        """
        _check_number("max_batch", max_batch, 1, 1 << 20)
        _check_number("max_wait", max_wait, 0, 3600)
        _check_number("queue", queue, 1, 1 << 30)
        _check_number("workers", workers, 1, 4096)
        _check_deadline(deadline)
        if full not in ("wait", "refuse"):
            raise UsageError(f"Batcher: full: expected 'wait' or 'refuse', found {full!r}")
        self.exe = exe
        self.layout = Layout(exe, max_batch, batch, length, padding, mask, buckets)
        self.max_batch = self.layout.max_rows
        self.workers = workers or max(1, physical_cores() // exe.threads)
        self._refuses, self._deadline = full == "refuse", deadline
        self._queue = Queue(queue, self.max_batch, max_wait)
        self._changed = threading.Condition()
        self._closed, self._running = False, 0
        self._requests: dict[str, int] = dict.fromkeys(OUTCOMES, 0)
        self._batches: Counter[int] = Counter()
        self._waits, self._latencies = Histogram(SECONDS), Histogram(SECONDS)
        self._seconds: dict[str, float] = dict.fromkeys(STAGES, 0.0)
        self._process = os.getpid()
        self._pool = ThreadPoolExecutor(self.workers, "tilesmith-batch")
        # The thread refers to the batcher only while there are requests, so that it ends with a
        # batcher that nobody closes.
        self._dispatcher = threading.Thread(
            target=_dispatch,
            args=(weakref.ref(self), self._changed),
            name="tilesmith-batcher",
            daemon=True,
        )
        weakref.finalize(self, _wake, self._changed).atexit = False
        self._dispatcher.start()

    def __call__(self, *arrays: Any, deadline: float | None = None, **named: Any) -> Any:
        """The model's results for one request: an array, or a tuple for several outputs.

        arrays, named: the inputs in order and by name, as in a call of the executable.
        deadline: as in the constructor, for this request.

        Raises ModelError for a request that does not fit, before it is queued, and if its run
        fails.  Raises DeadlineError, and UnavailableError if the queue refuses it or the batcher is
        closed.
        """
        return self._enter(arrays, named, deadline).future.result()

    def submit(self, *arrays: Any, deadline: float | None = None, **named: Any) -> Future[Any]:
        """Queue a request.  The future has the result or the error of `batcher(...)`.

        With `full="wait"`, returns when the request has a place in the queue.  `future.cancel()`
        removes it from the queue; a run that has begun goes on.

        Raises the errors of a call that are known before the request is queued.
        """
        request = self._enter(arrays, named, deadline)
        request.admitted.wait()
        return request.future

    async def call(self, *arrays: Any, deadline: float | None = None, **named: Any) -> Any:
        """The model's results for one request, for coroutines.  Never blocks the event loop.

        Cancelling the task removes the request from the queue.  Raises the errors of
        `batcher(...)`.
        """
        return await asyncio.wrap_future(self._enter(arrays, named, deadline).future)

    def stats(self) -> BatcherStats:
        """What happened to the requests so far."""
        with self._changed:
            return BatcherStats(
                dict(self._requests),
                len(self._queue),
                self._running,
                dict(sorted(self._batches.items())),
                self._waits.copy(),
                self._latencies.copy(),
                dict(self._seconds),
            )

    @checked(UsageError)
    def close(self, drain: bool = True) -> None:
        """Accept no more requests, and return when all are answered.

        drain: whether requests that wait are still run; else they end with UnavailableError.
        """
        self._check_process()
        with self._changed:
            self._closed = True
            dropped = [] if drain else list(self._queue)
            for request in dropped:
                self._queue.remove(request)
            self._changed.notify()
        self._fail(dropped, "refused", UnavailableError, "the batcher was closed")
        self._dispatcher.join()
        self._pool.shutdown()

    @property
    def is_closed(self) -> bool:
        """Whether requests are refused since `close` was called."""
        return self._closed

    def __enter__(self) -> Batcher:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _enter(
        self, arrays: Sequence[Any], named: Mapping[str, Any], deadline: float | None
    ) -> Request:
        """Queue a request.  Raises the errors of `submit`."""
        self._check_process()
        _check_deadline(deadline)
        accepted = self.layout.accept(arrays, named)
        limit = self._deadline if deadline is None else deadline
        now = time.monotonic()
        expiry = math.inf if limit is None else now + limit
        request = Request(accepted, now, expiry, context=current())
        # A strong reference would be a circle: the request and its arrays would outlive the answer.
        request.future.add_done_callback(partial(self._cancelled, weakref.ref(request)))
        with self._changed:
            if self._closed or (self._refuses and self._queue.is_full):
                self._requests["refused"] += 1
                if self._closed:
                    raise UnavailableError("the batcher is closed: make another one")
                raise UnavailableError(
                    f"expected fewer than {len(self._queue)} waiting requests (queue), found the "
                    "queue full; ask again later, or use full='wait'"
                )
            self._queue.add(request)
            self._changed.notify()
        return request

    def _cancelled(self, waiting: weakref.ref[Request], future: Future[Any]) -> None:
        """Remove a request whose future was cancelled.  Called when the future is done."""
        if not future.cancelled():
            return
        request = waiting()
        with self._changed:
            self._requests["cancelled"] += 1
            if request is not None and self._queue.remove(request):
                self._changed.notify()

    @property
    def _is_idle(self) -> bool:
        return not len(self._queue) and not self._running

    def _next(self) -> tuple[list[Request], list[Request]]:
        """Wait for requests that have expired, or for a batch; both are empty if the batcher is
        idle.
        """
        while not self._is_idle:
            now = time.monotonic()
            late = self._queue.expired(now)
            is_free = self._running < self.workers
            batch = self._queue.take(now, self._closed) if is_free else []
            if late or batch:
                self._running += bool(batch)
                return late, batch
            until = min(self._queue.next_expiry, self._queue.next_due if is_free else math.inf)
            self._changed.wait(None if until == math.inf else max(0.0, until - now))
        return [], []

    def _serve(self) -> None:
        """Start runs until the batcher is idle."""
        while True:
            with self._changed:
                late, batch = self._next()
                if not late and not batch:
                    return
            self._fail(late, "expired", DeadlineError, "the deadline passed before a run began")
            if batch:
                self._start(batch)

    def _start(self, batch: list[Request]) -> None:
        """Hand a batch to a worker, without the requests that were cancelled meanwhile."""
        live = [r for r in batch if r.future.set_running_or_notify_cancel()]
        began = time.monotonic()
        run = self._pool.submit(self._run, [r.accepted for r in live])
        run.add_done_callback(partial(self._finish, live, began))

    def _run(self, requests: list[Accepted]) -> _Outcome:
        if not requests:
            return _Outcome([], dict.fromkeys(STAGES, 0.0), ())
        try:
            return self._call(requests)
        except ModelError as e:
            if len(requests) == 1:
                return _Outcome([e], dict.fromkeys(STAGES, 0.0), (requests[0].rows,))
        # A request of the batch made the run fail.  Runs of their own tell which.
        alone = [self._run([r]) for r in requests]
        return _Outcome(
            [o.answers[0] for o in alone],
            {stage: sum(o.seconds.get(stage, 0.0) for o in alone) for stage in STAGES},
            [o.batches[0] for o in alone],
        )

    def _call(self, requests: list[Accepted]) -> _Outcome:
        times = [time.perf_counter()]
        inputs = self.layout.gather(requests)
        times.append(time.perf_counter())
        results = self.exe.run(inputs)
        times.append(time.perf_counter())
        parts = self.layout.scatter(results, requests)
        none = (None,) * len(self.exe.outputs)
        answers = [as_given(p, none, r.given) for p, r in zip(parts, requests, strict=True)]
        times.append(time.perf_counter())
        spans = (b - a for a, b in itertools.pairwise(times))
        return _Outcome(answers, dict(zip(STAGES[1:], spans)), (sum(r.rows for r in requests),))

    def _finish(self, batch: list[Request], began: float, run: Future[_Outcome]) -> None:
        """Count a run and complete the futures of its requests."""
        error = run.exception()
        answers: list[Any] = [error] * len(batch) if error else run.result().answers
        now = time.monotonic()
        with self._changed:
            self._running -= 1
            for request, answer in zip(batch, answers, strict=True):
                is_error = isinstance(answer, BaseException)
                self._requests["failed" if is_error else "answered"] += 1
                self._waits.add(began - request.arrived)
                self._latencies.add(now - request.arrived)
                self._seconds["queue"] += 0.0 if is_error else began - request.arrived
            if not error:
                self._count(run.result(), answers)
            self._changed.notify()
        for request, answer in zip(batch, answers, strict=True):
            if isinstance(answer, BaseException):
                request.future.set_exception(answer)
            else:
                request.future.set_result(answer)
        record(batch, answers, now, began, None if error else run.result().seconds)

    def _count(self, outcome: _Outcome, answers: list[Any]) -> None:
        self._batches.update(outcome.batches)
        answered = sum(not isinstance(a, BaseException) for a in answers)
        for stage, seconds in outcome.seconds.items():
            self._seconds[stage] += seconds * answered

    def _fail(
        self, requests: list[Request], outcome: str, error: type[TilesmithError], message: str
    ) -> None:
        """End requests that were removed from the queue with an error."""
        failed = [r for r in requests if r.future.set_running_or_notify_cancel()]
        with self._changed:
            self._requests[outcome] += len(failed)
        for request in failed:
            request.future.set_exception(error(message))
        record(failed, [error(message)] * len(failed), time.monotonic())

    def _check_process(self) -> None:
        if self._process != os.getpid():
            raise UsageError(
                f"Batcher: expected the process that made it ({self._process}), found process "
                f"{os.getpid()}; make a batcher in each worker, after the fork"
            )


def _dispatch(batcher: weakref.ref[Batcher], changed: threading.Condition) -> None:
    """Serve a batcher until it is closed and idle, or no longer used."""
    while True:
        used = batcher()
        if used is None:
            return
        used._serve()
        with changed:
            if used._is_idle and used.is_closed:
                return
            is_idle, used = used._is_idle, None
            if is_idle and batcher() is not None:
                changed.wait()


def _wake(changed: threading.Condition) -> None:
    with changed:
        changed.notify_all()


def _check_number(name: str, value: float | None, low: int, high: int) -> None:
    if value is not None and not low <= value <= high:
        raise UsageError(f"Batcher: {name}: expected {low} to {high}, found {value}")


def _check_deadline(deadline: Any) -> None:
    is_number = isinstance(deadline, (int, float)) and not isinstance(deadline, bool)
    if deadline is not None and not (is_number and 0 < deadline <= _LONGEST_DEADLINE):
        raise UsageError(
            f"deadline: expected seconds, more than 0 and at most {_LONGEST_DEADLINE}, or None, "
            f"found {shown(deadline)}"
        )
