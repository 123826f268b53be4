"""Arrays of other libraries on a device, with a driver that runs nothing and notes its calls.

The driver's memory is the host's, so that arrays of the host stand for arrays on a device.
"""

from __future__ import annotations

import gc
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from fakes import Fake, forget

import tilesmith as ts
from tilesmith.codegen.cuda import driver
from tilesmith.driver.entry import FallbackWarning
from tilesmith.graph.builder import Builder
from tilesmith.graph.nodes import Graph
from tilesmith.ir.dtypes import DType, bf16, f32
from tilesmith.ir.types import TensorType
from tilesmith.ops.activation import Relu
from tilesmith.ops.elementwise.binary import Add
from tilesmith.ops.matmul import MatMul
from tilesmith.ops.select import NonZero
from tilesmith.runtime.shared_memory import DeviceArray
from tilesmith.support.errors import DeviceError, ModelError, UsageError

STREAM = 7
"""A stream of the caller, as the driver in the tests knows it."""

SIZE = 96


class OnDevice:
    """As CuPy's arrays: with the CUDA array interface."""

    def __init__(self, array: np.ndarray, stream: int | None = STREAM) -> None:
        self.array = array
        self.__cuda_array_interface__ = {**array.__array_interface__, "stream": stream}


class Capsules:
    """As JAX's arrays: with DLPack alone."""

    def __init__(self, array: np.ndarray, number: int = 0) -> None:
        self.array, self.number = array, number
        self.streams: list[int | None] = []

    def __dlpack_device__(self) -> tuple[int, int]:
        return 2, self.number

    def __dlpack__(self, *, stream: int | None = None, **_: Any) -> Any:
        self.streams.append(stream)
        memory = DeviceArray(None, self.number, Memory(self.array), f32, self.array.shape)
        return memory.__dlpack__(stream=-1)


class Memory:
    def __init__(self, array: np.ndarray) -> None:
        self.array, self.address = array, array.ctypes.data


def aligned(count: int, dtype: Any = np.float32, shift: int = 0) -> np.ndarray:
    """Zeros that begin so many bytes behind a multiple of 64."""
    size = count * np.dtype(dtype).itemsize
    room = np.zeros(size + 128, np.uint8)
    first = -room.ctypes.data % 64 + shift
    return room[first : first + size].view(dtype)


def model(dtype: DType = f32) -> Graph:
    b = Builder("g")
    x, y = (b.input(n, TensorType(dtype, (SIZE,))) for n in "xy")
    return b.finish([b.add(Relu(), b.add(Add(), x, y))])


@pytest.fixture
def exe(fake: Fake) -> Any:
    made = ts.compile(model(), target="cuda")
    fake.calls()
    return made


COPIES = ("cuMemcpyHtoDAsync_v2", "cuMemcpyDtoHAsync_v2", "cuMemcpyDtoDAsync_v2")


def test_array_interface(fake: Fake, exe: Any):
    """Kernels read the caller's memory on its stream, and nothing is copied or waited for."""
    x, y = aligned(SIZE), aligned(SIZE)
    found = exe(OnDevice(x), OnDevice(y))
    calls = fake.calls()
    assert not {*COPIES, "cuStreamSynchronize"} & {*calls}
    assert calls[-2:] == ["cuEventCreate", f"cuEventRecord({STREAM})"]
    assert fake.stream == STREAM
    assert fake.args(3) == [x.ctypes.data, y.ctypes.data, found.memory.address]
    assert isinstance(found, DeviceArray) and found.shape == (SIZE,)
    interface = found.__cuda_array_interface__
    assert interface["stream"] == STREAM and interface["typestr"] == "<f4"
    assert found.numpy().shape == (SIZE,)


def test_outputs_where_the_caller_wants_them(fake: Fake, exe: Any):
    x, y, out = aligned(SIZE), aligned(SIZE), OnDevice(aligned(SIZE))
    assert exe(OnDevice(x), OnDevice(y), out=out) is out
    assert fake.args(3)[2] == out.array.ctypes.data
    assert not {*COPIES} & {*fake.calls()}
    host = np.ones(SIZE, np.float32)
    assert exe(OnDevice(x), OnDevice(y), out=host) is host
    assert fake.calls().count("cuMemcpyDtoHAsync_v2") == 1


