"""What the program does with signals that ask it to end."""

from __future__ import annotations

import signal
from types import FrameType
from typing import NoReturn

_noted: list[tuple[signal.Signals, BaseException]] = []


def note(number: int, raised: BaseException) -> None:
    """Remember what a handler raises for this signal."""
    _noted[:] = [(signal.Signals(number), raised)]


def noted() -> signal.Signals | None:
    """The last signal for which a handler raised.

    What it raised may not arrive: where a module in C is imported, Python's import machinery or the
    module itself may turn it into an ImportError.
    """
    return _noted[0][0] if _noted else None


def raise_noted() -> None:
    """Raises again what a handler raised, if there was a signal.

    Work that goes on after a signal has swallowed it: modules in C may clear whatever Python raised
    while they were being imported.  The signal itself is ignored from then on, so that nothing else
    would end the program.  Reports of progress call this.
    """
    if _noted:
        raise _noted[0][1]


def forget() -> None:
    """Forget the signal, before other work begins."""
    _noted.clear()


def interrupt_once(number: int, _frame: FrameType | None) -> NoReturn:
    """Raises KeyboardInterrupt.  The signal again does nothing: cleaning up goes on, and the exit
    code stays.
    """
    signal.signal(number, signal.SIG_IGN)
    raised = KeyboardInterrupt()
    note(number, raised)
    raise raised
