"""Limits of this process's control group on CPUs and memory.  Systems other than Linux have no
limits.
"""

from __future__ import annotations

import os
from collections.abc import Iterator

_ROOT = "/sys/fs/cgroup"


def cpus() -> float | None:
    """Number of CPUs that may be busy at once; None without a limit."""
    quotas = [line.split() for line in _values("", "cpu.max")]
    parts = (_values("cpu", f"cpu.cfs_{n}_us") for n in ("quota", "period"))
    limits = [
        int(quota[0]) / int(quota[1])
        for quota in [*quotas, *zip(*parts, strict=True)]
        if len(quota) == 2 and all(n.isdigit() for n in quota) and int(quota[1])
    ]
    return min(limits, default=None)


def memory_bytes() -> int | None:
    """Bytes of memory that the control group may use; None without a limit."""
    limits = [*_values("", "memory.max"), *_values("memory", "memory.limit_in_bytes")]
    return min((int(n) for n in limits if n.isdigit()), default=None)


def usable_memory() -> int | None:
    """Bytes of memory that this process may use: the smaller of the machine's memory and the
    control group's limit.  None if the system doesn't report them.
    """
    names = ("SC_PHYS_PAGES", "SC_PAGE_SIZE")
    if not hasattr(os, "sysconf") or not set(names) <= set(os.sysconf_names):
        return None
    pages, size = map(os.sysconf, names)
    return min(pages * size, memory_bytes() or pages * size)


def _values(controller: str, file: str) -> Iterator[str]:
    """The contents of `file` for the process's control group and for each group above it.  The
    smallest limit among them applies.

    controller: the controller's name in version 1, where each controller has groups of its own;
        empty for version 2.
    """
    base, group = _place(controller)
    while True:
        yield read(f"{base}{group}/{file}")
        if not group:
            return
        group = group.rsplit("/", 1)[0]


def _place(controller: str) -> tuple[str, str]:
    """The folder of a controller's groups, and the group of this process below it.

    In a container, the group may have the name that it has on the host, while the folder shows only
    the container's part.  Then the group has no files there, and the limits are in the folder
    itself.
    """
    for line in read("/proc/self/cgroup").splitlines():
        _, controllers, group = (*line.split(":", 2), "", "")[:3]
        if controller in controllers.split(",") and line.startswith("0::") == (not controller):
            return os.path.join(_ROOT, controller).rstrip("/"), group.rstrip("/")
    return os.path.join(_ROOT, controller).rstrip("/"), ""


def read(path: str) -> str:
    """Contents of a small file; empty if there is none."""
    try:
        with open(path, encoding="utf-8") as f:
            return f.read().strip()
    except OSError:
        return ""
