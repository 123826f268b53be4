"""Handling of signals that ask the program to end."""

from __future__ import annotations

import signal
from types import FrameType
from typing import NoReturn

_noted: list[tuple[signal.Signals, BaseException]] = []


def note(number: int, raised: BaseException) -> None:
    """Record the exception that a handler raises for this signal."""
    _noted[:] = [(signal.Signals(number), raised)]


def noted() -> signal.Signals | None:
    """The last signal for which a handler raised.

    The exception itself may get lost: during the import of a C module, Python's import machinery or
    the module may turn it into an ImportError.
    """
    return _noted[0][0] if _noted else None


def raise_noted() -> None:
    """Raise the handler's exception again, if there was a signal.

    C modules may clear an exception while they are being imported; the program then continues.  The
    signal is ignored after its first arrival, so nothing else would end the program.  Reports of
    progress call this function.
    """
    if _noted:
        raise _noted[0][1]


def forget() -> None:
    """Forget the recorded signal and exception, before other work begins."""
    _noted.clear()


def interrupt_once(number: int, _frame: FrameType | None) -> NoReturn:
    """Raises KeyboardInterrupt.  The signal is ignored afterwards, so that nothing interrupts
    cleaning up.
    """
    signal.signal(number, signal.SIG_IGN)
    raised = KeyboardInterrupt()
    note(number, raised)
    raise raised
