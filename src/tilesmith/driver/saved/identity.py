"""Identity of a model in the cache: a hash of its bytes.

The cache also keeps the hash of a file under the state of that file, so that a second process need
not read 400 MB again.  The state includes the file's time of change.  The operating system sets
this time, and no program can set it back.  But two writes within one tick of the clock leave the
same time.  And a write to a page that is mapped into memory changes the time only when the page is
written back.  So the hash of a file is kept only if the file was not changed in the last
`SETTLED_SECONDS`.

This module imports little: threads hash a model while the rest of the package is imported.
"""

from __future__ import annotations

import mmap
import os
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any, NamedTuple, TypeAlias

from tilesmith.support.cache import Cache, Store, content_key
from tilesmith.support.folders import open_regular
from tilesmith.support.options import Options, cache_dir_from_environment

Stamp: TypeAlias = tuple[int, ...]
"""Numbers that change when a file changes: its identity, size and times.  Empty for bytes."""


SETTLED_SECONDS = 60
"""Seconds since a file's last change after which the file's state identifies its bytes.  This is
twice the time after which Linux writes back modified pages.
"""


class Identity(NamedTuple):
    """The state of a model's file and the key of its bytes.  A model given as bytes has no
    state.
    """

    stamp: Stamp
    content: str


Identified: TypeAlias = Callable[[], Identity | None]
"""Waits for the identity of a model."""


def keeps_programs(options: Options) -> bool:
    """Whether compiled programs are kept in the cache.  They are not kept if the options ask for
    output of the passes.
    """
    shown = options.dump or options.verify_each or options.time_passes
    return options.use_cache and not shown


def cache_of(options: Options, store: Store) -> Cache | None:
    """A store of the cache; None if the cache is not to be used."""
    if not options.use_cache:
        return None
    return Cache(options.cache_dir or cache_dir_from_environment(), options.cache_bytes, store)


def stamp_of(path: str | os.PathLike[str]) -> Stamp:
    """The state of a file.  Raises OSError."""
    return _stamp(os.stat(path))


def identify(model: Any, known: Cache | None = None) -> Identity | None:
    """The identity of a model that is a path or bytes.  None for other models, and for a file that
    can't be read: the frontend reports the error.

    known: the cache that keeps hashes of files.
    """
    try:
        if isinstance(model, bytes):
            return Identity((), content_key(memoryview(model)))
        if not isinstance(model, (str, os.PathLike)):
            return None
        with open_regular(model) as f:
            state = os.fstat(f.fileno())
            stamp = _stamp(state)
            key = content_key(memoryview(f"state of a file: {stamp}".encode()))
            known_content = known.get(key) if known is not None else None
            if known_content is not None:
                return Identity(stamp, known_content.decode())
            age = time.time() - max(state.st_mtime, state.st_ctime)
            content = content_key(memoryview(mmap.mmap(f.fileno(), 0, access=mmap.ACCESS_READ)))
            unchanged = _stamp(os.fstat(f.fileno())) == stamp
        settled = unchanged and age >= SETTLED_SECONDS
        # A read-only cache is used without a warning.
        if known is not None and settled and os.access(known.directory, os.W_OK):
            known.put(key, content.encode())
        return Identity(stamp, content)
    except (OSError, ValueError):
        return None


@contextmanager
def identifying(model: Any, options: Options, known: Cache | None) -> Iterator[Identified]:
    """A context in which the model's identity is computed in the background.  It yields a function
    that waits for the identity and returns it.  The function returns None if programs are not kept.

    known: the cache that keeps hashes of files.
    """
    if not keeps_programs(options):
        yield lambda: None
        return
    with ThreadPoolExecutor(1) as pool:
        yield pool.submit(identify, model, known).result


def _stamp(s: os.stat_result) -> Stamp:
    return (s.st_dev, s.st_ino, s.st_size, s.st_mtime_ns, s.st_ctime_ns)
