"""Memory and kernels of NVIDIA's GPUs, through the driver's C interface."""

from __future__ import annotations

import ctypes
import weakref
from collections.abc import Callable, Iterable, Sequence
from copy import copy
from ctypes import byref, c_char, c_int, c_int64, c_size_t, c_uint, c_uint64, c_void_p
from dataclasses import dataclass
from functools import lru_cache
from math import prod
from typing import Any

import numpy as np

from tilesmith.codegen.cuda.driver import Driver, context, description, driver
from tilesmith.codegen.kernel import DeviceKernel
from tilesmith.support.errors import DeviceError, InternalError

from .device import Argument
from .limits import Watch

_ERROR_LOG, _ERROR_LOG_BYTES = 5, 6  # values of `CUjit_option`
_LOG_BYTES = 16 << 10
_NO_TIMES = 2  # value of `CUevent_flags`
_ORDINAL = 9  # value of `CUpointer_attribute`: the number of a device
_NOT_READY = 600  # value of `CUresult`: commands of a stream are not done yet
_REFUSED = (200, 218)  # values of `CUresult`: the image or its PTX is invalid


class Memory:
    """Device memory, which is freed when nothing refers to it.

    address: device address of its first byte.
    size: bytes.
    """

    def __init__(self, cu: Driver, current: c_void_p, address: int, size: int) -> None:
        self.address = address
        self.size = size
        weakref.finalize(self, _free, cu, current, address).atexit = False


def _free(cu: Driver, current: c_void_p, address: int) -> None:
    """Free memory, ignoring errors: after a kernel has failed, the driver has already freed it."""
    cu.quietly("cuCtxSetCurrent", current)
    cu.quietly("cuMemFree_v2", c_uint64(address))


@dataclass(frozen=True, slots=True)
class Address:
    """Device memory that somebody else allocated and frees.

    address: device address of its first byte.
    """

    address: int


class Event:
    """A position in a stream, which is destroyed when nothing refers to it."""

    def __init__(self, cu: Driver, current: c_void_p, handle: c_void_p) -> None:
        self.handle = handle
        weakref.finalize(self, _forget, cu, current, handle).atexit = False


def _forget(cu: Driver, current: c_void_p, handle: c_void_p) -> None:
    cu.quietly("cuCtxSetCurrent", current)
    cu.quietly("cuEventDestroy_v2", handle)


@dataclass(frozen=True, slots=True)
class _Function:
    """A kernel of a module that is loaded."""

    symbol: str
    handle: c_void_p


