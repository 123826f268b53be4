"""What nests deeper than Python's stack: done with a larger one, or refused by a typed error.

Walks of expressions have stacks of their own.  Passes over statements call themselves once for each
level of branches, loops and names, as what is inside them asks for what is known around it.
"""

from __future__ import annotations

import contextvars
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from typing import ParamSpec, TypeVar

from .errors import TilesmithError

LEVELS = 20_000
"""Calls in one another on a larger stack."""
_BYTES = 256 << 20
"""Of the larger stack: 13 KB for each call, several times what those through C take.  Memory is
used as far as calls reach.
"""

_lock = threading.Lock()
_inside = 0
_before = 0
_here = threading.local()

P = ParamSpec("P")
R = TypeVar("R")


@contextmanager
def depth_checked(kind: type[TilesmithError], what: str, advice: str) -> Iterator[None]:
    """Within: a RecursionError becomes an error of this kind.

    what: what nests too deep.
    advice: what to do about it.
    """
    try:
        yield
    except RecursionError:
        raise kind(f"{what} nests deeper than can be compiled; {advice}") from None


def at_depth(
    kind: type[TilesmithError], what: str, advice: str
) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Decorates a function that has no effects: where Python's stack ends it is called once more,
    in a thread with a larger one.  If that ends too, there is an error of this kind.

    what: what nests too deep.
    advice: what to do about it.
    """

    def decorated(function: Callable[P, R]) -> Callable[P, R]:
        @wraps(function)
        def call(*args: P.args, **kwargs: P.kwargs) -> R:
            with depth_checked(kind, what, advice):
                try:
                    return function(*args, **kwargs)
                except RecursionError:
                    if getattr(_here, "is_deep", False):
                        raise
                return _with_room(lambda: function(*args, **kwargs))

        return call

    return decorated


def _with_room(function: Callable[[], R]) -> R:
    """What the function gives, or raises, on a larger stack.

    Raises RecursionError also where there is no memory for one.
    """
    found: list[R] = []
    failed: list[BaseException] = []
    context = contextvars.copy_context()

    def run() -> None:
        _here.is_deep = True
        try:
            found.append(context.run(function))
        except BaseException as e:  # raised again by the thread that waits
            failed.append(e)

    thread = threading.Thread(target=run, name="tilesmith-deep", daemon=True)
    with _deep_calls():
        with _lock:
            size = threading.stack_size(_BYTES)
            try:
                thread.start()
            except RuntimeError:
                raise RecursionError("no memory for a larger stack") from None
            finally:
                threading.stack_size(size)
        thread.join()  # an interrupt ends it: then the thread's calls are too deep, and it ends
    if failed:
        raise failed[0]
    return found[0]


@contextmanager
def _deep_calls() -> Iterator[None]:
    """Within it, Python allows `LEVELS` calls in one another; several threads may enter it."""
    global _inside, _before
    with _lock:
        _inside += 1
        if _inside == 1:
            _before = sys.getrecursionlimit()
            sys.setrecursionlimit(max(_before, LEVELS))
    try:
        yield
    finally:
        with _lock:
            _inside -= 1
            if _inside == 0:
                sys.setrecursionlimit(_before)
