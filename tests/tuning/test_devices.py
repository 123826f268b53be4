"""Devices measure as this machine does, and one that goes away costs no trial."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from doubling import EXPECTED, a_task, replies
from onnx import TensorProto, helper, numpy_helper

import tilesmith as ts
from tilesmith.agent.server import Agent
from tilesmith.agent.settings import DEVICE_FILE, Secrets, init
from tilesmith.cli import execute
from tilesmith.runtime.remote.device import RemoteDevice, connected
from tilesmith.runtime.remote.link import LostError
from tilesmith.search_space.records import Records
from tilesmith.support.errors import UnavailableError, UsageError
from tilesmith.tuning import devices
from tilesmith.tuning.devices import DeviceMeasurer, devices_of
from tilesmith.tuning.options import TuneOptions

SIZE = 64


class Fleet:
    """Agents of this process, without TLS, whose keys are where they are looked for."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        init(folder / "secrets", plain=True)
        self.secrets = Secrets.load(folder / "secrets")
        self.agents: list[Agent] = []

    def start(self, port: int = 0) -> str:
        """Start an agent; returns its address."""
        objects = self.folder / f"objects{len(self.agents)}"
        agent = Agent(self.secrets, objects, port=port, plain=True)
        agent.__enter__()
        self.agents.append(agent)
        port = agent.place[1]
        key = (self.folder / "secrets" / DEVICE_FILE).read_text()
        (self.folder / f"127.0.0.1_{port}.json").write_text(key)
        return f"tcp://127.0.0.1:{port}"


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    folder = tmp_path_factory.mktemp("fleet")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TILESMITH_DEVICES", str(folder))
        made = Fleet(folder)
        yield made
        for agent in made.agents:
            agent.end()


@pytest.fixture(scope="module")
def address(fleet: Fleet) -> str:
    return fleet.start()


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """y = x @ w for square matrices."""
    x, y = (helper.make_tensor_value_info(n, TensorProto.FLOAT, [SIZE, SIZE]) for n in "xy")
    w = np.random.default_rng(0).standard_normal((SIZE, SIZE)).astype(np.float32)
    node = helper.make_node("MatMul", ["x", "w"], ["y"])
    graph = helper.make_graph([node], "g", [x], [y], [numpy_helper.from_array(w, "w")])
    opsets = [helper.make_opsetid("", 17)]
    path = tmp_path_factory.mktemp("model") / "product.onnx"
    made = helper.make_model(graph, opset_imports=opsets, ir_version=10)
    path.write_bytes(made.SerializeToString())
    return path


def measurer(*addresses: str, **changed: Any) -> DeviceMeasurer:
    given: dict[str, Any] = {"run_seconds": 10.0, "build_seconds": 30.0} | changed
    places = tuple(connected(a) for a in addresses)
    return DeviceMeasurer("echo_builder", 1, 2, devices=places, **given)


def test_a_fault_costs_one_candidate(address: str) -> None:
    kernels = replies()
    kinds = [k for k in kernels if k not in ("good", "gorges", "sleeps")]
    with measurer(address) as m:
        trials = list(m.measure(a_task(kernels), [{"kind": k} for k in kinds], 0.02))
    statuses = {str(t.candidate["kind"]): t for t in trials}
    assert len(trials) == len(statuses) == len(kinds)
    assert statuses.pop("good again").status in ("ok", "slow")
    assert {k: t.status for k, t in statuses.items()} == {k: EXPECTED[k] for k in statuses}
    assert "SIGSEGV" in statuses["segfault"].cause


def test_a_device_that_goes_away_and_comes_back_loses_nothing(fleet: Fleet) -> None:
    kernels, order = replies(), ["good again", "wrong"] * 4
    first, second = fleet.start(), fleet.start()
    gone = fleet.agents[-1]
    statuses: list[str] = []
    with measurer(first, second) as m:
        for t in m.measure(a_task(kernels), [{"kind": k} for k in order], 0.02):
            if not statuses:
                gone.end()
            statuses.append(t.status.replace("slow", "ok"))
        assert sorted(statuses) == sorted(EXPECTED.get(k, "ok") for k in order)
        fleet.agents[-2].end()  # the other one goes, too; the first one comes back
        fleet.start(port=gone.place[1])
        again = list(m.measure(a_task(kernels), [{"kind": "wrong"}], 0.02))
        assert [t.status for t in again] == ["wrong"]


