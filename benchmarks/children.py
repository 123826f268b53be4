"""Work in child processes: what ends a child, or lasts too long, is a result like others."""

from __future__ import annotations

import multiprocessing
import os
import resource
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from typing import Any, TypeVar

T = TypeVar("T")
R = TypeVar("R")


@dataclass(frozen=True, slots=True)
class Died:
    """A piece of work that gave no result.

    reason: the status that the process ended with, or the processor time that was not enough.
    """

    reason: str


def each(
    items: Sequence[T], work: Callable[[T], R], seconds: float, memory: int | None = None
) -> Iterator[R | Died]:
    """The result of `work` for each item, in order, all in one child process as long as it lives.

    seconds: the processor time that one item may take, so that a busy machine changes no result;
        an item that only waits has twelve times as long.
    memory: bytes of address space that the child may get besides what this process has.
    """
    fork = multiprocessing.get_context("fork")
    done = 0
    while done < len(items):
        waiting = items[done:]
        here, there = fork.Pipe(duplex=False)
        child = fork.Process(target=_all, args=(waiting, work, there, memory))
        child.start()
        there.close()
        try:
            for _ in waiting:
                done += 1
                try:
                    if _has_result(here, child, seconds):
                        yield here.recv()
                        continue
                    died = Died(f"no result after {seconds:.0f} s")
                except EOFError:
                    child.join()
                    died = Died(f"the process ended with status {child.exitcode}")
                yield died
                break
        finally:
            child.kill()
            child.join()
            here.close()


def _has_result(results: Connection, child: BaseProcess, seconds: float) -> bool:
    """Whether the child says something before its time is spent."""
    start, end = _processor_time(child), time.monotonic() + 12 * seconds
    while not results.poll(min(seconds, 0.5)):
        if time.monotonic() > end or _processor_time(child) - start > seconds:
            return results.poll()
    return True


def _processor_time(process: BaseProcess) -> float:
    """Seconds that a process has computed; 0 if it is gone."""
    try:
        with open(f"/proc/{process.pid}/stat", encoding="utf-8") as f:
            fields = f.read().rpartition(")")[2].split()
    except FileNotFoundError:
        return 0.0
    return sum(map(int, fields[11:13])) / os.sysconf("SC_CLK_TCK")


def _all(
    items: Sequence[Any], work: Callable[[Any], Any], results: Connection, memory: int | None
) -> None:
    if memory is not None:
        with open("/proc/self/statm") as f:
            used = int(f.read().split()[0]) * resource.getpagesize()
        limit = resource.getrlimit(resource.RLIMIT_AS)[1]
        resource.setrlimit(resource.RLIMIT_AS, (used + memory, limit))
    for item in items:
        results.send(work(item))
