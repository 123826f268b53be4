"""OpenCL C of kernels, and the limits of devices; nothing here needs a device or a driver."""

from __future__ import annotations

import sys
from dataclasses import replace

import numpy as np
import pytest
from library import final

import tilesmith as ts
from common.blocks_of_threads import blocked
from tilesmith import te
from tilesmith.codegen.opencl.emit import emit
from tilesmith.codegen.targets import target
from tilesmith.driver.assembly.program import check_steps
from tilesmith.graph.builder import Builder
from tilesmith.ir.device import Device
from tilesmith.ir.dtypes import f32
from tilesmith.ir.symbols import symbol
from tilesmith.ir.target import Target
from tilesmith.ir.types import TensorType
from tilesmith.loop.interpret import interpret
from tilesmith.loop.launches import launches
from tilesmith.loop.nodes import Func
from tilesmith.loop.parse import parse_func
from tilesmith.ops.activation import Relu
from tilesmith.program.nodes import Arg, Branch, Repeat
from tilesmith.strategy.device.parallel import launch_parallel
from tilesmith.support.errors import DeviceError, ScheduleError, UnsupportedError, UsageError

GPU = target("opencl-gpu")


def test_what_is_not_tuned_on_devices():
    x = te.placeholder((8,), name="x")
    y = te.compute((8,), lambda i: x[i] + 1.0, "y")
    with pytest.raises(UsageError, match="'opencl-gpu' is a device; tune a model"):
        ts.tune_expression([x, y], target="opencl-gpu")
    graph = Builder("g")
    graph = graph.finish([graph.add(Relu(), graph.input("x", TensorType(f32, (8,))))])
    with pytest.raises(UsageError, match="flush: expected the target of tuning to be a CPU, found"):
        ts.tune(graph, target="opencl-gpu", flush=True)


def test_product(golden):
    golden(emit(replace(final(blocked()), name="product"), GPU).text)


def on(**limits: int) -> Target:
    assert GPU.device is not None
    return replace(GPU, device=replace(GPU.device, **limits))


@pytest.mark.parametrize(
    ("limits", "message"),
    [
        ({"block_threads": 15}, r"of 4 x 4 x 1 threads: expected at most 15 threads, found 16"),
        ({"block_y": 3}, r"expected at most 3 threads along threadIdx\.y, found 4"),
        (
            {"shared_bytes": 255},
            r"at most 255 bytes of shared .* found 256 \(A_shared 128,",
        ),
        ({"registers": 3}, r"expected at most 3 registers of a thread, found 4 \(C_register 4\)"),
    ],
)
def test_limits(limits, message):
    func = final(blocked())
    emit(func, GPU)
    with pytest.raises(ScheduleError, match=message):
        emit(func, on(**limits))


def kernel(body: str) -> Func:
    return parse_func(f"def main(x: f32[8], y: f32[8], n: i64) -> y:\n    {body}\n")


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (
            "for i in range(4):\n        for t in thread_x(8):\n            y[t] = x[t]",
            "the loop i is around loops that are bound to blocks or threads",
        ),
        (
            "if y[0] < 1.0:\n        for t in thread_x(8):\n            y[t] = x[t]",
            "depends on the memory of y, which another one writes",
        ),
        (
            "for a in block_x(2):\n        y[a] = 0.0\n        for b in block_y(2):\n"
            "            y[b] = x[a]",
            "something is computed between two loops over blocks",
        ),
        (
            "for a in block_x(2):\n        for b in block_y(a + 1):\n            y[b] = x[a]",
            r"expected a number of blocks along blockIdx\.y that the kernel's arguments determine",
        ),
    ],
)
def test_what_is_no_launch(body, message):
    with pytest.raises(ScheduleError, match=message):
        launches(kernel(body))


def test_memory_of_a_thread_around_launches():
    """It moves into the launch that uses it; two launches can't."""
    body = """alloc t: f32[8] stack
    for i in range(8):
        t[i] = x[i]
    for i in range(8):
        y[i] = t[i]
    for b in block_x(8):
        y[b] = OTHER + 1.0"""
    func = final(kernel(body.replace("OTHER", "y[b]")))
    (first, second) = launches(func)
    assert "t" in str(first.body) and "float t[8];" in emit(func, GPU).text
    assert second.threads == (1, 1, 1)
    with pytest.raises(ScheduleError, match=r"memory of a thread .stack., and 2 launches use it"):
        launches(final(kernel(body.replace("OTHER", "t[b]"))))