def test_a_device_without_room_costs_no_candidate(fleet: Fleet, monkeypatch) -> None:
    address = fleet.start()
    upload, failures = RemoteDevice.upload, [UnavailableError("the disk is full")]

    def once_full(device: RemoteDevice, content: bytes) -> str:
        if failures:
            raise failures.pop()
        return upload(device, content)

    monkeypatch.setattr(RemoteDevice, "upload", once_full)
    monkeypatch.setattr(devices, "PING_SECONDS", 0.1)
    with measurer(address) as m:
        found = list(m.measure(a_task(replies()), [{"kind": "wrong"}], 0.02))
    assert [t.status for t in found] == ["wrong"] and not failures


def test_a_device_whose_lease_expired_is_lost_once(fleet: Fleet, monkeypatch) -> None:
    address = fleet.start()
    measured, silent = devices._measured, [1]
    lost: list[str] = []

    def first_silent(device: RemoteDevice, *rest: Any) -> Any:
        if silent:
            silent.pop()
            m._places.lease_seconds = 60.0
            time.sleep(1.5)
            raise LostError("it was silent")
        return measured(device, *rest)

    class Counted(DeviceMeasurer):
        def _lose(self, device: RemoteDevice) -> None:
            lost.append(device.address)
            super()._lose(device)

    monkeypatch.setattr(devices, "_measured", first_silent)
    monkeypatch.setattr(devices, "PING_SECONDS", 0.1)
    given: dict[str, Any] = {"run_seconds": 10.0, "build_seconds": 30.0}
    with Counted("echo_builder", 1, 2, devices=(connected(address),), **given) as m:
        m._places.lease_seconds = 0.5
        found = list(m.measure(a_task(replies()), [{"kind": "wrong"}, {"kind": "wrong"}], 0.02))
    assert [t.status for t in found] == ["wrong", "wrong"] and lost == [address]


def test_without_a_device_tuning_ends_with_an_error(fleet: Fleet, monkeypatch) -> None:
    monkeypatch.setattr(devices, "AWAY_SECONDS", 0.5)
    monkeypatch.setattr(devices, "PING_SECONDS", 0.1)
    only = fleet.start()
    with measurer(only) as m:
        fleet.agents[-1].end()
        with pytest.raises(UsageError, match="no device has answered"):
            list(m.measure(a_task(replies()), [{"kind": "wrong"}], 0.02))


def test_a_model_is_tuned_on_a_device(address: str, model: Path, tmp_path: Path) -> None:
    options = ts.Options(cache_dir=tmp_path, threads=1)
    exe = ts.tune(
        model, devices=address, trials=4, seconds=60, options=options, early_stopping=False
    )
    assert exe.runner.device.address == address
    x = np.random.default_rng(1).standard_normal((SIZE, SIZE)).astype(np.float32)
    np.testing.assert_allclose(exe(x), ts.compile(model)(x), rtol=1e-4, atol=1e-4)
    with Records(tmp_path / "records.sqlite") as r:
        trials = r.trials()
    assert trials and {t.status for t in trials} <= {"ok", "slow", "worse", "unsettled"}
    assert any("MEASURE done" in line for line in connected(address).logs())


def test_the_verbs_measure_and_check_on_a_device(address: str, model: Path, capsys) -> None:
    ran = connected(address).counters()["runs"]
    words = [str(model), "--device", address, "--json"]
    assert execute(["bench", *words, "--seconds", "0.2"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["runs"] > 3 and told["median_ms"] > 0
    assert execute(["check", *words]) == 0
    assert json.loads(capsys.readouterr().out)["passed"]
    assert connected(address).counters()["runs"] > ran
    assert execute(["bench", *words, "--target", "x86-64-v3"]) == 1
    assert "the device is the target" in capsys.readouterr().err


def test_devices_of_a_kind_measure(address: str, monkeypatch) -> None:
    assert devices_of(address, 1) == (connected(address),)
    with pytest.raises(UsageError, match="with 5000 cores"):
        devices_of(address, 5000)
    for value, message in (("board", "expected an address"), ("tcp://board", "ssh -L")):
        with pytest.raises(UsageError, match=message):
            TuneOptions(devices=value)
    with pytest.raises(UsageError, match="give one of them"):
        TuneOptions(devices=address, workers="ray")
