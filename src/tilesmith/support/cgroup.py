"""Limits of this process's control group on CPUs and memory.  Systems other than Linux have no
limits.
"""

from __future__ import annotations

import os
from collections.abc import Iterator


def cpus() -> float | None:
    """Number of CPUs that may be busy at once; None without a limit."""
    quotas = [line.split() for line in _values("cpu.max")]
    v1 = [read(f"/sys/fs/cgroup/cpu/cpu.cfs_{n}_us") for n in ("quota", "period")]
    limits = [
        int(quota[0]) / int(quota[1])
        for quota in [*quotas, v1]
        if len(quota) == 2 and all(n.isdigit() for n in quota) and int(quota[1])
    ]
    return min(limits, default=None)


def memory_bytes() -> int | None:
    """Bytes of memory that the control group may use; None without a limit."""
    v1 = read("/sys/fs/cgroup/memory/memory.limit_in_bytes")
    limits = [int(n) for n in [*_values("memory.max"), v1] if n.isdigit()]
    return min(limits, default=None)


def usable_memory() -> int | None:
    """Bytes of memory that this process may use: the smaller of the machine's memory and the
    control group's limit.  None if the system doesn't report them.
    """
    names = ("SC_PHYS_PAGES", "SC_PAGE_SIZE")
    if not hasattr(os, "sysconf") or not set(names) <= set(os.sysconf_names):
        return None
    pages, size = map(os.sysconf, names)
    return min(pages * size, memory_bytes() or pages * size)


def _values(file: str) -> Iterator[str]:
    """The contents of `file` for the process's control group and for each group above.  The least
    limit applies.
    """
    lines = read("/proc/self/cgroup").splitlines()
    group = next((line[3:].rstrip("/") for line in lines if line.startswith("0::")), "")
    while True:
        yield read(f"/sys/fs/cgroup{group}/{file}")
        if not group:
            return
        group = group.rsplit("/", 1)[0]


def read(path: str) -> str:
    """Contents of a small file; empty if there is none."""
    try:
        with open(path, encoding="utf-8") as f:
            return f.read().strip()
    except OSError:
        return ""