class CudaDevice:
    """A device with a stream, in which commands run in order."""

    def __init__(self, number: int) -> None:
        self._cu = driver()
        self.about = description(number)
        self._context = context(number)
        self._stream = c_void_p()
        self._watch = Watch(None)
        self._call("a stream can't be made", "cuStreamCreate", byref(self._stream), c_uint(1))

    @property
    def stream(self) -> int:
        """The driver's handle of the stream."""
        return self._stream.value or 0

    def on(self, stream: int) -> CudaDevice:
        """The same device with a stream of another library."""
        if stream == self.stream:
            return self
        device = copy(self)
        device._stream = c_void_p(stream)
        return device

    def within(self, watch: Watch) -> CudaDevice:
        """The same device and stream, with waits that obey the time limit of `watch`."""
        device = copy(self)
        device._watch = watch
        return device

    def _wait_in_time(self) -> None:
        self._watch.wait(self.about.name, self._is_busy)

    def _is_busy(self) -> bool:
        """Whether commands of the stream are unfinished."""
        try:
            self._call("a kernel failed", "cuStreamQuery", self._stream)
        except DeviceError:
            if self._cu.last != _NOT_READY:
                raise
            return True
        return False

    def mark(self) -> Event:
        """An event that completes when all commands so far are done."""
        handle = c_void_p()
        self._call("an event can't be made", "cuEventCreate", byref(handle), c_uint(_NO_TIMES))
        event = Event(self._cu, self._context, handle)
        self._call("an event can't be noted", "cuEventRecord", handle, self._stream)
        return event

    def after(self, event: Event) -> None:
        """Make later commands wait for an event."""
        what = "an event can't be waited for"
        self._call(what, "cuStreamWaitEvent", self._stream, event.handle, c_uint(0))

    def finish(self) -> None:
        """Wait until all commands are done."""
        self._wait_in_time()
        self._wait("a kernel failed")

    def number_of(self, address: int) -> int:
        """The number of the device that contains an address.  Raises DeviceError if no device
        does.
        """
        number = c_int()
        what = f"expected memory of a device at {address:#x}"
        self._call(what, "cuPointerGetAttribute", byref(number), c_int(_ORDINAL), c_uint64(address))
        return number.value

    def _call(self, what: str, function: str, *args: Any) -> None:
        """Call a function of the driver with the context of this device, from any thread."""
        what = f"{self.about.name}: {what}"
        self._cu(what, "cuCtxSetCurrent", self._context)
        self._cu(what, function, *args)

    def load(self, kernels: Iterable[DeviceKernel]) -> dict[str, c_void_p]:
        """Load kernels (see `OpenDevice`).  Returns, for each launch's symbol, the module that
        contains the launch.
        """
        modules: dict[str, c_void_p] = {}
        for kernel in kernels:
            module = self._module(kernel)
            modules |= dict.fromkeys((x.symbol for x in kernel.launches), module)
        return modules

    def _module(self, kernel: DeviceKernel) -> c_void_p:
        """The module of a kernel.  The driver compiles PTX, or finds the code in its own cache."""
        module, log = c_void_p(), (c_char * _LOG_BYTES)()
        options = (c_int * 2)(_ERROR_LOG, _ERROR_LOG_BYTES)
        values = (c_void_p * 2)(ctypes.addressof(log), _LOG_BYTES)
        text = kernel.text.encode() + b"\0"
        what = f"the kernel {kernel.symbol} can't be loaded"
        try:
            self._call(what, "cuModuleLoadDataEx", byref(module), text, c_uint(2), options, values)
        except DeviceError as e:
            said = log.value.decode("utf-8", "replace").strip()
            if self._cu.last in _REFUSED:
                raise InternalError(
                    f"the driver refuses the generated code:\n{said}\n{e}"
                ) from None
            raise DeviceError("\n".join(filter(None, (str(e), said)))) from None
        return module

    def kernel(self, program: dict[str, c_void_p], symbol: str) -> _Function:
        """A kernel of a program."""
        handle = c_void_p()
        what = f"there is no kernel {symbol}"
        self._call(what, "cuModuleGetFunction", byref(handle), program[symbol], symbol.encode())
        return _Function(symbol, handle)

    def assembly(self, program: dict[str, c_void_p]) -> str:
        """A note in place of the machine code, which the driver does not expose."""
        return f"{len(program)} kernels as machine code for {self.about.name}"

    def empty(self, size: int) -> Memory:
        """Uninitialised memory of `size` bytes.  Raises DeviceError if there is too little
        memory.
        """
        address = c_uint64()
        what = f"expected {size} bytes in one piece, of {self.about.memory_bytes} in all"
        self._call(what, "cuMemAlloc_v2", byref(address), c_size_t(max(size, 1)))
        return Memory(self._cu, self._context, address.value, size)

    def write(self, memory: Memory | Address, array: np.ndarray) -> None:
        """Copy an array to the device."""
        if array.nbytes:
            self._wait_in_time()
            what = f"{array.nbytes} bytes can't be copied to it"
            source = np.ascontiguousarray(array)
            self._call(
                what,
                "cuMemcpyHtoDAsync_v2",
                c_uint64(memory.address),
                c_void_p(source.ctypes.data),
                c_size_t(source.nbytes),
                self._stream,
            )
            self._wait(what)  # the caller may change the array after the call

    def read(self, array: np.ndarray, memory: Memory | Address) -> None:
        """Copy device memory into an array, after all earlier commands are done."""
        if array.nbytes:
            self._wait_in_time()  # else the copy could still run after a timeout
            what = "a kernel failed, or its results can't be read"
            self._call(
                what,
                "cuMemcpyDtoHAsync_v2",
                c_void_p(array.ctypes.data),
                c_uint64(memory.address),
                c_size_t(array.nbytes),
                self._stream,
            )
            self._wait(what)

    def _wait(self, what: str) -> None:
        self._call(what, "cuStreamSynchronize", self._stream)

    def copy(
        self, to: Memory | Address, end: int, source: Memory | Address, start: int, size: int
    ) -> None:
        """Copy `size` bytes of device memory; both offsets are in bytes."""
        if size:
            self._call(
                f"{size} bytes can't be copied on it",
                "cuMemcpyDtoDAsync_v2",
                c_uint64(to.address + end),
                c_uint64(source.address + start),
                c_size_t(size),
                self._stream,
            )

    def prepared(
        self,
        kernel: _Function,
        blocks: Sequence[int],
        threads: Sequence[int],
        args: Sequence[Argument],
        report: Memory | None,
    ) -> Callable[[], None]:
        """A function that starts a kernel (see `OpenDevice`)."""
        memory = [a[0] for a in args if isinstance(a, tuple)]
        values: list[Any] = [
            c_uint64(a[0].address + a[1]) if isinstance(a, tuple) else c_int64(a or 0) for a in args
        ]
        if report is not None:
            memory.append(report)
        values.append(c_uint64(0 if report is None else report.address))
        places = (c_void_p * len(values))(*(ctypes.addressof(x) for x in values))
        return _Start(self, kernel, tuple(blocks), tuple(threads), (memory, values), places)

    def launch(self, start: _Start) -> None:
        """Start a kernel."""
        size = (*start.blocks, *start.threads)
        self._call(
            f"{start.kernel.symbol} can't start {prod(start.blocks)} blocks of "
            f"{prod(start.threads)} threads",
            "cuLaunchKernel",
            start.kernel.handle,
            *(c_uint(n) for n in size),
            c_uint(0),
            self._stream,
            start.places,
            None,
        )


@dataclass(frozen=True, slots=True)
class _Start:
    """A launch with its arguments.

    kept: objects that must live as long as the launch: the memory that the kernel uses, and the
        values of its arguments.
    places: the addresses of these values.
    """

    device: CudaDevice
    kernel: _Function
    blocks: tuple[int, ...]
    threads: tuple[int, ...]
    kept: Any
    places: Any

    def __call__(self) -> None:
        if all(self.blocks):
            self.device.launch(self)


@lru_cache(maxsize=8)
def opened(number: int) -> CudaDevice:
    """The device `number` of this machine.  Raises DeviceError if it does not exist or can't be
    used.
    """
    return CudaDevice(number)
