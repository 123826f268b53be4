"""Stores of compiled code on disk, addressed by a hash of everything that determines it.

A folder has a store for each kind of entry (`STORES`), with its own size limit.  Programs with
their weights are a thousand times as large as kernels and must not evict them.

An entry is one file, `STORE/ab/abcdef...`.  It consists of a checksum and the bytes.  Some
entries have a format of their own instead, which the reader checks in place.

- Entries are written to a temporary file and renamed.  So a reader sees a whole entry or none, and
  processes may share a folder.
- A damaged entry is removed and counts as absent.
- When a store exceeds its limit, the least recently used entries are removed (a hit updates the
  time of the entry's file).
- The contents will be executed.  So a folder or file of the cache is not used if users other than
  this one and root own it or may write to it, or to a folder above it.
- A folder that can't be used is reported once in the log.  Its stores then behave as if they were
  empty: a cache must never make a compilation fail.
"""

from __future__ import annotations

import contextlib
import hashlib
import mmap
import os
import re
import stat
import tempfile
import threading
import weakref
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import IO, Literal, TypeAlias

from tilesmith.support.errors import UsageError
from tilesmith.support.folders import distrusted, distrusted_entry, make_private
from tilesmith.support.forks import renew_in_children
from tilesmith.support.logs import logger

_log = logger("cache")
_DIGEST = 32
_MAGIC = b"TSC1"
_PIECE = 8 << 20  # bytes that a thread hashes at a time
_KEY = re.compile(r"[0-9a-f]{8,128}\Z")


Store: TypeAlias = Literal["kernels", "programs"]

STORES: dict[Store, float] = {"kernels": 0.25, "programs": 0.75}
"""Fraction of a folder's size limit for each store.  A kernel takes about 10 KB, so the store of
kernels holds the kernels of more than a thousand models.  A program takes as much as the model's
weights.
"""


@dataclass(frozen=True, slots=True)
class CacheStats:
    """The contents of a store, or of all stores of a folder.

    entries: number of entries.
    bytes: their total size.
    """

    entries: int
    bytes: int


def total(stats: Iterable[CacheStats]) -> CacheStats:
    """The sums over several stores."""
    rows = list(stats)
    return CacheStats(sum(r.entries for r in rows), sum(r.bytes for r in rows))