def test_arrays_of_host_and_device(fake: Fake, exe: Any):
    x = aligned(SIZE)
    found = exe(OnDevice(x), np.ones(SIZE, np.float32))
    assert isinstance(found, DeviceArray)
    assert fake.calls().count("cuMemcpyHtoDAsync_v2") == 1
    assert fake.args(3)[0] == x.ctypes.data


def test_streams_wait_for_each_other(fake: Fake, exe: Any):
    """A later call on another stream begins when the memory of the executable is free."""
    x, y = OnDevice(aligned(SIZE)), OnDevice(aligned(SIZE))
    exe(x, y)
    fake.calls()
    exe(np.zeros(SIZE, np.float32), np.zeros(SIZE, np.float32))
    assert fake.calls()[0] == "cuStreamWaitEvent(own)"
    exe(x, OnDevice(aligned(SIZE), stream=2))
    calls = fake.calls()
    assert calls.index("cuEventRecord(2)") < calls.index(f"cuStreamWaitEvent({STREAM})")
    assert "cuStreamSynchronize" not in calls


def test_dlpack(fake: Fake, exe: Any):
    """The library is told the stream of the call, and may have its memory back at the end."""
    x, y = Capsules(aligned(SIZE)), Capsules(aligned(SIZE))
    found = exe(x, y)
    assert fake.args(3)[:2] == [x.array.ctypes.data, y.array.ctypes.data]
    assert x.streams == [exe.runner.inner.device.stream] and fake.stream == 0
    calls = fake.calls()
    assert calls.count("cuStreamSynchronize") == 1 and not {*COPIES} & {*calls}
    assert found.__dlpack_device__() == (2, 0)
    again = exe(found, found)
    assert fake.args(3)[:2] == [found.memory.address] * 2 and again is not found
    fake.calls()
    capsule = found.__dlpack__(stream=STREAM)
    assert fake.calls()[-3:-1] == ["cuEventRecord(own)", f"cuStreamWaitEvent({STREAM})"]
    address = found.memory.address
    del found
    gc.collect()
    assert "cuMemFree_v2" not in fake.calls()  # the capsule has the memory
    taken = exe(Capsules(aligned(SIZE)), y)
    assert taken.memory.address != address
    del capsule
    gc.collect()
    assert "cuMemFree_v2" in fake.calls()


def test_torch(fake: Fake, exe: Any, monkeypatch: pytest.MonkeyPatch):
    """Results are PyTorch's, on its current stream."""

    torch = pytest.importorskip("torch")

    class CudaTensor(torch.Tensor):  # says that it is on a device
        is_cuda = property(lambda self: True)  # type: ignore[assignment]

        def get_device(self) -> int:
            return 0

    def tensor(array: Any) -> Any:
        return torch.as_tensor(array).as_subclass(CudaTensor)

    class Stream:
        cuda_stream = STREAM

    monkeypatch.setattr(torch.cuda, "current_stream", lambda number: Stream)
    x, y = tensor(aligned(SIZE)), tensor(aligned(SIZE))
    found = exe(x, y)
    assert isinstance(found, torch.Tensor) and found.dtype == torch.float32
    assert fake.args(3) == [x.data_ptr(), y.data_ptr(), found.data_ptr()]
    assert fake.stream == STREAM
    assert not {*COPIES, "cuStreamSynchronize"} & {*fake.calls()}
    Stream.cuda_stream = 0
    exe(x, y)
    assert fake.stream == 1  # the legacy stream
    wide = ts.compile(model(bf16), target="cuda")
    half = tensor(torch.zeros(SIZE, dtype=torch.bfloat16))
    assert wide(half, half).dtype == torch.bfloat16


def test_launches_are_kept(fake: Fake, exe: Any):
    arrays = [OnDevice(aligned(SIZE)) for _ in range(12)]
    out = OnDevice(aligned(SIZE))
    for a in (*arrays, *arrays):
        exe(a, a, out=out)
        assert fake.args(3)[:2] == [a.array.ctypes.data] * 2
    assert len(exe.runner.inner._shared) == 8


def test_addresses_that_vectors_can_not_use(fake: Fake, exe: Any):
    """Such arrays are copied on the device."""
    x, out = aligned(SIZE, shift=4), aligned(SIZE, shift=8)
    y = aligned(SIZE)
    exe(OnDevice(x), OnDevice(y), out=OnDevice(out))
    calls = fake.calls()
    assert calls.count("cuMemcpyDtoDAsync_v2") == 2
    found = fake.args(3)
    assert found[0] != x.ctypes.data and found[1] == y.ctypes.data and found[2] != out.ctypes.data


