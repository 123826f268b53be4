"""The driver of NVIDIA's GPUs: its library, its errors, and what it says of devices.

The driver is called through its C interface by ctypes, and loaded when a device is asked for.
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
"""Files of the driver, which the system finds."""

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
"""By result of the driver, what it means and what to do."""

_ATTRIBUTES = {
    "block_threads": 1, "x": 2, "y": 3, "z": 4, "shared_bytes": 8, "wave": 10, "units": 16,
    "major": 75, "minor": 76,
}  # fmt: skip
"""Numbers of `CUdevice_attribute`."""


@dataclass(frozen=True, slots=True)
class Description:
    """What the driver says of a device.

    name: its maker's name for it.
    capability: compute capability, as (major, minor).
    shared_bytes: shared memory that a kernel may declare.
    block_threads: most threads of a block.
    block: most threads of a block along x, y and z.
    wave: threads of a warp.
    units: multiprocessors.
    memory_bytes: memory of the device.
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

        Raises DeviceError if it reports an error; what: what can't be done then.
        """
        self.last = getattr(self._library, function)(*args)
        self.check(what, self.last)

    def quietly(self, function: str, *args: Any) -> None:
        """Call a function whose errors change nothing."""
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
    """The driver, ready to be used.  Raises DeviceError if there is none, or it has no device."""
    found = None
    for name in NAMES:
        try:
            found = ctypes.CDLL(name)
            break
        except OSError:
            continue
    if found is None:
        raise DeviceError(
            f"expected the driver of an NVIDIA GPU ({' or '.join(NAMES)}), found none; install it, "
            "or compile for 'native'"
        )
    made = Driver(found)
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
    """The driver's name of a device.  Raises DeviceError if there are not so many."""
    cu = driver()
    if number >= (there := count()):
        raise DeviceError(
            f"expected a CUDA device number {number}, found {there}; nvidia-smi lists devices"
        )
    found = c_int()
    cu(f"device {number} can't be used", "cuDeviceGet", byref(found), number)
    return found.value


def description(number: int) -> Description:
    """What the driver says of a device.  Raises DeviceError if it is not there."""
    device, cu = handle(number), driver()
    what = f"device {number} can't be described"
    name, memory = create_string_buffer(256), c_size_t()
    cu(what, "cuDeviceGetName", name, 256, device)
    cu(what, "cuDeviceTotalMem_v2", byref(memory), device)
    found = {}
    for key, attribute in _ATTRIBUTES.items():
        value = c_int()
        cu(what, "cuDeviceGetAttribute", byref(value), attribute, device)
        found[key] = value.value
    return Description(
        name.value.decode("utf-8", "replace"),
        (found["major"], found["minor"]),
        found["shared_bytes"],
        found["block_threads"],
        (found["x"], found["y"], found["z"]),
        found["wave"],
        found["units"],
        memory.value,
    )


def context(number: int) -> c_void_p:
    """The context of a device that all users in this process share."""
    device, found = handle(number), c_void_p()
    driver()(f"device {number} can't be used", "cuDevicePrimaryCtxRetain", byref(found), device)
    return found
