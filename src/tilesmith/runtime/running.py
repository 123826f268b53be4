"""What runs a program: on the CPU or on a device.  Only what is needed is imported."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .limits import UNLIMITED, Limits

if TYPE_CHECKING:
    from .executable import Executable
    from .program import Program


def executable(
    program: Program, threads: int | None = None, limits: Limits = UNLIMITED
) -> Executable:
    """The executable of a program.

    limits: what it may take of a device.

    Raises ModelError if this machine lacks what it was compiled for, DeviceError if its device is
    not there or has not enough memory.
    """
    if program.parts:
        from .partitioned import PartitionedExecutable

        return PartitionedExecutable(program, threads, limits)
    if program.target.device is None:
        from .executable import Executable

        return Executable(program, threads)
    from .device_executable import DeviceExecutable

    return DeviceExecutable(program, threads, limits)