def test_errors(fake: Fake, exe: Any):
    good = OnDevice(aligned(SIZE))
    fake.library.fake_pointed(1)
    with pytest.raises(ModelError, match=r"'x': expected memory of CUDA device 0, found an array "
                       r"on device 1; move it, or compile for 'cuda:1'"):  # fmt: skip
        exe(good, good)
    fake.library.fake_pointed(0)
    with pytest.raises(ModelError, match=r"'y': expected memory of CUDA device 0, .* device 3"):
        exe(good, Capsules(aligned(SIZE), 3))
    with pytest.raises(ModelError, match=r"'x': expected element type f32.*found float64"):
        exe(OnDevice(aligned(SIZE, np.float64)), good)
    with pytest.raises(ModelError, match=r"'x': expected shape \(96,\), found \(95,\)"):
        exe(OnDevice(aligned(SIZE)[1:]), good)
    with pytest.raises(ModelError, match=r"found strides \(8,\) in bytes; copy it"):
        exe(OnDevice(aligned(2 * SIZE)[::2]), good)
    with pytest.raises(ModelError, match=r"elements of a type that models have, found <c8"):
        exe(OnDevice(aligned(SIZE, np.complex64)), good)
    with pytest.raises(UsageError, match=r"output .* shares memory with input 'x'"):
        exe(good, good, out=good)
    with pytest.raises(ModelError, match=r"expected 2 inputs .* found 1"):
        exe(good)
    fake.fail("cuPointerGetAttribute", 1)
    with pytest.raises(ModelError, match=r"input 'x': .*expected memory of a device at 0x"):
        exe(good, good)
    fake.fail("", 0)
    exe(good, good)


def test_arrays_on_a_device_for_the_cpu(fake: Fake):
    made = ts.compile(model())
    host = np.zeros(SIZE, np.float32)
    for other in (OnDevice(aligned(SIZE)), Capsules(aligned(SIZE))):
        with pytest.raises(ModelError, match=r"'y': expected an array on the CPU, found a .* on a"):
            made(host, other)


def test_models_in_parts_without_a_device(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    """Compiled, saved and shown without a device; calls say what is missing."""
    monkeypatch.setattr(driver, "NAMES", ("no-such-driver.so",))
    forget()
    b = Builder("g")
    x, w = b.input("x", TensorType(f32, (1, 64))), b.input("w", TensorType(f32, (64, 4096)))
    places, _ = b.add(NonZero(), b.add(MatMul(), x, w))
    with pytest.warns(FallbackWarning, match="on the CPU, not on 'cuda'"):
        exe = ts.compile(b.finish([places]), target="cuda")
    assert exe.launches
    exe.save(tmp_path / "model.tsm")
    for made in (exe, ts.load(tmp_path / "model.tsm")):
        with pytest.raises(DeviceError, match=r"NVIDIA GPU \(no-such-driver\.so\), found none"):
            made(np.zeros((1, 64), np.float32), np.zeros((64, 4096), np.float32))
    forget()


@pytest.mark.parametrize(
    ("function", "code", "message"),
    [
        ("cuMemAlloc_v2", 2, r"expected 384 bytes in one piece.*not enough memory"),
        ("cuLaunchKernel", 719, r"can't start 1 blocks.*the device is lost"),
        ("cuEventRecord", 700, r"an event can't be noted.*left its memory"),
        ("cuEventCreate", 999, r"an event can't be made"),
    ],
)
def test_faults(fake: Fake, exe: Any, function: str, code: int, message: str):
    """The process goes on, and so does the model once the driver does."""
    given = OnDevice(aligned(SIZE)), OnDevice(aligned(SIZE))
    fake.fail(function, code)
    with pytest.raises(DeviceError, match=message):
        exe(*given)
    fake.fail("", 0)
    assert exe(*given).shape == (SIZE,)


def test_a_kernel_that_runs_too_long(fake: Fake, exe: Any):
    """With DLPack the call waits, and says what happened."""
    given = Capsules(aligned(SIZE)), Capsules(aligned(SIZE))
    fake.fail("cuStreamSynchronize", 702)
    with pytest.raises(DeviceError, match="ran longer than the system allows"):
        exe(*given)
    fake.fail("", 0)
    exe(*given)
