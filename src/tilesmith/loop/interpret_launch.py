"""Blocks of threads in the interpreter: each thread is a generator that yields at barriers and at
exchanges of values with its neighbours.

The threads of a block run one after the other up to the next barrier, then all continue.  A group
of threads that exchange values continues as soon as all of them have arrived.  An exchange orders
no accesses to memory.

Every access to memory that threads share is recorded.  Two accesses to one element are a race if
one of them writes and they are not ordered.  Accesses are not ordered if they come from different
blocks, or from different threads of a block without a barrier between them.

An asynchronous copy happens when its thread waits for it.  From the beginning of its group until
then, no thread may access the element, not even the thread that copies it.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np

from tilesmith.ir.dtypes import DType
from tilesmith.support.errors import ScheduleError

from .interpret_values import allocate

Thread = tuple[int, int, int]
"""The indices of a thread in its block: x, y, z."""


@dataclass(frozen=True, slots=True)
class Exchange:
    """A thread's state while it waits at a `WaveReduce`.

    site: number of the statement.
    lanes: threads per group.
    value: the thread's own value.
    combine: combines two values.
    """

    site: int
    lanes: int
    value: Any
    combine: Callable[[Any, Any], Any]


Steps = Generator["int | Exchange", Any, None]
"""A running thread: yields the number of a barrier or an exchange, and receives the exchange's
result.
"""

_ENDED = -1
"""State of a thread that has ended, in place of a barrier's number."""

_Access = tuple[int, int, Thread]
"""An access: number of the block, number of barriers that the block had passed, and thread."""

_Group = list[tuple["Watched", Any, Any]]
"""A group of asynchronous copies, each as (buffer, element, value)."""


class Launch:
    """Runs the blocks of one launch, and holds the state of the current block."""

    def __init__(self) -> None:
        self.now: _Access = (-1, 0, (0, 0, 0))
        self._shared: dict[object, Watched] = {}
        self._group: _Group | None = None  # the group that a thread is filling
        self._pending: dict[Thread, list[_Group]] = {}  # the oldest group first

    def begin(self) -> None:
        """Begin a group of asynchronous copies of the current thread."""
        self._group = []

    def commit(self) -> None:
        """End the current thread's group of asynchronous copies."""
        assert self._group is not None
        self._pending.setdefault(self.now[2], []).append(self._group)
        self._group = None

    def wait(self, pending: int) -> None:
        """Complete the current thread's groups of asynchronous copies, except the latest `pending`
        groups.
        """
        groups = self._pending.get(self.now[2], [])
        while len(groups) > pending:
            for buffer, element, value in groups.pop(0):
                buffer.arrived(element, value)

    def delays(self, buffer: Watched, at: Any, value: Any) -> bool:
        """Add a store to the current group, if there is one.  Returns whether there is a group.  If
        there is, the store happens later.
        """
        if self._group is None:
            return False
        self._group.append((buffer, at, value))
        return True

    def watch(self, data: np.ndarray, name: str) -> Watched:
        """Memory that all blocks share."""
        return Watched(self, data, name)

    def shared(self, site: object, dtype: DType, shape: tuple[int, ...], name: str) -> Watched:
        """Memory of the current block, or of one of its warps.  `site` is the allocation with the
        indices of the warp.  The first thread that reaches the allocation creates the memory.
        """
        if site not in self._shared:
            self._shared[site] = Watched(self, allocate(dtype, shape, name), name)
        return self._shared[site]

    def block(self, run: Callable[..., Steps], sizes: Thread) -> None:
        """Run a block of `sizes` threads along x, y and z.

        run: starts the thread of indices x, y and z.  Its generator yields the number of the
            barrier at which it waits, or an exchange of values, and then receives the result of the
            exchange.

        Raises ScheduleError for a data race, or if some threads wait at a barrier or for an
        exchange and others do not.
        """
        number = self.now[0] + 1
        self._shared, self._pending = {}, {}
        threads = [(x, y, z) for z, y, x in product(*map(range, reversed(sizes)))]
        running = {t: run(*t) for t in threads}
        ready: dict[Thread, Any] = dict.fromkeys(threads)
        waiting: dict[Thread, int | Exchange] = {}
        passed = 0
        while ready:
            for thread, value in ready.items():
                self.now = number, passed, thread
                try:
                    waiting[thread] = running[thread].send(value)
                except StopIteration:
                    waiting[thread] = _ENDED
            ready = _exchanged(threads, waiting)
            if not ready:
                self._check_all_wait(waiting)
                ready = {t: None for t, place in waiting.items() if place != _ENDED}
                passed += 1

    @staticmethod
    def _check_all_wait(waiting: dict[Thread, int | Exchange]) -> None:
        """Raises ScheduleError unless all threads wait at the same barrier, or all have ended."""
        lone = next((t for t, place in waiting.items() if isinstance(place, Exchange)), None)
        if lone is not None:
            lanes = waiting[lone].lanes  # type: ignore[union-attr]  # it is an exchange
            raise ScheduleError(
                f"thread {lone} of a block exchanges values with the {lanes} threads of its group, "
                "and others of them do not come there: an exchange must not stand under a "
                "condition that differs between threads, and the threads along x must be a "
                f"multiple of {lanes}"
            )
        first: dict[int | Exchange, Thread] = {}
        for thread, place in waiting.items():
            first.setdefault(place, thread)
        if len(first) > 1:
            a, b = list(first.values())[:2]
            raise ScheduleError(
                f"thread {a} of a block waits at a barrier where thread {b} does not wait: "
                "a barrier must not stand under a condition that differs between threads"
            )


