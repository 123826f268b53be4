"""The devices of this machine, each opened once through its driver."""

from __future__ import annotations

from tilesmith.ir.target import Target
from tilesmith.support.errors import UsageError

from .device import OpenDevice


def opened(target: Target) -> OpenDevice:
    """The device of a target, opened.  Raises DeviceError if it is missing or can't be used."""
    assert target.device is not None
    if target.backend == "opencl":
        from . import opencl

        return opencl.opened(target.device.number)
    if target.backend == "cuda":
        from . import cuda

        return cuda.opened(target.device.number)
    raise UsageError(f"target {target.name!r} is no device that this machine's programs can run on")


def is_there(target: Target) -> bool:
    """Whether this machine has the device of a target.  Only CUDA targets are tested, since a
    machine without a CUDA device can compile for CUDA.  The result is True for all other targets.
    """
    if target.backend == "cuda":
        from tilesmith.codegen.cuda import driver

        return driver.count() > 0
    return True  # opening a missing device raises an error


def shares_memory(target: Target) -> bool:
    """Whether calls accept arrays of other libraries in device memory."""
    return target.backend == "cuda"
