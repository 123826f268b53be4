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
    raise UsageError(f"target {target.name!r} is no device that this machine's programs can run on")
