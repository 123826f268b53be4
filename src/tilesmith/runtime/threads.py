"""How many threads a program uses.

In descending priority: an argument, TILESMITH_NUM_THREADS, OMP_NUM_THREADS, the number of physical
cores that this process may use (CPU affinity and cgroup limits considered).  A second hardware
thread of a core adds nothing to code that keeps its vector units busy.
"""

from __future__ import annotations

import math
import os

from tilesmith.support.errors import UsageError
from tilesmith.support.options import threads_from_environment


def thread_count(threads: int | None = None) -> int:
    """The number of threads to use; None: as the environment says.

    Raises UsageError unless numbers are positive integers.
    """
    if threads is None:
        return threads_from_environment(os.environ) or physical_cores()
    if isinstance(threads, bool) or not isinstance(threads, int) or threads < 1:
        raise UsageError(f"threads: expected a positive integer, found {threads!r}")
    return threads


def physical_cores() -> int:
    """Physical cores that this process may use; at least 1."""
    found = len(cores()) or os.cpu_count() or 1
    quota = _quota()
    return max(1, found if quota is None else min(found, math.ceil(quota)))


def cores() -> list[list[int]]:
    """The processors that this process may use, by number, core by core; empty where the system
    doesn't say (macOS, Windows).
    """
    if not hasattr(os, "sched_getaffinity"):
        return []
    found: dict[str, list[int]] = {}
    for cpu in sorted(os.sched_getaffinity(0)):
        found.setdefault(_siblings(cpu), []).append(cpu)
    return list(found.values())


def _siblings(cpu: int) -> str:
    """A name for the core of which `cpu` is a hardware thread."""
    return _read(f"/sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list") or str(cpu)


def _quota() -> float | None:
    """CPUs that the control group grants; None without a limit."""
    limits = []
    group = _own_group()
    while True:  # a limit anywhere up the tree holds
        v2 = _read(f"/sys/fs/cgroup{group}/cpu.max").split()
        if len(v2) == 2 and v2[0].isdigit() and int(v2[1]):
            limits.append(int(v2[0]) / int(v2[1]))
        if group in ("", "/"):
            break
        group = group.rsplit("/", 1)[0]
    v1, period = (_read(f"/sys/fs/cgroup/cpu/cpu.cfs_{n}_us") for n in ("quota", "period"))
    if v1.isdigit() and period.isdigit() and int(period):
        limits.append(int(v1) / int(period))
    return min(limits, default=None)


def _own_group() -> str:
    for line in _read("/proc/self/cgroup").splitlines():
        if line.startswith("0::"):
            return line[3:].rstrip("/")
    return ""


def _read(path: str) -> str:
    """Contents of a small file; empty if there is none."""
    try:
        with open(path, encoding="utf-8") as f:
            return f.read().strip()
    except OSError:
        return ""
