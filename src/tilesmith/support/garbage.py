"""Less frequent garbage collection while the compiler makes expressions.

Reference counts free expressions.  Few expressions are in cycles, but the search for cycles took 5
to 8% of a process's compile time.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Lock

ALLOCATIONS = 100_000
"""Number of allocated objects between two collections; Python's default is a few hundred."""

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
            if 0 < _before[0] < ALLOCATIONS:
                gc.set_threshold(ALLOCATIONS, *_before[1:])
    try:
        yield
    finally:
        with _lock:
            _inside -= 1
            if not _inside and gc.get_threshold()[0] == ALLOCATIONS:
                gc.set_threshold(*_before)
