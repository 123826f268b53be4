"""Constants of programs as files of the cache, which processes map and share.

A file's key is a hash of its bytes.  Files of the cache are created by renaming or linking and
never changed, so whatever happens to the file that a program came from, the mapped bytes stay.
"""

from __future__ import annotations

import numpy as np

from tilesmith.runtime.native import aligned_bytes, zeroed_bytes
from tilesmith.runtime.program import Blob
from tilesmith.runtime.tsm import mapped
from tilesmith.support.cache import Cache, Room

SHARE = 1 / 3
"""Largest fraction of the cache of programs that one program may take."""

LEAST_SHARED = 1 << 20
"""Smallest size of a compiled file's weights that are worth a file in the cache."""


def allocated(cache: Cache, size: int) -> Blob:
    """Zeroed memory for constants: a file of the cache where that is possible, so that keeping them
    needs no copy.
    """
    room = cache.room(size) if size <= SHARE * cache.max_bytes else None
    return zeroed_bytes(size) if room is None else np.frombuffer(room, np.uint8)


def completed(blob: Blob) -> Room | None:
    """Declare that memory from `allocated` is filled.  The memory can't be written any more.
    Returns the file if the memory is a file, else None.
    """
    room = room_of(blob)
    if room is not None:
        room.complete()
        blob.flags.writeable = False
    return room


def room_of(blob: Blob) -> Room | None:
    """The cache file that contains a blob of constants."""
    owner = blob.base.obj if isinstance(blob.base, memoryview) else blob.base
    return owner if isinstance(owner, Room) else None


def allocated_to_share(cache: Cache, size: int) -> Blob:
    """Memory for the weights of a compiled file.  `shared` then shares them among processes."""
    return allocated(cache, size) if size >= LEAST_SHARED else aligned_bytes(size)


def shared(cache: Cache, blob: Blob) -> Blob:
    """Store weights as a file of the cache, and return that file, mapped into memory.  All
    processes that need these weights map this file.  If the cache can't store them, `blob` is
    returned.

    blob: the weights, in memory from `allocated_to_share`.
    """
    room = completed(blob)
    if room is None or room.key is None:
        return blob
    cache.put_room(room, room.key)  # the file of a faster process is kept
    file = cache.file(room.key)
    common = None if file is None else mapped(file, blob.nbytes)
    if common is None or not np.array_equal(common, blob):
        cache.remove_damaged(room.key)
        return blob
    return common