def test_bound_loops_keep_their_extents():
    func = kernel(
        "for b in block_x(1):\n        for t in thread_x(8):\n            if b * 8 + t < n:\n"
        "                y[b * 8 + t] = x[b * 8 + t]\n    for t in thread_x(1):\n        y[t] = 0.0"
    )
    (first, second) = launches(final(func))
    assert (first.threads, second.threads) == ((8, 1, 1), (1, 1, 1))
    text = emit(final(func), GPU).text
    assert "if (t < n)" in text


def test_doubles_of_a_device_without_them():
    func = parse_func("def main(x: f64[8], y: f64[8]) -> y:\n    for t in thread_x(8):\n"
                      "        y[t] = x[t]\n")  # fmt: skip
    assert "cl_khr_fp64" in emit(func, GPU).text
    with pytest.raises(ScheduleError, match="computes with f64, which the device has not"):
        emit(func, replace(GPU, device=Device(has_f64=False)))


def test_descriptions(tmp_path):
    file = tmp_path / "small.toml"
    file.write_text('base = "opencl-gpu"\nshared_bytes = 16384\nwave = 64\n')
    found = target(str(file))
    assert found.device == Device(shared_bytes=16384, wave=64) and found.name == "small"
    assert Target.from_json(found.to_json()) == found
    assert "shared_bytes=16384" in found.text and "device" not in target("x86-64-v3").text
    file.write_text('base = "opencl-gpu"\nshared_byte = 1\n')
    with pytest.raises(UsageError, match=r"has no field 'shared_byte'.*did you mean shared_bytes"):
        target(str(file))
    file.write_text('base = "opencl-gpu"\nwave = 0\n')
    with pytest.raises(UsageError, match="wave: expected a positive integer, found 0"):
        target(str(file))
    with pytest.raises(UsageError, match="unknown target 'opencl-tpu': expected opencl, opencl:N"):
        target("opencl-tpu")


def test_without_pyopencl(monkeypatch):
    from tilesmith.codegen.opencl import devices

    devices.package.cache_clear()
    devices.devices.cache_clear()
    monkeypatch.setitem(sys.modules, "pyopencl", None)
    with pytest.raises(DeviceError, match=r"pyopencl: pip install 'tilesmith\[opencl\]'"):
        target("opencl")
    x = te.placeholder((8,), name="x")
    y = te.compute((8,), lambda i: x[i] + 1.0, "y")
    function = ts.build("auto", [x, y], target="opencl-gpu")
    assert "__kernel" in function.source  # which takes no device
    with pytest.raises(DeviceError, match="pyopencl"):
        function(np.zeros(8, np.float32), np.zeros(8, np.float32))


def test_without_a_driver(monkeypatch):
    from tilesmith.codegen.opencl import devices

    monkeypatch.setattr(devices, "devices", lambda: ())
    with pytest.raises(DeviceError, match="OpenCL device number 0, found none; install"):
        devices.device()


def test_what_programs_on_devices_lack():
    """Sizes that only a run knows, and control flow: parts of a model for the CPU."""
    b = Builder("g")
    graph = b.finish([b.add(Relu(), b.input("x", TensorType(f32, (symbol("n"),))))])
    with pytest.raises(UnsupportedError, match=r"can't run relu \(sizes that only a run knows\)"):
        ts.compile(graph, target="opencl-gpu", fallback="error")
    with pytest.raises(UnsupportedError, match="found Branch, Repeat, sizes that only a run knows"):
        check_steps((Branch(Arg("arena", 0), (), ()), Repeat(3, ())), "opencl", True)


def test_parallel_loops_become_launches():
    """Loops directly inside each other are one index; memory in them belongs to each thread."""
    func = parse_func("""def main(x: f32[3, 50], y: f32[3, 50]) -> y:
    for i in parallel(3):
        for j in parallel(50):
            alloc t: f32[2] heap
            t[0] = x[i, j]
            t[1] = t[0] * 2.0
            y[i, j] = t[1]
""")
    bound = launch_parallel(func, 64)
    (launch,) = launches(bound)
    assert launch.threads == (64, 1, 1) and str(launch.blocks[0]) == "3"
    x, y = np.random.default_rng(0).random((3, 50), np.float32), np.zeros((3, 50), np.float32)
    interpret(bound, [x, y])
    np.testing.assert_array_equal(y, 2 * x)
    kernel = emit(final(bound), GPU)
    assert kernel.workspace_bytes_shared == 150 * 2 * 4 + 16  # a multiple of 64
    assert launch_parallel(bound, 64) is bound
