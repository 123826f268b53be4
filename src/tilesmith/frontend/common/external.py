"""Safe opening of files with external tensor data.

A model names its data files itself, so a hostile model could name any file of the machine.  Files
are opened beneath the model's folder one path component at a time, relative to the folder opened
before (`openat`), and links are refused at every step, with one exception.  Only regular files are
read, and only within their size.

The exception: a data file may be a link to a file beneath the folder of the model's own file.
Caches store models in this way: the files are links into a folder of contents.  The target of a
link is opened with the same checks, beneath the folder of the model's own file.
"""

from __future__ import annotations

import errno
import os
import stat
import weakref
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from tilesmith.support.errors import ModelError
from tilesmith.support.mapped import write_stamp

_DIRECTORY = os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_DIRECTORY
_FILE = os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK


class ExternalFiles:
    """The data files beneath one folder.  Each file is opened once, and closed when nothing refers
    to it any more.  `opened` collects the files' names.

    home: the folder that data files may link to; None if links are refused.
    """

    def __init__(
        self, folder: Path | None, opened: set[str] | None = None, home: Path | None = None
    ) -> None:
        self._folder, self._home = folder, home
        self._opened = opened if opened is not None else set()
        self._open: dict[str, ExternalFile] = {}

    def open(self, location: str, what: str) -> ExternalFile:
        """The file at the relative path `location`.  Raises ModelError that names `what`."""
        if location not in self._open:
            self._open[location] = self._checked(location, what)
            self._opened.add(location)
        return self._open[location]

    def _checked(self, location: str, what: str) -> ExternalFile:
        if self._folder is None:
            raise ModelError(
                f"{what} has its data in the external file {location!r}, but the model was not "
                "given as a path; "
                "give the path of the model's file"
            )
        parts = location.replace("\\", "/").split("/")
        if (
            not location
            or "\0" in location
            or any(p in ("", "..") for p in parts)
            or parts[-1] == "."
            or ":" in parts[0]
        ):
            raise ModelError(
                f"{what}: expected external data in a file beneath the model's folder, found "
                f"location {location!r}"
            )
        inside = [p for p in parts if p != "."]
        try:
            fd = self._descriptor(self._folder, inside)
        except OSError as e:
            raise ModelError(
                f"{what}: cannot open external data {location!r} beneath the model's folder: "
                f"{e.strerror} "
                "(links are not followed, except to where the model's own file lies; put the file "
                "itself there)"
            ) from None
        info = os.fstat(fd)
        if not stat.S_ISREG(info.st_mode):
            os.close(fd)
            raise ModelError(
                f"{what}: expected a regular file as external data {location!r}, found another kind"
            )
        return ExternalFile(location, fd, info.st_size)

    def _descriptor(self, folder: Path, parts: Sequence[str]) -> int:
        """The descriptor of the file at `parts` beneath `folder`, or of the file that a link there
        leads to.
        """
        try:
            return _open_beneath(folder, parts)
        except OSError as e:
            if e.errno != errno.ELOOP or self._home is None:
                raise
            target = Path(os.path.realpath(folder.joinpath(*parts)))
            if self._home not in target.parents:
                raise
            return _open_beneath(self._home, target.relative_to(self._home).parts)


def _open_beneath(folder: Path, parts: Sequence[str]) -> int:
    """The descriptor of the file at `parts` beneath `folder`.  None of the parts may be a link."""
    opened: list[int] = []
    try:
        here = os.open(folder, os.O_RDONLY | os.O_CLOEXEC | os.O_DIRECTORY)
        opened.append(here)
        for name in parts[:-1]:
            here = os.open(name, _DIRECTORY, dir_fd=here)
            opened.append(here)
        return os.open(parts[-1], _FILE, dir_fd=here)
    finally:
        for f in opened:
            os.close(f)


class ExternalFile:
    """An open data file; `read` may be called long after the model was checked."""

    def __init__(self, location: str, fd: int, size: int) -> None:
        self.location, self.size, self._fd = location, size, fd
        self._stamp = write_stamp(fd)
        weakref.finalize(self, os.close, fd)

    def read(self, offset: int, length: int) -> np.ndarray:
        """`length` bytes at `offset`.

        Raises ModelError when the file became shorter, or was written to, since it was opened.
        """
        out = np.empty(length, np.uint8)
        view, done = memoryview(out.data), 0
        while done < length:
            n = os.preadv(self._fd, [view[done : done + (1 << 30)]], offset + done)
            if n == 0:
                raise ModelError(
                    f"external data {self.location!r}: expected {length} bytes at offset {offset}, "
                    f"found {done}; the file became shorter while the model was loaded"
                )
            done += n
        if write_stamp(self._fd) != self._stamp:
            raise ModelError(
                f"external data {self.location!r} changed while the model was compiled; compile it "
                "again when nothing writes to it"
            )
        return out
