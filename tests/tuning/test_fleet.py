"""A fleet: a Ray cluster of two nodes on this machine.  One cluster serves all tests, in order."""

from __future__ import annotations

import os
import socket
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from doubling import EXPECTED, a_task, replies
from square_products import gemm

import tilesmith as ts
from tilesmith.codegen.targets import host
from tilesmith.search_space.records import Records
from tilesmith.support.errors import UsageError
from tilesmith.tuning.fleet import ATTEMPTS, RayMeasurer
from tilesmith.tuning.options import TuneOptions


class Fleet:
    """Two nodes, until the second is removed.  `client`: the address for Ray's clients."""

    def __init__(self, cluster: Any, client: str) -> None:
        self.cluster = cluster
        self.client = client
        self.second = cluster.add_node(num_cpus=1, object_store_memory=80 << 20)

    def remove_second(self) -> None:
        self.cluster.remove_node(self.second, allow_graceful=False)


@pytest.fixture(scope="module")
def fleet() -> Iterator[Fleet]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RAY_USAGE_STATS_ENABLED", "0")
        patch.setenv("GRPC_ENABLE_FORK_SUPPORT", "0")  # its handlers crash forks now and then
        here = [str(Path(__file__).parent), os.environ.get("PYTHONPATH", "")]
        patch.setenv(
            "PYTHONPATH", os.pathsep.join(filter(None, here))
        )  # the nodes find our modules
        for name in ("ray", "grpc"):
            pytest.importorskip(name, reason="Ray and its client (extra `fleet`) are not installed")
        port = free_port()
        cluster = pytest.importorskip("ray.cluster_utils").Cluster(
            initialize_head=True,
            head_node_args={
                "num_cpus": 1,
                "object_store_memory": 80 << 20,
                "include_dashboard": False,
                "ray_client_server_port": port,
            },
        )
        yield Fleet(cluster, f"ray://127.0.0.1:{port}")
        cluster.shutdown()


@pytest.fixture(scope="module")
def inside(fleet: Fleet) -> Iterator[Fleet]:
    """The fleet, with this process a part of it: that starts faster than a client."""
    ray = pytest.importorskip("ray")
    ray.init(fleet.cluster.address, log_to_driver=False, logging_level="ERROR")
    yield fleet
    ray.shutdown()


def free_port() -> int:
    """One that Ray's own processes don't take: they have those below 20000."""
    for port in range(20100, 21000):
        with socket.socket() as s:
            if s.connect_ex(("127.0.0.1", port)):
                return port
    raise AssertionError("no free port")


def measurer(**changed: Any) -> RayMeasurer:
    given: dict[str, Any] = {"run_seconds": 10.0, "build_seconds": 10.0} | changed
    return RayMeasurer(None, "echo_builder", 1, given.pop("machine", host().text), **given)


def test_a_template_is_tuned(fleet: Fleet, tmp_path: Path) -> None:
    options = ts.Options(cache_dir=tmp_path, threads=1)
    f = ts.tune_template(gemm, 32, trials=6, seconds=60, options=options, workers=fleet.client)
    a, b = np.eye(32, dtype=np.float32), np.ones((32, 32), np.float32)
    c = np.zeros((32, 32), np.float32)
    f(a, b, c)
    np.testing.assert_allclose(c, b, rtol=1e-5)
    with Records(tmp_path / "records.sqlite") as r:
        trials = r.trials()
    assert trials and {t.status for t in trials} <= {"ok", "slow"}


def test_a_server_that_does_not_start_is_asked_again(
    fleet: Fleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = pytest.importorskip("ray.util.client.worker").Worker
    begin, asked = client._server_init, []

    def fails_once(self: Any, *arguments: Any) -> None:
        asked.append(self)
        if len(asked) == 1:
            raise ConnectionAbortedError("the server is gone")
        begin(self, *arguments)

    monkeypatch.setattr(client, "_server_init", fails_once)
    with RayMeasurer(fleet.client, "echo_builder", 1, host().text) as m:
        assert m.jobs == 2
    assert len(asked) >= 2
    monkeypatch.setattr(client, "_server_init", broken)
    with pytest.raises(UsageError, match="no Ray cluster at ray://"):
        RayMeasurer(fleet.client, "echo_builder", 1, host().text).__enter__()


def broken(self: Any, *arguments: Any) -> None:
    raise ConnectionAbortedError("the server is gone")


def test_a_fault_costs_one_candidate(inside: Fleet) -> None:
    kernels = replies()
    kinds = [k for k in kernels if k != "good"]
    with measurer() as m:
        trials = list(m.measure(a_task(kernels), [{"kind": k} for k in kinds], 0.02))
        assert m.jobs == 2
    found = {str(t.candidate["kind"]): t for t in trials}
    assert len(trials) == len(found) == len(kinds)
    assert found.pop("good again").status in ("ok", "slow")
    assert {k: t.status for k, t in found.items()} == EXPECTED
    assert "SIGSEGV" in found["segfault"].cause
    assert "while building" in found["dies"].cause


def test_only_machines_of_the_kind_measure(inside: Fleet) -> None:
    task = a_task(replies())
    with measurer(machine="another machine") as m, pytest.raises(UsageError) as error:
        list(m.measure(task, [{"kind": "good again"}], 0.02))
    assert "no node of the fleet" in str(error.value)
    assert f"{host().cpu}, " in str(error.value)


def test_losing_a_node_loses_nothing_else(inside: Fleet, caplog: pytest.LogCaptureFixture) -> None:
    order = ["good again", "wrong", "loop", *["good again", "wrong"] * 2]
    found: list[str] = []

    def statuses(m: RayMeasurer, kinds: list[str]) -> Iterator[str]:
        for t in m.measure(a_task(replies()), [{"kind": k} for k in kinds], 0.02):
            yield t.status.replace("slow", "ok")

    end = time.monotonic() + 60
    with measurer() as m:
        while sum(n.about is not None for n in m._nodes.values()) < 2 and time.monotonic() < end:
            assert list(statuses(m, ["good again"])) == ["ok"]
        for status in statuses(m, order):
            if not found:
                inside.remove_second()
            found.append(status)
        assert sorted(found) == sorted(EXPECTED.get(k, "ok") for k in order)
        # A node that nothing was sent to since goes unnoticed, and the other one may do all.
        while "a node of the fleet went away" not in caplog.text and time.monotonic() < end:
            assert list(statuses(m, ["good again"] * 4)) == ["ok"] * 4
        assert list(statuses(m, ["good again"])) == ["ok"]
    assert "a node of the fleet went away" in caplog.text


def test_a_candidate_is_lost_after_some_attempts(inside: Fleet) -> None:
    with measurer(runner="treacherous_runner") as m:
        measured = m.measure(a_task(replies()), [{"kind": "good again"}, {"kind": "wrong"}], 0.02)
        first = next(measured)
        assert first.status == "lost" and f"{ATTEMPTS} nodes went away" in first.cause
        with pytest.raises(UsageError, match="no node of the fleet is left"):
            next(measured)


def test_bad_arguments(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UsageError, match="workers must be 'ray' or 'ray://host:port', not 'all'"):
        TuneOptions(workers="all")
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(UsageError, match=r"pip install 'tilesmith\[fleet\]'"):
        measurer().__enter__()
