"""What a model is known by in the cache: a hash of its bytes.

This module imports little: threads hash a model while the rest of the package is imported.
"""

from __future__ import annotations

import mmap
import os
import stat
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any, NamedTuple, TypeAlias

from tilesmith.support.cache import content_key
from tilesmith.support.options import Options

Stamp: TypeAlias = tuple[int, ...]
"""What says that a file was not written to since: identity, size and times; none for bytes."""


class Identity(NamedTuple):
    """The state of a model's file and the key of its bytes; no state for a model that is bytes."""

    stamp: Stamp
    content: str


Identified: TypeAlias = Callable[[], Identity | None]
"""Waits for the identity of a model."""


def keeps_programs(options: Options) -> bool:
    """Whether compiled programs are kept: not where the passes are to be seen at work."""
    shown = options.dump or options.verify_each or options.time_passes
    return options.use_cache and not shown


def stamp_of(path: str | os.PathLike[str]) -> Stamp:
    """The state of a file.  Raises OSError."""
    return _stamp(os.stat(path))


def identify(model: Any) -> Identity | None:
    """The identity of a model that is a path or bytes; None for others and where it can't be read:
    the frontend says what is wrong.
    """
    try:
        if isinstance(model, bytes):
            return Identity((), content_key(memoryview(model)))
        if not isinstance(model, (str, os.PathLike)):
            return None
        # O_NONBLOCK: opening a FIFO must not wait for a writer.
        with open(os.open(model, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK), "rb") as f:
            state = os.fstat(f.fileno())
            if not stat.S_ISREG(state.st_mode):
                return None
            content = mmap.mmap(f.fileno(), 0, access=mmap.ACCESS_READ)
        return Identity(_stamp(state), content_key(memoryview(content)))
    except (OSError, ValueError):
        return None


@contextmanager
def identifying(model: Any, options: Options) -> Iterator[Identified]:
    """A function that waits for the model's identity, which threads find meanwhile; it gives None
    where programs are not kept.
    """
    if not keeps_programs(options):
        yield lambda: None
        return
    with ThreadPoolExecutor(1) as pool:
        yield pool.submit(identify, model).result


def _stamp(s: os.stat_result) -> Stamp:
    return (s.st_dev, s.st_ino, s.st_size, s.st_mtime_ns, s.st_ctime_ns)