class Room(mmap.mmap):
    """Zeroed memory that is an unnamed file of a store (see `Cache.room`).

    Contents written to this memory are stored without a copy: the file gets a name.  A file
    without a name vanishes with the memory.

    key: the `content_key` of the bytes; None before `complete`.
    """

    key: str | None
    _fd: int

    def __new__(cls, fd: int, size: int) -> Room:
        """Map the open file `fd`.  The mapping closes the file."""
        self = super().__new__(cls, fd, size)
        self.key, self._fd = None, fd
        weakref.finalize(self, os.close, fd)
        return self

    def complete(self) -> None:
        """Declare the contents final, and compute `key`."""
        self.key = content_key(memoryview(self))

    def link(self, path: Path) -> None:
        """Give the file its name, unless a file with that name exists."""
        folder = os.open(path.parent, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
        try:  # only with `dst_dir_fd` does `os.link` follow the link in /proc
            with contextlib.suppress(FileExistsError):
                os.link(f"/proc/self/fd/{self._fd}", path.name, dst_dir_fd=folder)
        finally:
            os.close(folder)


class Cache:
    """`get` and `put` blobs by hexadecimal key in one store of a folder.

    `max_bytes` limits all stores of the folder together.  This store gets its fraction (`STORES`).
    """

    def __init__(
        self, directory: Path | str, max_bytes: int = 2 << 30, store: Store = "kernels"
    ) -> None:
        self.directory = Path(directory)
        self.max_bytes = int(max_bytes * STORES[store])
        self.hits = 0
        self.misses = 0
        self._objects = self.directory / store
        self._lock = threading.Lock()
        renew_in_children(self)
        self._size: int | None = None  # estimated bytes in the store; None until first needed
        self._usable: bool | None = None
        self._trusted: set[Path] = set()  # sub-folders of the store that passed the check

    def get(self, key: str) -> bytes | None:
        """The blob stored under `key`, or None."""
        path = self._path(key)
        blob = self._read(path) if self._is_usable(create=False) else None
        with self._lock:
            if blob is None:
                self.misses += 1
            else:
                self.hits += 1
        return blob

    def put(self, key: str, blob: bytes) -> None:
        """Store `blob` under `key`, replacing an earlier one."""

        def write(f: IO[bytes]) -> None:
            f.write(_MAGIC + _checksum(blob))
            f.write(blob)

        if len(blob) <= self.max_bytes:
            self.put_file(key, write)

    def file(self, key: str) -> Path | None:
        """The file stored under `key` by `put_file`, or None.  Another process may remove it."""
        path = self._path(key)
        if not self._is_usable(create=False) or not self._is_trusted(path):
            return None
        with contextlib.suppress(OSError):  # a read-only cache can still be used
            os.utime(path)
        return path

    def put_file(self, key: str, write: Callable[[IO[bytes]], object]) -> None:
        """Store a file under `key`.  `write` writes the contents to the open file.  No checksum is
        stored, so whoever reads the file must check it.
        """
        path = self._path(key)
        if not self._is_usable(create=True):
            return
        try:
            make_private(path.parent)
            fd, temporary = tempfile.mkstemp(prefix=".", dir=path.parent)
            try:
                with os.fdopen(fd, "wb") as f:
                    write(f)
                    size = f.tell()
                os.replace(temporary, path)
            except BaseException:
                Path(temporary).unlink(missing_ok=True)
                raise
        except OSError as e:
            self._give_up(str(e))
            return
        self._has_grown(size)

    def _has_grown(self, size: int) -> None:
        """Add a new entry to the estimated size, and evict old entries if the store is too
        large.
        """
        with self._lock:
            if self._size is None:
                self._size = self.stats().bytes
            else:
                self._size += size
            if self._size > self.max_bytes:
                self._size = self._evict(self.max_bytes * 9 // 10)

    def room(self, size: int) -> Room | None:
        """Memory of `size` bytes for an entry that `put_room` stores.  None if the disk has no
        space, or if the system does not support unnamed files.
        """
        if not hasattr(os, "O_TMPFILE") or not self._is_usable(create=True):
            return None
        try:
            make_private(self._objects)
            fd = os.open(self._objects, os.O_TMPFILE | os.O_RDWR | os.O_CLOEXEC, 0o600)
        except OSError:
            return None
        try:
            # Reserve the space, so that writing to the memory can't fail.
            os.posix_fallocate(fd, 0, size)
            return Room(fd, size)
        except OSError:
            os.close(fd)
            return None

    def put_room(self, room: Room, key: str) -> None:
        """Store `room` under `key`."""
        path = self._path(key)
        try:
            make_private(path.parent)
            room.link(path)
        except OSError as e:
            self._give_up(str(e))
            return
        self._has_grown(len(room))

    def remove_damaged(self, key: str) -> None:
        """Remove an entry whose contents turned out to be damaged."""
        path = self._path(key)
        if path.exists():
            _log.warning("removed the damaged cache entry %s", path)
            _unlink(path)

    def stats(self) -> CacheStats:
        """Number of entries of this store and their total size."""
        files = self._files()
        return CacheStats(len(files), sum(size for _, size, _ in files))

    def clear(self) -> CacheStats:
        """Remove every entry of this store.  Returns the statistics from before."""
        before = self.stats()
        with self._lock:
            self._size = self._evict(0)
        return before

    def _path(self, key: str) -> Path:
        if not _KEY.match(key):
            raise UsageError(f"a cache key is 8 to 128 lower-case hexadecimal digits, not {key!r}")
        return self._objects / key[:2] / key

    def _is_trusted(self, path: Path) -> bool:
        """Whether an entry exists, and only the user and root can have written it."""
        try:
            checked = [(path, os.lstat(path))]
            if path.parent not in self._trusted:
                checked.append((path.parent, os.lstat(path.parent)))
        except OSError:
            return False
        for place, info in checked:
            if why := distrusted_entry(place, info):
                _log.warning("an entry of the cache is not used, since it gets executed: %s", why)
                return False
        self._trusted.add(path.parent)
        return True

    def _read(self, path: Path) -> bytes | None:
        if not self._is_trusted(path):
            return None
        try:
            content = path.read_bytes()
        except OSError:
            return None
        head = len(_MAGIC) + _DIGEST
        blob = content[head:]
        if content[:head] != _MAGIC + _checksum(blob):
            self.remove_damaged(path.name)
            return None
        with contextlib.suppress(OSError):  # a read-only cache can still be used
            os.utime(path)
        return blob

    def _is_usable(self, create: bool) -> bool:
        with self._lock:
            if self._usable is not None:
                return self._usable
            try:
                if create:
                    make_private(self._objects)
                existing = self._objects if self._objects.exists() else self.directory
                resolved = existing.resolve(strict=True)
                why = distrusted(resolved)
            except FileNotFoundError:
                return False  # nothing is stored yet; a later `put` may create the folder
            except OSError as e:
                self._usable = False
                _say_once(f"the cache {self.directory} is not used: {e}")
                return False
            self._usable = not why
            if existing is self._objects:
                self._objects = resolved
            if why:
                _say_once(
                    f"the cache {self.directory} is not used, since its contents get executed: "
                    f"{why}, or choose another folder with TILESMITH_CACHE_DIR"
                )
            return self._usable

    def _give_up(self, why: str) -> None:
        with self._lock:
            self._usable = False
        _say_once(f"the cache {self.directory} is not used any more: {why}")

    def _files(self) -> list[tuple[float, int, Path]]:
        """Time of last use, size and path of every entry (and of temporary files that processes
        left when they ended).
        """
        files: list[tuple[float, int, Path]] = []
        try:
            folders = [f for f in os.scandir(self._objects) if f.is_dir(follow_symlinks=False)]
        except OSError:
            return []
        for folder in folders:
            try:
                entries = list(os.scandir(folder.path))
            except OSError:
                continue
            for e in entries:
                try:
                    s = e.stat(follow_symlinks=False)
                except OSError:  # another process evicted it
                    continue
                if stat.S_ISREG(s.st_mode):
                    files.append((s.st_mtime, s.st_size, Path(e.path)))
        return files

    def _evict(self, limit: int) -> int:
        """Remove the least recently used entries until at most `limit` bytes remain.  Returns the
        bytes that remain.
        """
        files = sorted(self._files())
        size = sum(s for _, s, _ in files)
        for _, bytes_, path in files:
            if size <= limit:
                break
            _unlink(path)
            size -= bytes_
        return size


def _checksum(blob: bytes) -> bytes:
    return hashlib.blake2b(blob, digest_size=_DIGEST).digest()


def _unlink(path: Path) -> None:
    # Ignore errors: another process removed the file, or the folder is read-only.
    with contextlib.suppress(OSError):
        path.unlink()


@cache
def _say_once(message: str) -> None:
    """Log a warning once, even if several stores of a folder report it."""
    _log.warning(message)


def cache_key(*parts: str | bytes) -> str:
    """A key for `Cache` from everything that determines a blob, the compiler itself included."""
    h = hashlib.blake2b(compiler_fingerprint().encode(), digest_size=20)
    for p in parts:
        raw = p.encode() if isinstance(p, str) else p
        h.update(len(raw).to_bytes(8, "little"))
        h.update(raw)
    return h.hexdigest()


def llvm_version() -> str:
    """The versions of llvmlite and of the LLVM inside it: both affect the generated code."""
    import llvmlite.binding  # imported late: this is the largest library

    return f"llvmlite {llvmlite.__version__}, LLVM {llvmlite.binding.llvm_version_info}"


def content_key(content: memoryview) -> str:
    """A key that depends only on the bytes: a hash of the hashes of pieces, which threads compute
    in parallel.
    """
    pieces = [content[start : start + _PIECE] for start in range(0, len(content), _PIECE)]
    with ThreadPoolExecutor(min(len(os.sched_getaffinity(0)), max(len(pieces), 1))) as pool:
        hashes = pool.map(lambda piece: hashlib.sha256(piece).digest(), pieces)
        return hashlib.sha256(b"".join(hashes)).hexdigest()


@cache
def compiler_fingerprint() -> str:
    """A hash of the compiler: LLVM's version, and the name, size and time of each of our files."""
    root = Path(__file__).resolve().parents[1]
    h = hashlib.blake2b(llvm_version().encode(), digest_size=16)
    files: list[str] = []
    for folder, inside, names in os.walk(root):
        inside[:] = (n for n in inside if n != "__pycache__")
        sources = (n for n in names if n.endswith((".py", ".so", ".c", ".h")))
        files += (os.path.join(folder, n) for n in sources)
    for path in sorted(files):
        s = os.stat(path)
        h.update(f"{path.removeprefix(str(root))}:{s.st_size}:{s.st_mtime_ns};".encode())
    return h.hexdigest()
