"""Calls that the CPU answers because the driver, whose place a library takes, fails."""

from __future__ import annotations

import gc
from pathlib import Path

import numpy as np
import pytest
from fakes import Fake, forget

import tilesmith as ts
from tilesmith.cli import execute as run
from tilesmith.codegen.cuda import driver
from tilesmith.graph.builder import Builder
from tilesmith.graph.nodes import Graph
from tilesmith.ir.dtypes import f32
from tilesmith.ir.types import TensorType
from tilesmith.ops.activation import Relu
from tilesmith.support.errors import DeviceError, UsageError

X = np.linspace(-1, 1, 100, dtype=np.float32)


def relu() -> Graph:
    b = Builder("g")
    return b.finish([b.add(Relu(), b.input("x", TensorType(f32, (100,))))])


@pytest.mark.parametrize(
    ("function", "code", "reason"),
    [
        ("cuMemAlloc_v2", 2, "not enough memory"),
        ("cuModuleLoadDataEx", 222, "driver is too old"),
        ("cuDevicePrimaryCtxRetain", 46, "another process has the device"),
    ],
)
def test_a_device_that_can_not_be_opened(
    fake: Fake, caplog: pytest.LogCaptureFixture, function: str, code: int, reason: str
):
    fake.fail(function, code)
    exe = ts.compile(relu(), target="cuda", fallback="cpu")
    assert "target 'cuda': the CPU answers from now on" in caplog.text and reason in caplog.text
    np.testing.assert_array_equal(exe(X), np.maximum(X, 0))


@pytest.mark.parametrize(
    ("function", "code", "reason"),
    [
        ("cuLaunchKernel", 701, "not enough registers"),
        ("cuStreamSynchronize", 702, "ran longer than the system allows"),
        ("cuStreamSynchronize", 719, "the device is lost"),
        ("cuMemcpyDtoHAsync_v2", 700, "left its memory"),
    ],
)
def test_a_call_that_fails(
    fake: Fake, caplog: pytest.LogCaptureFixture, function: str, code: int, reason: str
):
    """Later calls do not ask the device again; arrays of the caller are filled."""
    exe = ts.compile(relu(), target="cuda", fallback="cpu")
    fake.fail(function, code)
    np.testing.assert_array_equal(exe(X), np.maximum(X, 0))
    assert reason in caplog.text
    fake.fail("", 0)
    fake.calls()
    out = np.empty_like(X)
    assert exe(X, out=out) is out
    np.testing.assert_array_equal(out, np.maximum(X, 0))
    assert fake.calls() == [] and len(caplog.records) == 1
    np.testing.assert_array_equal(*exe.run({"x": X}).values(), np.maximum(X, 0))


def test_no_driver(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture):
    monkeypatch.setattr(driver, "NAMES", ("no-such-driver.so",))
    forget()
    for name in ("cuda", "cuda:0"):
        exe = ts.compile(relu(), target=name, fallback="cpu")
        np.testing.assert_array_equal(exe(X), np.maximum(X, 0))
    assert caplog.text.count("found none; install it") == 2
    forget()


def test_a_call_that_takes_too_long(fake: Fake):
    """The driver frees nothing while kernels may use it, and the next call waits for them."""
    exe = ts.compile(relu(), target="cuda", time_limit=0.01)
    fake.fail("cuStreamQuery", 600)
    message = (
        r"Fake: expected a call of at most 0\.01 s \(time_limit\), found kernels that still run"
    )
    with pytest.raises(DeviceError, match=message):
        exe(X)
    with pytest.raises(DeviceError, match=message):
        exe(X)
    fake.calls()
    del exe
    gc.collect()
    assert fake.calls() == []


def test_a_device_that_is_idle_again(fake: Fake):
    exe = ts.compile(relu(), target="cuda", time_limit=0.01)
    fake.fail("cuStreamQuery", 600)
    with pytest.raises(DeviceError, match="time_limit"):
        exe(X)
    fake.fail("", 0)
    fake.calls()
    exe(X)
    assert "cuStreamQuery" in fake.calls()
    del exe
    gc.collect()
    assert fake.calls() == ["cuMemFree_v2"] * 5


def test_in_place_arrays_of_a_call_that_fails(fake: Fake):
    """An input that an output lives in is as it was, until the CPU writes it."""
    exe = ts.compile(relu(), target="cuda", fallback="cpu", in_place={relu().output_names[0]: "x"})
    given = X.copy()
    fake.fail("cuStreamSynchronize", 719)
    assert exe(given) is given
    np.testing.assert_array_equal(given, np.maximum(X, 0))


class OnDevice:
    """An array that lies on a device."""

    def __init__(self, memory: np.ndarray) -> None:
        about = {"shape": memory.shape, "typestr": "<f4", "version": 3, "strides": None}
        self.memory = memory
        self.__cuda_array_interface__ = {**about, "data": (memory.ctypes.data, False)}


def test_arrays_on_the_device_are_not_read_by_the_cpu(fake: Fake):
    exe = ts.compile(relu(), target="cuda", fallback="cpu")
    fake.fail("cuLaunchKernel", 719)
    with pytest.raises(DeviceError, match="the device is lost"):
        exe(OnDevice(X.copy()))
    np.testing.assert_array_equal(exe(X), np.maximum(X, 0))


@pytest.mark.parametrize("seconds", [0, -1.0, float("inf"), "1"])
def test_time_limits_that_can_not_be(seconds: object, tmp_path: Path):
    wanted = r"time_limit(: expected a number| must be a number of seconds above 0)"
    with pytest.raises(UsageError, match=wanted):
        ts.compile(relu(), target="cuda", time_limit=seconds)


def test_the_command_line(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    """A device that is not there is no bug of ours: one line, and no report."""
    monkeypatch.setattr(driver, "NAMES", ("no-such-driver.so",))
    forget()
    path = tmp_path / "g.onnx"
    ts.save_onnx(relu(), path)
    given = ["compile", str(path), "-o", str(tmp_path / "g.tsm"), "--target", "cuda:0"]
    assert run(given) == 5
    assert "NVIDIA GPU (no-such-driver.so), found none" in (said := capsys.readouterr().err)
    assert "report" not in said
    assert run([*given, "--fallback", "cpu"]) == 0
    assert ts.load(tmp_path / "g.tsm").program.target.device is None
    forget()


def test_words_for_what_falls_back():
    with pytest.raises(UsageError, match="fallback must be one of warn, error, cpu, not 'gpu'"):
        ts.compile(relu(), fallback="gpu")
