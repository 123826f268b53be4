from __future__ import annotations

import os

import pytest

from tilesmith.support import cgroup

GROUP = "0::/service/job"


def system(monkeypatch: pytest.MonkeyPatch, **files: str) -> None:
    """A system with these files; `__` in a name stands for a slash, `_DOT_` for a dot."""
    found = {"/" + k.replace("__", "/").replace("_DOT_", "."): v for k, v in files.items()}
    monkeypatch.setattr(cgroup, "read", lambda path: found.get(path, ""))


def test_the_least_limit_of_all_groups_above_holds(monkeypatch: pytest.MonkeyPatch) -> None:
    system(
        monkeypatch,
        proc__self__cgroup=GROUP,
        sys__fs__cgroup__service__job__memory_DOT_max="max",
        sys__fs__cgroup__service__memory_DOT_max="3000000",
        sys__fs__cgroup__service__job__cpu_DOT_max="150000 100000",
        sys__fs__cgroup__service__cpu_DOT_max="max 100000",
        sys__fs__cgroup__cpu_DOT_max="400000 100000",
    )
    assert cgroup.memory_bytes() == cgroup.usable_memory() == 3000000
    assert cgroup.cpus() == 1.5


def test_version_1(monkeypatch: pytest.MonkeyPatch) -> None:
    system(
        monkeypatch,
        sys__fs__cgroup__memory__memory_DOT_limit_in_bytes="5000000",
        sys__fs__cgroup__cpu__cpu_DOT_cfs_quota_us="200000",
        sys__fs__cgroup__cpu__cpu_DOT_cfs_period_us="100000",
    )
    assert cgroup.memory_bytes() == 5000000
    assert cgroup.cpus() == 2.0


def test_no_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    system(monkeypatch, sys__fs__cgroup__cpu__cpu_DOT_cfs_quota_us="-1")
    assert cgroup.memory_bytes() is None and cgroup.cpus() is None
    assert cgroup.usable_memory() == os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
