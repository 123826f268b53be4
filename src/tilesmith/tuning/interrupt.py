"""Ctrl-C while tuning: the first one stops the search and keeps its results, the second one ends
the program.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

from tilesmith.support.signals import interrupt_once, raise_noted


class Interrupt:
    """Whether the user requested a stop.  Any thread may set `requested`."""

    def __init__(self) -> None:
        self.requested = False

    @contextmanager
    def on_signal(self) -> Iterator[None]:
        """Inside this context the first SIGINT sets `requested` and raises nothing, so that no
        trial and no record is cut short.

        A second one raises KeyboardInterrupt as usual.  An application's own handler of SIGINT is
        kept.  Outside the main thread nothing changes.
        """
        raise_noted()
        is_main = threading.current_thread() is threading.main_thread()
        usual = signal.getsignal(signal.SIGINT)
        if not is_main or usual not in (signal.default_int_handler, interrupt_once):
            yield
            return

        def request(_number: int, _frame: FrameType | None) -> None:
            self.requested = True
            signal.signal(signal.SIGINT, usual)

        signal.signal(signal.SIGINT, request)
        try:
            yield
        finally:
            if signal.getsignal(signal.SIGINT) is request:
                signal.signal(signal.SIGINT, usual)
