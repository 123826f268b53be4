"""The driver's interface, with a library in its place that notes its calls and runs nothing."""

from __future__ import annotations

import gc
from pathlib import Path

import numpy as np
import pytest
from fakes import Fake, forget

import tilesmith as ts
from tilesmith import te
from tilesmith.codegen.cuda import driver
from tilesmith.codegen.targets import target
from tilesmith.graph.builder import Builder
from tilesmith.graph.nodes import Graph
from tilesmith.ir.dtypes import f32, i64
from tilesmith.ir.types import TensorType
from tilesmith.ops.activation import Relu
from tilesmith.ops.gather import Gather
from tilesmith.support.errors import DeviceError, InternalError, ModelError, UsageError


def relu(size: int = 100) -> Graph:
    b = Builder("g")
    return b.finish([b.add(Relu(), b.input("x", TensorType(f32, (size,))))])


X = np.zeros(100, np.float32)


def test_calls_of_a_model(fake: Fake):
    exe = ts.compile(relu(), target="cuda")
    assert exe.program.target.cpu == "sm_80"
    start = fake.calls()
    assert start[0] == "cuInit" and start.count("cuStreamCreate") == 1
    assert start[-2:] == ["cuModuleLoadDataEx", "cuModuleGetFunction"]
    assert start.count("cuMemAlloc_v2") == 5  # weights, arena, input, output, report
    exe(X)
    assert fake.calls() == [
        *["cuMemcpyHtoDAsync_v2", "cuStreamSynchronize"],
        "cuLaunchKernel(1,1,1:256,1,1)",
        "cuLaunchKernel",
        "cuMemcpyDtoHAsync_v2",
        "cuStreamSynchronize",
    ]
    del exe
    gc.collect()
    assert fake.calls() == ["cuMemFree_v2"] * 5


def test_calls_of_an_expression(fake: Fake):
    x = te.placeholder((8,), name="x")
    y = te.compute((8,), lambda i: x[i] + 1.0, "y")
    function = ts.build("auto", [x, y], target="cuda")
    function(np.zeros(8, np.float32), np.ones(8, np.float32))
    assert "cuLaunchKernel" in fake.calls()


@pytest.mark.parametrize(
    ("capability", "name"), [((7, 5), "sm_75"), ((8, 7), "sm_86"), ((9, 0), "sm_90"),
                             ((13, 0), "sm_120")]
)  # fmt: skip
def test_architectures(fake: Fake, capability: tuple[int, int], name: str):
    fake.library.fake_devices(2, *capability)
    found = target("cuda:1")
    assert found.cpu == name and found.device is not None
    assert (found.device.number, found.device.units, found.device.memory_bytes) == (1, 4, 1 << 30)


def test_devices_that_are_not_there(fake: Fake):
    with pytest.raises(DeviceError, match=r"CUDA device number 3, found 1; nvidia-smi"):
        target("cuda:3")
    fake.library.fake_devices(1, 5, 0)
    with pytest.raises(UsageError, match=r"Fake has compute capability 5\.0; expected 7\.5"):
        target("cuda")
    with pytest.raises(UsageError, match=r"unknown target 'cuda-sm_70': expected cuda, cuda:N"):
        target("cuda-sm_70")


@pytest.mark.parametrize(
    ("function", "code", "message"),
    [
        ("cuMemAlloc_v2", 2, r"Fake: expected \d+ bytes in one piece, of 1073741824 in all: as the "
         r"test says \(error 2\); the device has not enough memory"),
        ("cuLaunchKernel", 701, r"can't start 1 blocks of 256 threads.*not enough registers"),
        ("cuStreamSynchronize", 702, r"ran longer than the system allows"),
        ("cuStreamSynchronize", 719, r"a kernel failed, or the device is lost"),
        ("cuStreamSynchronize", 700, r"left its memory; .* start a new one"),
        ("cuMemcpyDtoHAsync_v2", 999, r"its results can't be read: as the test says \(error 999\)"),
        ("cuModuleLoadDataEx", 222, r"the driver is too old.*\nline 1: no good"),
        ("cuDevicePrimaryCtxRetain", 46, r"another process has the device for itself"),
        ("cuStreamCreate", 999, r"Fake: a stream can't be made"),
    ],
)  # fmt: skip
def test_errors(fake: Fake, function: str, code: int, message: str):
    """The process goes on, and the model runs once the driver does."""
    fake.fail(function, code)
    with pytest.raises(DeviceError, match=message):
        ts.compile(relu(), target="cuda")(X)
    fake.fail("", 0)
    ts.compile(relu(), target="cuda")(X)


def test_code_that_the_driver_refuses(fake: Fake):
    fake.fail("cuModuleLoadDataEx", 218)
    with pytest.raises(InternalError, match=r"refuses the generated code:\nline 1: no good"):
        ts.compile(relu(), target="cuda")(X)


def test_a_driver_that_does_not_start(fake: Fake):
    fake.fail("cuInit", 803)
    with pytest.raises(DeviceError, match=r"different versions; restart the machine"):
        target("cuda:0")
    assert target("cuda").cpu == "sm_80"


def test_failures_of_kernels(fake: Fake):
    b = Builder("g")
    x, i = b.input("x", TensorType(f32, (8,))), b.input("i", TensorType(i64, (3,)))
    exe = ts.compile(b.finish([b.add(Gather(0), x, i)]), target="cuda")
    given = np.zeros(8, np.float32), np.zeros(3, np.int64)
    exe(*given)
    fake.library.fake_note(1)
    with pytest.raises(ModelError, match="expected indices from"):
        exe(*given)


def test_without_a_driver(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    """Models are compiled, saved and shown; calls say what is missing."""
    monkeypatch.setattr(driver, "NAMES", ("no-such-driver.so",))
    forget()
    exe = ts.compile(relu(), target="cuda")
    exe.save(tmp_path / "model.tsm")
    for made in (exe, ts.load(tmp_path / "model.tsm")):
        with pytest.raises(DeviceError, match=r"NVIDIA GPU \(no-such-driver\.so\), found none"):
            made(X)
    with pytest.raises(DeviceError, match="or compile for 'native'"):
        target("cuda:0")
    forget()
