"""Locks in forked children.  Of the parent's threads, a child has only the one that forked.  Locks
that other threads held stay locked in the child.

Nothing would ever release such a lock in the child, and the child would wait for it for ever.  For
instance, a server loads its models and forks its workers while `specialise="auto"` compiles on
another thread.  So a fork first acquires the locks of state that a child can't take over
(`wait_in_forks`).  Locks of single objects are replaced by new ones in the child
(`renew_in_children`).  `subprocess` is not affected: its children run another program.
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
    """Make every later fork acquire a reentrant lock, which parent and child then release.

    level: order of acquisition.  Threads that hold two such locks must take the one of lower level
        first.
    """
    _waited.append((level, acquire, release))
    _waited.sort(key=lambda entry: entry[0])


def renew_in_children(owner: _Owner) -> None:
    """Replace `owner._lock` by a new lock in each later forked child.  The data that the lock
    guards must be valid between any two Python instructions.
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
