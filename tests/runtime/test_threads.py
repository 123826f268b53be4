"""The number of threads follows quotas of control groups, cpusets, affinity and cores."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

import pytest

from tilesmith.runtime.threads import thread_count
from tilesmith.support import cgroup

PROCESS, ROOT = "/proc/self/cgroup", "/sys/fs/cgroup"
V2 = {PROCESS: "0::/"}
NESTED = {PROCESS: "0::/pods/web/main"}
V1 = {PROCESS: "4:memory:/\n3:cpu,cpuacct:/\n1:name=systemd:/"}
V1_HOST = {PROCESS: "3:cpuacct,cpu:/system.slice/web.service\n1:name=systemd:/"}
HYBRID = {PROCESS: "3:cpu,cpuacct:/\n0::/user.slice"}


def v2(value: str, group: str = "") -> dict[str, str]:
    return {f"{ROOT}{group}/cpu.max": value}


def v1(quota: str, period: str = "100000", group: str = "") -> dict[str, str]:
    folder = f"{ROOT}/cpu{group}"
    return {f"{folder}/cpu.cfs_quota_us": quota, f"{folder}/cpu.cfs_period_us": period}


EIGHT = range(8)
CASES: dict[str, tuple[Mapping[str, str], Any, int, int]] = {
    # files; allowed CPUs; hardware threads of a core; expected number of threads
    "no files": ({}, EIGHT, 1, 8),
    "v2 without limit": (V2 | v2("max 100000"), EIGHT, 1, 8),
    "v2 whole quota": (V2 | v2("400000 100000"), EIGHT, 1, 4),
    "v2 quota of 7.65": (V2 | v2("765000 100000"), EIGHT, 1, 7),
    "v2 quota of 1.5": (V2 | v2("150000 100000"), EIGHT, 1, 1),
    "v2 quota below one": (V2 | v2("20000 100000"), EIGHT, 1, 1),
    "v2 quota above the cores": (V2 | v2("6400000 100000"), EIGHT, 1, 8),
    "v2 other period": (V2 | v2("150000 50000"), EIGHT, 1, 3),
    "v2 period of zero": (V2 | v2("150000 0"), EIGHT, 1, 8),
    "v2 damaged": (V2 | v2("many"), EIGHT, 1, 8),
    "v2 quota of the group": (NESTED | v2("300000 100000", "/pods/web/main"), EIGHT, 1, 3),
    "v2 quota of a group above": (NESTED | v2("200000 100000", "/pods"), EIGHT, 1, 2),
    "v2 least of several": (
        NESTED | v2("500000 100000", "/pods/web/main") | v2("250000 100000", "/pods/web"),
        EIGHT, 1, 2,
    ),
    "v2 group that the container does not see": (NESTED | v2("300000 100000"), EIGHT, 1, 3),
    "v1 without limit": (V1 | v1("-1"), EIGHT, 1, 8),
    "v1 whole quota": (V1 | v1("200000"), EIGHT, 1, 2),
    "v1 quota of 7.65": (V1 | v1("765000"), EIGHT, 1, 7),
    "v1 quota of a service": (
        V1_HOST | v1("-1") | v1("350000", group="/system.slice/web.service"), EIGHT, 1, 3,
    ),
    "v1 beside an empty v2": (HYBRID | v1("500000"), EIGHT, 1, 5),
    "cpuset of three": (V2 | v2("max 100000"), (1, 4, 6), 1, 3),
    "cpuset below the quota": (V2 | v2("600000 100000"), (0, 1), 1, 2),
    "quota below the cpuset": (V2 | v2("200000 100000"), (0, 1, 2, 3), 1, 2),
    "two hardware threads a core": ({}, EIGHT, 2, 4),
    "one hardware thread of each core": ({}, (0, 2, 4), 2, 3),
    "quota between cores and hardware threads": (V2 | v2("600000 100000"), EIGHT, 2, 4),
}  # fmt: skip


@pytest.mark.skipif(not hasattr(os, "sched_getaffinity"), reason="the system has no affinity")
@pytest.mark.parametrize("case", CASES)
def test_the_number_of_threads(case, monkeypatch):
    files, allowed, siblings, expected = CASES[case]
    topology = {
        f"/sys/devices/system/cpu/cpu{n}/topology/thread_siblings_list": str(n // siblings)
        for n in range(8)
    }
    monkeypatch.setattr(cgroup, "read", lambda path: {**topology, **files}.get(path, ""))
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(allowed))
    for name in ("TILESMITH_NUM_THREADS", "OMP_NUM_THREADS"):
        monkeypatch.delenv(name, raising=False)
    assert thread_count() == expected


def test_variables_and_arguments_come_before_the_quota(monkeypatch):
    monkeypatch.setattr(cgroup, "read", lambda path: dict(V2 | v2("200000 100000")).get(path, ""))
    monkeypatch.setenv("OMP_NUM_THREADS", "5")
    monkeypatch.delenv("TILESMITH_NUM_THREADS", raising=False)
    assert thread_count() == 5
    monkeypatch.setenv("TILESMITH_NUM_THREADS", "6")
    assert thread_count() == 6 and thread_count(7) == 7