def _exchanged(threads: list[Thread], waiting: dict[Thread, int | Exchange]) -> dict[Thread, Any]:
    """Thread -> the result of its exchange, for the groups whose threads have all arrived."""
    results: dict[Thread, Any] = {}
    for n, thread in enumerate(threads):
        exchange = waiting[thread]
        if not isinstance(exchange, Exchange) or n % exchange.lanes:
            continue
        group = threads[n : n + exchange.lanes]
        waits = [waiting[t] for t in group]
        together = [x for x in waits if isinstance(x, Exchange) and x.site == exchange.site]
        in_row = len({t[1:] for t in group}) == 1
        if len(together) == exchange.lanes and in_row:
            results |= dict.fromkeys(
                group, _combined([x.value for x in together], exchange.combine)
            )
    return results


def _combined(values: list[Any], combine: Callable[[Any, Any], Any]) -> Any:
    while len(values) > 1:
        half = len(values) // 2
        values = [combine(a, b) for a, b in zip(values[:half], values[half:], strict=True)]
    return values[0]


def _elements(index: Any) -> list[int]:
    """The positions of an access, which may be to one element or to a vector."""
    return [index] if isinstance(index, int) else np.ravel(index).tolist()


class Watched:
    """A buffer; the accesses to its elements are recorded."""

    def __init__(self, launch: Launch, data: np.ndarray, name: str) -> None:
        self.launch, self.data, self.name = launch, data, name
        self.dtype, self.size = data.dtype, data.size
        self._written: dict[int, _Access] = {}
        self._read: dict[int, dict[int, tuple[int, Thread, Thread]]] = {}
        """Element -> block -> barriers passed at the last read, and two threads (perhaps the same)
        that read the element since that barrier.
        """
        self._last_read: dict[int, _Access] = {}
        self._arriving: dict[int, Thread] = {}
        """Element with an unfinished asynchronous copy -> the thread that copies."""

    def __getitem__(self, index: Any) -> Any:
        for element in _elements(index):
            self._reads(element)
        return self.data[index]

    def item(self, at: int) -> Any:
        self._reads(at)
        return self.data.item(at)

    def __setitem__(self, index: Any, value: Any) -> None:
        elements = _elements(index)
        for element in elements:
            self._writes(element)
        if self.launch.delays(self, index, value):
            self._arriving |= dict.fromkeys(elements, self.launch.now[2])
        else:
            self.data[index] = value

    def arrived(self, at: Any, value: Any) -> None:
        """Complete an asynchronous copy of `value` to the elements at `at`."""
        for element in _elements(at):
            del self._arriving[element]
            self._writes(element)
        self.data[at] = value

    def _reads(self, element: int) -> None:
        if self._arriving:
            self._check_arrived(element)
        now = self.launch.now
        if (
            self._last_read.get(element) is now
        ):  # the same thread has read or written the element, with no barrier since
            return
        self._last_read[element] = now
        written = self._written.get(element)
        if written is not None:
            self._check(element, written)
        block, passed, thread = now
        reads = self._read.setdefault(element, {})
        before = reads.get(block)
        first = before[1] if before is not None and before[0] == passed else thread
        reads[block] = passed, first, thread

    def _writes(self, element: int) -> None:
        if self._arriving:
            self._check_arrived(element)
        now = self.launch.now
        written = self._written.get(element)
        if written is now:  # the same thread has read or written the element, with no barrier since
            return
        if written is not None:
            self._check(element, written)
        for block, (passed, *threads) in self._read.get(element, {}).items():
            for thread in threads:
                self._check(element, (block, passed, thread))
        self._written[element] = now

    def _check_arrived(self, element: int) -> None:
        copying = self._arriving.get(element)
        if copying is not None:
            raise ScheduleError(
                f"data race: thread {self.launch.now[2]} uses element {element} of '{self.name}', "
                f"which thread {copying} copies asynchronously: expected that it waits, and a "
                "barrier"
            )

    def _check(self, element: int, other: _Access) -> None:
        block, passed, thread = self.launch.now
        if other[0] == block and (other[1] != passed or other[2] == thread):
            return
        if other[0] == block:
            who = f"threads {other[2]} and {thread} of block {block}"
            why = "no barrier stands between"
        else:
            who = f"blocks {other[0]} and {block}"
            why = "nothing orders blocks"
        raise ScheduleError(
            f"data race: {who} both use element {element} of '{self.name}', one of them writes it, "
            f"and {why}"
        )
