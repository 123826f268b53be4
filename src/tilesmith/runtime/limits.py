"""Limits of an executable: its memory, and on a device the time of a call."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

from tilesmith.support.errors import DeviceError, UsageError
from tilesmith.support.options import Options

from .program import Program


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits of an executable; None: no limit.

    memory: bytes of the device's memory, or on a CPU of intermediate values.
    seconds: time of a call on a device.
    """

    memory: int | None = None
    seconds: float | None = None

    @staticmethod
    def of(options: Options) -> Limits:
        return Limits(options.memory_limit, options.time_limit)

    def check(self, program: Program) -> None:
        """Raises UsageError if a program of a CPU is above the limit of its memory, or if there is
        a time limit for it.
        """
        if program.target.device is not None:
            return
        if self.seconds is not None:
            raise UsageError(
                f"time_limit: expected a target that is a device, found {program.target.name!r}; "
                "leave it out"
            )
        if self.memory is not None and program.arena_bytes > self.memory:
            raise UsageError(
                f"memory_limit: expected a program with at most {self.memory} bytes of "
                f"intermediate values, found {program.arena_bytes}; raise memory_limit, or compile "
                "the model with it"
            )


UNLIMITED = Limits()


_FIRST_PAUSE, _LONGEST_PAUSE = 20e-6, 1e-3
"""Seconds between two polls of the driver: the first pause, and the longest.  Each pause is twice
as long as the one before.
"""


class Watch:
    """The time that a call may take on a device; one object for each executable.

    seconds: limit for a call; None for no limit, in which case the device is not polled.
    """

    def __init__(self, seconds: float | None) -> None:
        self.seconds = seconds
        self._end: float | None = None

    def start(self) -> None:
        """Record that a call begins."""
        if self.seconds is not None:
            self._end = time.monotonic() + self.seconds

    @property
    def is_set(self) -> bool:
        """Whether the call has a time limit."""
        return self._end is not None

    def wait(self, device: str, is_busy: Callable[[], bool]) -> None:
        """Wait until a device is not busy.  Without a time limit, return at once.

        device: its name.

        Raises DeviceError when the call exceeds its time limit.
        """
        if self._end is None:
            return
        pause = _FIRST_PAUSE
        while is_busy():
            if time.monotonic() >= self._end:
                raise DeviceError(
                    f"{device}: expected a call of at most {self.seconds:g} s (time_limit), found "
                    "kernels that still run; raise time_limit, or use smaller sizes"
                )
            time.sleep(pause)
            pause = min(2 * pause, _LONGEST_PAUSE)
