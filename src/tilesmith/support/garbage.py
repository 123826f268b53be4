"""Less frequent garbage collection while the compiler is imported and makes expressions.

Reference counts free expressions.  Few objects are in cycles, but with Python's default thresholds
the search for cycles took 11% of a process's compile time.  Most of it was repeated searches of
objects that stay: classes, functions and graphs.  So older objects are rarely searched.  Young
objects are searched often enough to be still in the processor's cache.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Lock

YOUNG = 5_000
"""Number of allocated objects between two searches of young objects; Python's default is a few
hundred.
"""
OLDER = 1_000
"""Number of searches of young objects between two searches of older ones; Python's default is 10.
"""

_lock = Lock()
_inside = 0
_before = (0, 0, 0)


@contextmanager
def rarely_collected() -> Iterator[None]:
    """A context in which Python collects cyclic garbage less often.  Several threads may enter it.
    When the last thread leaves, the thresholds are restored, unless other code has changed them.
    """
    global _inside, _before
    with _lock:
        _inside += 1
        if _inside == 1:
            _before = gc.get_threshold()
            if 0 < _before[0] < YOUNG:
                gc.set_threshold(YOUNG, OLDER, _before[2])
    try:
        yield
    finally:
        with _lock:
            _inside -= 1
            if not _inside and gc.get_threshold()[:2] == (YOUNG, OLDER):
                gc.set_threshold(*_before)
