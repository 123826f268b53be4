"""What the program does with SIGINT."""

from __future__ import annotations

import signal
from types import FrameType
from typing import NoReturn


def interrupt_once(number: int, _frame: FrameType | None) -> NoReturn:
    """Raises KeyboardInterrupt.  The signal again does nothing: cleaning up goes on, and the exit
    code stays.
    """
    signal.signal(number, signal.SIG_IGN)
    raise KeyboardInterrupt
