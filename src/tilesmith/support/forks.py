"""Forks: the child has only the thread that forked, and every lock in its current state.

A lock that another thread held would never be released in the child, which would wait for ever.  A
server that loads its models and then forks its workers can cause this, for instance while
`specialise="auto"` compiles on another thread.  So a fork waits until no thread is in a state that
a child can't take over (`wait_in_forks`), and locks of single objects are new in the child
(`renew_in_children`).  `subprocess` runs none of this: its children run another program.
"""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Callable
from typing import Any, Protocol


class _Owner(Protocol):
    _lock: threading.Lock


_waited: list[tuple[int, Callable[[], Any], Callable[[], Any]]] = []
_owners: weakref.WeakSet[Any] = weakref.WeakSet()


def wait_in_forks(level: int, acquire: Callable[[], Any], release: Callable[[], Any]) -> None:
    """From now on a fork holds a reentrant lock, which parent and child release.

    level: if a thread holds two such locks, the one that it takes first has the lower level.
    """
    _waited.append((level, acquire, release))
    _waited.sort(key=lambda entry: entry[0])


def renew_in_children(owner: _Owner) -> None:
    """From now on `owner._lock` is a new lock in each forked child.  The data that it guards must
    be valid between any two steps of Python.
    """
    _owners.add(owner)


def _before() -> None:
    for _, acquire, _ in _waited:
        acquire()


def _after() -> None:
    for _, _, release in reversed(_waited):
        release()


def _in_child() -> None:
    _after()
    for owner in list(_owners):
        owner._lock = threading.Lock()


if hasattr(os, "register_at_fork"):  # Windows has no fork
    os.register_at_fork(before=_before, after_in_parent=_after, after_in_child=_in_child)
