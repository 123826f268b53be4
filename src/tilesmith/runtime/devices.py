"""The devices of this machine, each opened once through its driver."""

from __future__ import annotations

from tilesmith.ir.target import Target
from tilesmith.support.errors import UsageError

from .device import OpenDevice


def opened(target: Target) -> OpenDevice:
    """The device of a target.  Raises DeviceError if it is not there, or can't be used."""
    assert target.device is not None
    if target.backend == "opencl":
        from . import opencl

        return opencl.opened(target.device.number)
    if target.backend == "cuda":
        from . import cuda

        return cuda.opened(target.device.number)
    raise UsageError(f"target {target.name!r} is no device that this machine's programs can run on")


def is_there(target: Target) -> bool:
    """False where no driver has a device for a target that any machine can compile for."""
    if target.backend == "cuda":
        from tilesmith.codegen.cuda import driver

        return driver.count() > 0
    return True  # opening it says what is wrong


def shares_memory(target: Target) -> bool:
    """Whether calls take arrays of other libraries where they lie on the device."""
    return target.backend == "cuda"
