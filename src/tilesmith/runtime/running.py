"""The runner of a program.  Only what the program needs is imported."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from .limits import UNLIMITED, Limits
from .program import Program
from .runner import Runner, Sizes


def runner_of(
    program: Program,
    threads: int | None = None,
    limits: Limits = UNLIMITED,
    stand_in: Callable[[], Any] | None = None,
) -> Runner:
    """The runner of a program.

    limits: limits for a device's memory and time.
    stand_in: makes the executable for the CPU that is used after the device has failed.

    Raises ModelError if this machine lacks features that the program needs, DeviceError if its
    device can't be used or has not enough memory.
    """
    if program.parts:
        from .parts_runner import PartsRunner as kind
    elif program.target.device is not None:
        from .device_runner import DeviceRunner as kind
    else:
        from .host_runner import HostRunner

        return HostRunner(program, threads)
    from .guarded_runner import GuardedRunner

    return GuardedRunner(kind(program, threads, limits), stand_in)


def runner_of_sizes(
    programs: Sequence[tuple[Sizes, Program]], threads: int, limits: Limits = UNLIMITED
) -> Runner:
    """The runner of several programs: the first one is for all sizes, the others for some sizes."""
    (_, program), *fixed = programs
    if not fixed:
        return runner_of(program, threads, limits)
    from .sized_runner import SizedRunner

    return SizedRunner(program, threads, fixed)
