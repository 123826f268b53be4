"""Handling of nesting deeper than Python's stack: the work is repeated on a larger stack, or a
typed error is raised.

Walks of expressions keep explicit stacks.  Passes over statements recurse at each level of
branches, loops and names, since inner statements need facts about outer statements.
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
"""Recursion depth on the larger stack."""
_BYTES = 256 << 20
"""Bytes of the larger stack.  This is 13 KB for each call, several times what a call through C
needs.  The system provides only the pages that calls reach.
"""

_lock = threading.Lock()
_inside = 0
_before = 0
_here = threading.local()

P = ParamSpec("P")
R = TypeVar("R")


@contextmanager
def depth_checked(kind: type[TilesmithError], what: str, advice: str) -> Iterator[None]:
    """A context that turns a RecursionError into an error of class `kind`.

    what: name of the thing that nests too deep.
    advice: advice to the user.
    """
    try:
        yield
    except RecursionError:
        raise kind(f"{what} nests deeper than can be compiled; {advice}") from None


def at_depth(
    kind: type[TilesmithError], what: str, advice: str
) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Decorate a function without side effects.  If Python's stack overflows, the function is
    called once more, in a thread with a larger stack.  If that overflows too, an error of class
    `kind` is raised.

    what: name of the thing that nests too deep.
    advice: advice to the user.
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
                return _on_larger_stack(lambda: function(*args, **kwargs))

        return call

    return decorated


def _on_larger_stack(function: Callable[[], R]) -> R:
    """The result or the exception of the function on a larger stack.

    Raises RecursionError also if there is no memory for the stack.
    """
    results: list[R] = []
    failed: list[BaseException] = []
    context = contextvars.copy_context()

    def run() -> None:
        _here.is_deep = True
        try:
            results.append(context.run(function))
        except BaseException as e:  # the waiting thread raises it again
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
        # An interrupt ends the wait and restores the recursion limit.  The thread then exceeds the
        # limit and ends.
        thread.join()
    if failed:
        raise failed[0]
    return results[0]


@contextmanager
def _deep_calls() -> Iterator[None]:
    """A context in which Python allows `LEVELS` recursive calls.  Several threads may enter it."""
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
