"""The number of threads that a program uses.

The first of these that is given determines the number: an argument, TILESMITH_NUM_THREADS,
OMP_NUM_THREADS.  Otherwise it is the number of physical cores that this process may use (within CPU
affinity and cgroup limits).  A second hardware thread of a core adds nothing to code that keeps its
vector units busy.
"""

from __future__ import annotations

import math
import os

from tilesmith.support import cgroup
from tilesmith.support.arguments import shown
from tilesmith.support.errors import UsageError
from tilesmith.support.options import threads_from_environment


def thread_count(threads: int | None = None) -> int:
    """The number of threads to use; for None, the environment decides.

    Raises UsageError unless the number is from 1 to 4096.
    """
    if threads is None:
        return threads_from_environment(os.environ) or physical_cores()
    if isinstance(threads, bool) or not isinstance(threads, int) or not 1 <= threads <= 4096:
        raise UsageError(f"threads: expected a number from 1 to 4096, found {shown(threads)}")
    return threads


def physical_cores() -> int:
    """Physical cores that this process may use; at least 1.

    A CPU quota is rounded down: with 8 threads and a quota of 7.65, the system would stop all of
    them for a part of each period, and the slowest thread of a loop decides when the loop ends.
    """
    count = len(cores()) or os.cpu_count() or 1
    quota = cgroup.cpus()
    return max(1, count if quota is None else min(count, math.floor(quota)))


def cores() -> list[list[int]]:
    """For each core, the numbers of its processors that this process may use.  Empty if the system
    doesn't report them (macOS, Windows).
    """
    if not hasattr(os, "sched_getaffinity"):
        return []
    by_core: dict[str, list[int]] = {}
    for cpu in sorted(os.sched_getaffinity(0)):
        by_core.setdefault(_siblings(cpu), []).append(cpu)
    return list(by_core.values())


def _siblings(cpu: int) -> str:
    """A key of the core to which the hardware thread `cpu` belongs."""
    return cgroup.read(f"/sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list") or str(
        cpu
    )
