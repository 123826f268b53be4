"""Streams: several calls of one model side by side, each on cores of its own.

A model uses many cores at lower efficiency than few: loops are too short, and threads wait for each
other.  If there are several requests at once, it is faster to run them side by side, each on a part
of the cores.  The caller's thread of a stream may use only the stream's cores, and the pool's
workers take the processors of the caller that wakes them.  Each stream has a pool of its own, so
its workers wait for its own next loop and help no other stream.

A stream stays inside one NUMA node if a node is large enough, so its results and intermediate
values are in the node's memory: the system places a page at the node that writes it first.  All
hardware threads of a core belong to the same stream.
"""

from __future__ import annotations

import asyncio
import os
import queue
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Self, TypeAlias

from tilesmith.runtime.executable import Executable
from tilesmith.runtime.native import own_pool
from tilesmith.runtime.threads import cores, physical_cores
from tilesmith.support.arguments import checked
from tilesmith.support.errors import UnavailableError, UsageError

Hint: TypeAlias = Literal["latency", "throughput"]
_PROCESSORS = Path("/sys/devices/system/cpu")


@dataclass(frozen=True, slots=True)
class Core:
    """A core that this process may use.

    node: number of its NUMA node.
    processors: numbers of its hardware threads.
    """

    node: int
    processors: tuple[int, ...]


def usable_cores() -> list[Core]:
    """The cores that this process may use; empty if the system doesn't report them."""
    return [Core(_node(processors[0]), tuple(processors)) for processors in cores()]


def _node(processor: int) -> int:
    """The NUMA node of a processor; 0 if the system doesn't report it."""
    folder = _PROCESSORS / f"cpu{processor}"
    numbers = (p.name.removeprefix("node") for p in folder.glob("node[0-9]*"))
    return min((int(n) for n in numbers if n.isdecimal()), default=0)


def partitions(usable: Sequence[Core], streams: int, threads: int) -> list[frozenset[int]]:
    """The processors of each stream: `threads` cores, of one node if possible.

    Each stream takes the node with the most free cores, so streams spread over the nodes' memory.

    Raises UsageError if there are not enough cores.
    """
    if streams < 1 or threads < 1 or streams * threads > len(usable):
        raise UsageError(
            f"streams: expected at most {len(usable)} cores in all, found {streams} streams of "
            f"{threads} threads; compile with fewer threads, or take fewer streams"
        )
    free: dict[int, list[Core]] = {}
    for core in usable:
        free.setdefault(core.node, []).append(core)
    parts: list[frozenset[int]] = []
    for _ in range(streams):
        taken: list[Core] = []
        while len(taken) < threads:
            node = max(free, key=lambda n: (len(free[n]), -n))
            count = min(threads - len(taken), len(free[node]))
            taken += free[node][:count]
            del free[node][:count]
        parts.append(frozenset(p for core in taken for p in core.processors))
    return parts


class Streams:
    """An executable whose calls run side by side, each on cores of its own.

    `streams(x)` waits for a stream and for the result; `await streams.call(x)` does so in a
    coroutine, and `streams.submit(x)` returns a future.  Use it as a context manager, or call
    `close`.

    exe: the executable.
    parts: the processors of each stream.
    """

    @checked(UsageError)
    def __init__(
        self, exe: Executable, streams: int | None = None, hint: Hint = "throughput"
    ) -> None:
        """exe: an executable.  Its number of threads is the number of cores of a stream.
        streams: number of streams; by default as the hint says.
        hint: "throughput" for as many streams as the cores are enough for, "latency" for one.

        A CPU quota counts as fewer cores.  Raises UsageError if there are not enough cores.
        """
        if hint not in ("latency", "throughput"):
            raise UsageError(f"hint: expected 'latency' or 'throughput', found {hint!r}")
        granted = physical_cores()
        usable = usable_cores()[:granted]
        most = max(granted // exe.threads, 1) if hint == "throughput" else 1
        count = most if streams is None else streams
        if usable:
            self.parts = partitions(usable, count, min(exe.threads, granted))
        else:  # the system doesn't tell: threads run where it puts them
            self.parts = [frozenset[int]()] * count
        self.exe = exe
        self._process = os.getpid()
        waiting: queue.SimpleQueue[frozenset[int]] = queue.SimpleQueue()
        for part in self.parts:
            waiting.put(part)
        self._pool = ThreadPoolExecutor(
            count, "tilesmith-stream", lambda: _stay_on(waiting.get_nowait())
        )

    def submit(self, *arrays: Any, **named: Any) -> Future[Any]:
        """A call as a future.  Arguments, results and errors are those of the executable.

        Raises UnavailableError after `close`, UsageError in a forked child.
        """
        if self._process != os.getpid():
            raise UsageError("streams have threads, which a fork does not: make them after it")
        try:
            return self._pool.submit(self.exe, *arrays, **named)
        except RuntimeError:
            raise UnavailableError("the streams are closed: make others") from None

    def __call__(self, *arrays: Any, **named: Any) -> Any:
        """The result of a call.  Raises as `submit` and the executable do."""
        return self.submit(*arrays, **named).result()

    async def call(self, *arrays: Any, **named: Any) -> Any:
        """The result of a call, for coroutines."""
        return await asyncio.wrap_future(self.submit(*arrays, **named))

    def close(self) -> None:
        """Accept no more calls, and return when all have ended."""
        self._pool.shutdown()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _stay_on(processors: frozenset[int]) -> None:
    """Let this thread run on some processors only, with workers of its own."""
    if processors:
        os.sched_setaffinity(0, processors)
    own_pool()
