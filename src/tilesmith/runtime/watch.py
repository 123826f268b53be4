"""The time that a call may take on a device."""

from __future__ import annotations

import time
from collections.abc import Callable

from tilesmith.support.errors import DeviceError

_FIRST_PAUSE, _LONGEST_PAUSE = 20e-6, 1e-3
"""Seconds between two questions to the driver: from the first, twice as long each time."""


class Watch:
    """The time that a call may take on a device; one for each executable.

    seconds: of a call; None: as many as it needs, and nothing is asked.
    """

    def __init__(self, seconds: float | None) -> None:
        self.seconds = seconds
        self._end: float | None = None

    def start(self) -> None:
        """A call begins."""
        if self.seconds is not None:
            self._end = time.monotonic() + self.seconds

    @property
    def is_set(self) -> bool:
        """Whether the call has an end."""
        return self._end is not None

    def wait(self, device: str, is_busy: Callable[[], bool]) -> None:
        """Wait until a device is not busy; return at once if no time is set.

        device: its name.

        Raises DeviceError when the time of the call is over.
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
