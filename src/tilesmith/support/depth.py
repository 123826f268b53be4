"""Nesting deeper than Python's stack: the work is repeated with a larger stack, or refused by a
typed error.

Walks of expressions have their own stacks.  Passes over statements are recursive in each level of
branches, loops and names, since inner statements need the facts of outer ones.
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
"""Bytes of the larger stack: 13 KB for each call, several times the need of calls through C.
Memory is used only as deep as calls reach.
"""

_lock = threading.Lock()
_inside = 0
_before = 0
_here = threading.local()

P = ParamSpec("P")
R = TypeVar("R")


@contextmanager
def depth_checked(kind: type[TilesmithError], what: str, advice: str) -> Iterator[None]:
    """Context in which a RecursionError becomes an error of this kind.

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
    """Decorates a function without effects: if Python's stack overflows, it is called once more, in
    a thread with a larger one.  If that overflows too, an error of this kind is raised.

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
        # An interrupt ends the wait, and the recursion limit is restored.  The thread's calls then
        # exceed the limit, so it ends.
        thread.join()
    if failed:
        raise failed[0]
    return results[0]


@contextmanager
def _deep_calls() -> Iterator[None]:
    """Context in which Python allows `LEVELS` recursive calls; several threads may enter it."""
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
