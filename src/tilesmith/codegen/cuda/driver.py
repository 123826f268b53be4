"""The driver of NVIDIA's GPUs: its library, its errors, and its description of devices.

ctypes calls the driver's C interface.  The library is loaded when a device is first requested.
"""

from __future__ import annotations

import ctypes
import sys
from ctypes import byref, c_char_p, c_int, c_size_t, c_void_p, create_string_buffer
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from tilesmith.support.errors import DeviceError

NAMES = ("nvcuda.dll",) if sys.platform == "win32" else ("libcuda.so.1", "libcuda.so")
"""File names of the driver; the operating system searches for them."""

OUT_OF_MEMORY = 2
NO_DEVICE = 100

_ADVICE = {
    OUT_OF_MEMORY: "the device has not enough memory; use smaller sizes, or end other programs",
    NO_DEVICE: "no device is visible; check nvidia-smi and CUDA_VISIBLE_DEVICES",
    46: "another process has the device for itself; wait for it, or use another device",
    209: "the device can't run this code; compile for its own architecture, with target='cuda'",
    214: "the device's memory has an error that it can't correct; reset it, or use another device",
    218: "the driver refuses the generated code; its log is above",
    222: "the driver is too old for the generated code; install a newer one",
    700: "a kernel left its memory; this process can't use the device any more: start a new one",
    701: "the device has not enough registers for so many threads; use smaller blocks",
    702: "a kernel ran longer than the system allows where the device shows a screen; use smaller "
    "sizes, or a device without one, and start a new process",
    719: "a kernel failed, or the device is lost; check nvidia-smi, and start a new process",
    803: "the driver and its library are of different versions; restart the machine",
}  # fmt: skip
"""The meaning of each of the driver's error codes, and the remedy."""

_ATTRIBUTES = {
    "block_threads": 1, "x": 2, "y": 3, "z": 4, "shared_bytes": 8, "wave": 10, "units": 16,
    "major": 75, "minor": 76,
}  # fmt: skip
"""Numbers of `CUdevice_attribute`."""


@dataclass(frozen=True, slots=True)
class Description:
    """The properties of a device that the driver reports.

    name: the maker's name.
    capability: compute capability, as (major, minor).
    shared_bytes: shared memory that a kernel may declare.
    block_threads: maximum number of threads of a block.
    block: maximum number of threads of a block along x, y and z.
    wave: number of threads of a warp.
    units: number of multiprocessors.
    memory_bytes: size of the device's memory, in bytes.
    """

    name: str
    capability: tuple[int, int]
    shared_bytes: int
    block_threads: int
    block: tuple[int, int, int]
    wave: int
    units: int
    memory_bytes: int


class Driver:
    """The functions of the driver's library, with their results checked."""

    def __init__(self, library: Any) -> None:
        self._library = library
        self.last = 0  # result of the last call

    def __call__(self, what: str, function: str, *args: Any) -> None:
        """Call a function.

        Raises DeviceError if it reports an error; `what` names the failed action.
        """
        self.last = getattr(self._library, function)(*args)
        self.check(what, self.last)

    def quietly(self, function: str, *args: Any) -> None:
        """Call a function and ignore its errors."""
        getattr(self._library, function)(*args)

    def check(self, what: str, result: int) -> None:
        """Raises DeviceError for a result that is an error."""
        if not result:
            return
        text = c_char_p()
        self._library.cuGetErrorString(result, byref(text))
        said = (text.value or b"unknown error").decode("utf-8", "replace")
        advice = f"; {_ADVICE[result]}" if result in _ADVICE else ""
        raise DeviceError(f"CUDA: {what}: {said} (error {result}){advice}")


@lru_cache(maxsize=1)
def driver() -> Driver:
    """The initialised driver.  Raises DeviceError if the driver is missing or finds no device."""
    library = None
    for name in NAMES:
        try:
            library = ctypes.CDLL(name)
            break
        except OSError:
            continue
    if library is None:
        raise DeviceError(
            f"expected the driver of an NVIDIA GPU ({' or '.join(NAMES)}), found none; install it, "
            "or compile for 'native'"
        )
    made = Driver(library)
    made("the driver can't be used", "cuInit", 0)
    return made


def count() -> int:
    """Number of devices of this machine; 0 without a driver."""
    try:
        cu = driver()
    except DeviceError:
        return 0
    n = c_int()
    cu("devices can't be counted", "cuDeviceGetCount", byref(n))
    return n.value


def handle(number: int) -> int:
    """The driver's handle of a device.  Raises DeviceError if the device doesn't exist."""
    cu = driver()
    if number >= (there := count()):
        raise DeviceError(
            f"expected a CUDA device number {number}, found {there}; nvidia-smi lists devices"
        )
    device = c_int()
    cu(f"device {number} can't be used", "cuDeviceGet", byref(device), number)
    return device.value


def description(number: int) -> Description:
    """The properties of a device.  Raises DeviceError if the device doesn't exist."""
    device, cu = handle(number), driver()
    what = f"device {number} can't be described"
    name, memory = create_string_buffer(256), c_size_t()
    cu(what, "cuDeviceGetName", name, 256, device)
    cu(what, "cuDeviceTotalMem_v2", byref(memory), device)
    attributes = {}
    for key, attribute in _ATTRIBUTES.items():
        value = c_int()
        cu(what, "cuDeviceGetAttribute", byref(value), attribute, device)
        attributes[key] = value.value
    return Description(
        name.value.decode("utf-8", "replace"),
        (attributes["major"], attributes["minor"]),
        attributes["shared_bytes"],
        attributes["block_threads"],
        (attributes["x"], attributes["y"], attributes["z"]),
        attributes["wave"],
        attributes["units"],
        memory.value,
    )


def context(number: int) -> c_void_p:
    """The context of a device that all users in this process share."""
    device, shared = handle(number), c_void_p()
    driver()(f"device {number} can't be used", "cuDevicePrimaryCtxRetain", byref(shared), device)
    return shared
