"""Calls of C libraries that may crash on damaged data, tried in a child process first."""

from __future__ import annotations

import os
import time
import warnings
from collections.abc import Callable
from contextlib import suppress

PATIENCE = 60.0
"""Seconds after which a call counts as one that does not end."""


def survives(call: Callable[[], object]) -> bool:
    """Whether this process would survive `call`: a child process makes it, and neither crashes nor
    runs longer than `PATIENCE`.  Exceptions of `call` are no crashes.  True where processes can't
    fork.
    """
    if not hasattr(os, "fork"):
        return True
    with warnings.catch_warnings():  # no warning about threads: the child only makes the call
        warnings.simplefilter("ignore", DeprecationWarning)
        child = os.fork()
    if child == 0:
        with suppress(BaseException):
            call()
        os._exit(0)
    end = time.monotonic() + PATIENCE
    pause = 0.001
    while time.monotonic() < end:
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            return os.WIFEXITED(status)
        time.sleep(pause)
        pause = min(2 * pause, 0.05)
    os.kill(child, 9)
    os.waitpid(child, 0)
    return False
