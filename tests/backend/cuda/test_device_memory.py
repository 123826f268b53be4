"""What programs need of a device's memory, and limits of it."""

from __future__ import annotations

import pickle
from pathlib import Path

import numpy as np
import pytest
from fakes import Fake

import tilesmith as ts
from common.kept_layers import BYTES, there_and_back
from tilesmith.graph.builder import Builder
from tilesmith.graph.nodes import Graph
from tilesmith.ir.dtypes import f32
from tilesmith.ir.types import TensorType
from tilesmith.ops.activation import Relu
from tilesmith.runtime.cuda import CudaDevice
from tilesmith.runtime.executable import Executable
from tilesmith.support.errors import DeviceError, UsageError


def relu() -> Graph:
    b = Builder("g")
    return b.finish([b.add(Relu(), b.input("x", TensorType(f32, (100,))))])


def needed(exe: Executable) -> int:
    return exe.memory.total


def test_what_is_needed_is_what_is_allocated(fake: Fake, monkeypatch: pytest.MonkeyPatch):
    taken: list[int] = []
    real = CudaDevice.empty

    def empty(self: CudaDevice, size: int):
        taken.append(size)
        return real(self, size)

    monkeypatch.setattr(CudaDevice, "empty", empty)
    exe = ts.compile(relu(), target="cuda")
    assert sum(taken) == needed(exe)
    assert (exe.memory.inputs, exe.memory.outputs) == (400, 400)


def test_a_limit(fake: Fake, tmp_path: Path):
    exe = ts.compile(relu(), target="cuda")
    exe.save(tmp_path / "g.tsm")
    enough = needed(exe)
    again = pickle.loads(pickle.dumps(ts.compile(relu(), target="cuda", memory_limit=enough)))
    assert again.limits.memory == enough
    again(np.zeros(100, np.float32))
    ts.load(tmp_path / "g.tsm", memory_limit=enough)
    fake.calls()
    message = (
        rf"'cuda': expected a model that needs at most {enough - 1} bytes .*\(memory_limit\), "
        rf"found one that needs {enough} bytes \(weights \d+, arena \d+, inputs 400, outputs 400\);"
    )
    with pytest.raises(DeviceError, match=message):
        ts.compile(relu(), target="cuda", memory_limit=enough - 1)
    with pytest.raises(DeviceError, match=message):
        ts.load(tmp_path / "g.tsm", memory_limit=enough - 1)
    assert "cuMemAlloc_v2" not in fake.calls()


def test_limits_that_can_not_be(fake: Fake, tmp_path: Path):
    with pytest.raises(
        UsageError, match=r"memory_limit must be a number of bytes from 1 on, not 0"
    ):
        ts.compile(relu(), target="cuda", memory_limit=0)
    message = "time_limit: expected a target that is a device, found 'native'; leave it out"
    with pytest.raises(UsageError, match=message):
        ts.compile(relu(), time_limit=1.0)
    ts.compile(relu()).save(tmp_path / "g.tsm")
    with pytest.raises(UsageError, match=message):
        ts.load(tmp_path / "g.tsm", time_limit=1.0)


def test_values_are_computed_again_for_the_memory_of_a_device(fake: Fake):
    graph = there_and_back()
    free = needed(ts.compile(graph, target="cuda"))
    with pytest.raises(DeviceError, match=r"at most 64 bytes .*\(memory_limit\)"):
        ts.compile(graph, target="cuda", memory_limit=64)
    bounded = ts.compile(graph, target="cuda", memory_limit=free - BYTES)
    assert bounded.program.metadata["computed_again"] > 0 and needed(bounded) <= free - BYTES
