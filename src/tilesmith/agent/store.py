"""Objects that callers sent, as files named by the SHA-256 digest of their contents.

An object appears whole, after its digest was checked, or not at all.  Old objects make room for new
ones.
"""

from __future__ import annotations

import hashlib
import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from threading import Lock

from tilesmith.support.errors import DeviceError, UnavailableError
from tilesmith.support.folders import make_private

_PIECE = 1 << 20


class Store:
    """The objects in a folder.

    folder: the folder.
    most_bytes: the size of all objects together.
    """

    def __init__(self, folder: Path, most_bytes: int) -> None:
        """Raises OSError if the folder can't be made."""
        make_private(folder)
        self.folder, self.most_bytes = folder, most_bytes
        self._lock = Lock()
        self._pending = 0  # bytes that are being received
        for left in folder.glob(".*.part"):  # of an agent that was killed
            left.unlink(missing_ok=True)

    def path(self, digest: str) -> Path | None:
        """The file of an object, which counts as used now; None if it is not there."""
        path = self.folder / digest
        try:
            os.utime(path)
        except FileNotFoundError:
            return None
        return path

    def put(self, digest: str, size: int, receive: Callable[[int], bytes]) -> None:
        """Keep an object of `size` bytes, which `receive` gives in pieces.

        Raises UnavailableError if there is no room, DeviceError if the contents do not have the
        digest, and the errors of `receive`.
        """
        self._reserve(size)
        try:
            handle, name = tempfile.mkstemp(".part", ".", self.folder)
            try:
                found = hashlib.sha256()
                with os.fdopen(handle, "wb") as f:
                    left = size
                    while left:
                        piece = receive(min(left, _PIECE))
                        if not piece:
                            raise EOFError
                        found.update(piece)
                        f.write(piece)
                        left -= len(piece)
                if found.hexdigest() != digest:
                    raise DeviceError(
                        f"object {digest[:12]}: expected contents of this digest, found "
                        f"{found.hexdigest()[:12]}"
                    )
                os.replace(name, self.folder / digest)
            except BaseException:
                Path(name).unlink(missing_ok=True)
                raise
        finally:
            with self._lock:
                self._pending -= size

    def _reserve(self, size: int) -> None:
        """Remove the objects that were not used for the longest time, until `size` bytes fit."""
        with self._lock:
            free = self.most_bytes - self._pending
            if size > free:
                raise UnavailableError(
                    f"expected at most {free} more bytes, found {size}: the agent keeps no more"
                )
            used = []
            for path in self.folder.glob("[0-9a-f]*"):
                info = path.stat()
                used.append((info.st_mtime_ns, info.st_size, path))
            total = self._pending + sum(n for _, n, _ in used)
            for _, n, path in sorted(used):
                if total + size <= self.most_bytes:
                    break
                path.unlink(missing_ok=True)
                total -= n
            self._pending += size
