"""What the program does with signals that ask it to end."""

from __future__ import annotations

import signal
from types import FrameType
from typing import NoReturn

_noted: list[signal.Signals] = []


def note(number: int) -> None:
    """Remember that a handler raises for this signal."""
    _noted[:] = [signal.Signals(number)]


def noted() -> signal.Signals | None:
    """The last signal for which a handler raised.

    What it raised may not arrive: where a module in C is imported, Python's import machinery or the
    module itself may turn it into an ImportError.
    """
    return _noted[0] if _noted else None


def forget() -> None:
    """Forget the signal, before other work begins."""
    _noted.clear()


def interrupt_once(number: int, _frame: FrameType | None) -> NoReturn:
    """Raises KeyboardInterrupt.  The signal again does nothing: cleaning up goes on, and the exit
    code stays.
    """
    signal.signal(number, signal.SIG_IGN)
    note(number)
    raise KeyboardInterrupt
