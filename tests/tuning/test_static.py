"""Tuning on devices whose agents have no Python: each candidate becomes a static program."""

from __future__ import annotations

import importlib.util
import io
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from doubling import a_task, replies
from onnx import TensorProto, helper, numpy_helper

import tilesmith as ts
from tilesmith.agent.board import build_agent
from tilesmith.agent.settings import DEVICE_FILE, init
from tilesmith.runtime.remote.device import RemoteDevice
from tilesmith.search_space.records import Records
from tilesmith.support.errors import DeviceError
from tilesmith.tuning.devices import DeviceMeasurer
from tilesmith.tuning.jobs import Argument, MeasurePlan, Runnable, save_arrays
from tilesmith.tuning.static import measured_statically

SIZE = 48

pytestmark = pytest.mark.skipif(importlib.util.find_spec("ziglang") is None, reason="needs ziglang")


@contextmanager
def served(folder: Path, target: str, *emulator: str) -> Iterator[str]:
    """An agent in C for a target, run by an emulator; its address."""
    flags = ["-std=gnu11", "-Os", "-static", *(f'-DEMULATOR="{e}"' for e in emulator)]
    build_agent(target, folder / "agent", flags=flags)
    init(folder / "own", plain=True)
    command = [*emulator, str(folder / "agent"), str(folder / "own"), "0"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    port = int(process.stdout.readline().rsplit(":", 1)[1])
    shutil.copyfile(folder / "own" / DEVICE_FILE, folder / f"127.0.0.1_{port}.json")
    try:
        yield f"tcp://127.0.0.1:{port}"
    finally:
        process.kill()
        process.wait()


def test_a_fault_costs_one_candidate(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setenv("TILESMITH_DEVICES", str(tmp_path))
    kinds = ["good again", "wrong", "segfault", "loop", "memory", "unbuildable"]
    with served(tmp_path, "native") as address:
        given: dict[str, Any] = {"run_seconds": 1.0, "build_seconds": 10.0}
        places = (RemoteDevice(address),)
        with DeviceMeasurer("echo_builder", 1, 2, devices=places, **given) as m:
            trials = list(m.measure(a_task(replies()), [{"kind": k} for k in kinds], 0.02))
    found = {str(t.candidate["kind"]): t for t in trials}
    assert found.pop("good again").status in ("ok", "slow")
    assert {k: t.status for k, t in found.items()} == {
        "wrong": "wrong", "segfault": "crash", "loop": "timeout", "memory": "failed",
        "unbuildable": "failed",
    }  # fmt: skip


def product() -> bytes:
    """y = x @ w for square matrices."""
    x, y = (helper.make_tensor_value_info(n, TensorProto.FLOAT, [SIZE, SIZE]) for n in "xy")
    w = np.random.default_rng(0).standard_normal((SIZE, SIZE)).astype(np.float32)
    node = helper.make_node("MatMul", ["x", "w"], ["y"])
    graph = helper.make_graph([node], "g", [x], [y], [numpy_helper.from_array(w, "w")])
    opsets = [helper.make_opsetid("", 17)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=10).SerializeToString()


@pytest.mark.parametrize("target", ["aarch64", "riscv64"])
def test_a_board_with_another_processor_is_tuned(target, tmp_path: Path, monkeypatch) -> None:
    emulator = shutil.which(f"qemu-{target}")
    if emulator is None:
        pytest.skip("needs user-mode qemu")
    monkeypatch.setenv("TILESMITH_DEVICES", str(tmp_path))
    options = ts.Options(cache_dir=tmp_path / "cache", threads=1)
    with served(tmp_path, target, emulator) as address:
        exe = ts.tune(
            product(), devices=address, trials=3, seconds=90, options=options, early_stopping=False
        )
        x = np.random.default_rng(1).standard_normal((SIZE, SIZE)).astype(np.float32)
        np.testing.assert_allclose(exe(x), ts.compile(product())(x), rtol=1e-4, atol=1e-4)
    with Records(tmp_path / "cache" / "records.sqlite") as r:
        trials = r.trials()
    assert trials and {t.status for t in trials} <= {"ok", "slow", "worse", "unsettled"}


@pytest.mark.parametrize("count", [np.nan, np.inf, -1, 0, 1.5, 2])
def test_a_malformed_number_of_turns_is_an_error_of_the_device(monkeypatch, count: float) -> None:
    monkeypatch.setattr("tilesmith.tuning.static.measuring_program", lambda *_: b"")
    result = np.zeros(4, np.float32).tobytes()
    body = result + np.float64([count, 0.1, 0.1]).tobytes() + result
    device: Any = SimpleNamespace(
        address="tcp://board", target=None, upload=lambda _: "",
        link=SimpleNamespace(ask=lambda *_: SimpleNamespace(body=body)),
    )  # fmt: skip
    kernel = Runnable("k", b"", (), (Argument("f32", (4,)),))
    arrays = io.BytesIO()
    save_arrays(arrays, [], [[np.zeros(4, np.float32)]])
    with pytest.raises(DeviceError, match="tcp://board: its answer about a candidate is malformed"):
        measured_statically(device, arrays.getvalue(), kernel, kernel, MeasurePlan(1, (1e-3,)), 1)
