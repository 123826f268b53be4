"""Ctrl-C while tuning: the first asks to stop and keep the best, the second ends the program."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


class Interrupt:
    """Whether somebody asked to stop.  `requested` may be set by anyone, from any thread."""

    def __init__(self) -> None:
        self.requested = False

    @contextmanager
    def on_signal(self) -> Iterator[None]:
        """Within: the first SIGINT sets `requested` and raises nothing, so that no trial and no
        record is cut short; a second one raises KeyboardInterrupt as ever.  An application's own
        handler of SIGINT stays, and so does what other threads than the main one see (nothing).
        """
        is_main = threading.current_thread() is threading.main_thread()
        if not is_main or signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
            yield
            return

        def request(_number: int, _frame: FrameType | None) -> None:
            self.requested = True
            signal.signal(signal.SIGINT, signal.default_int_handler)

        signal.signal(signal.SIGINT, request)
        try:
            yield
        finally:
            signal.signal(signal.SIGINT, signal.default_int_handler)
