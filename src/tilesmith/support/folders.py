"""Files and folders that are written completely or not at all, private folders, and tests whether a
folder can be trusted.
"""

from __future__ import annotations

import errno
import io
import os
import shutil
import stat
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import fields, replace
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, BinaryIO, TypeVar

from .errors import UsageError

if TYPE_CHECKING:
    from _typeshed import DataclassInstance


@contextmanager
def filled(folder: Path) -> Iterator[Path]:
    """Yields an empty folder to write to; at the end its files are moved to `folder`.

    If the body fails, `folder` is unchanged (or stays absent).  A new `folder` appears by one
    rename.  In a folder that exists, each file is replaced by a rename: processes that have the old
    file open or mapped keep the old contents.  Files with other names stay.

    Raises OSError if `folder` can't be written.
    """
    folder = folder.absolute()  # a compiler might read a relative path as an option
    # A temporary folder must be on the same file system.
    near = next(p for p in (folder, *folder.parents) if p.exists())
    if near == folder and not folder.is_dir():
        raise NotADirectoryError(errno.ENOTDIR, "it is a file, expected a folder", str(folder))
    scratch = Path(tempfile.mkdtemp(prefix=".tilesmith-", dir=near))
    try:
        made = scratch / "new"
        made.mkdir()  # with the permissions of an ordinary folder
        yield made
        if near == folder:
            for path in sorted(p for p in made.rglob("*") if not p.is_dir()):
                to = folder / path.relative_to(made)
                to.parent.mkdir(parents=True, exist_ok=True)
                os.replace(path, to)
        else:
            folder.parent.mkdir(parents=True, exist_ok=True)
            os.rename(made, folder)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


T = TypeVar("T", bound="DataclassInstance")


def written_in(folder: Path, write: Callable[[Path], T]) -> T:
    """Call `write` on a temporary folder, and move the folder's files to `folder`.  Returns the
    dataclass object that `write` returned, with its paths changed to those in `folder`.

    Raises UsageError if `folder` can't be written.
    """

    def moved(value: Any) -> Any:
        if isinstance(value, tuple):
            return tuple(map(moved, value))
        return folder / value.relative_to(scratch) if isinstance(value, Path) else value

    with writing(folder), filled(folder) as scratch:
        made = write(scratch)
    return replace(made, **{f.name: moved(getattr(made, f.name)) for f in fields(made)})


@contextmanager
def scratch_folder() -> Iterator[Path]:
    """Yields an empty folder for temporary files, which is removed at the end.

    Raises UsageError for an OSError of the body; the message names the folder.
    """
    try:
        with tempfile.TemporaryDirectory(prefix="tilesmith-") as made:
            yield Path(made)
    except OSError as e:
        place = tempfile.tempdir or os.environ.get("TMPDIR", "/tmp")
        raise UsageError(
            f"temporary files can't be written to {place!r}: {e.strerror or e}; make room there, "
            "or set TMPDIR to another folder"
        ) from e


@contextmanager
def written(path: Path) -> Iterator[IO[bytes]]:
    """Yields a stream; at the end the file `path` has the contents written to it.

    If the body fails, `path` is unchanged (or stays absent).  A file that exists is replaced by a
    rename: processes that have the old file open or mapped keep the old contents.  A symbolic link
    stays, and its target is replaced.  A stream (see `is_stream`) is not replaced: the bytes are
    written to it at the end.

    Raises OSError if `path` can't be written.
    """
    if is_stream(path):  # links are not resolved yet, since those in /dev/fd name no files
        content = io.BytesIO()
        yield content
        number = _descriptor(path)
        # A descriptor is written from its current position, which it may share with other
        # processes.
        with path.open("wb") if number is None else os.fdopen(os.dup(number), "wb") as device:
            device.write(content.getbuffer())
        return
    path = Path(os.path.realpath(path))
    handle, name = tempfile.mkstemp(prefix=f".{path.name[:32]}-", suffix=".part", dir=path.parent)
    try:
        with os.fdopen(handle, "wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.chmod(name, 0o666 & ~_umask())
        os.replace(name, path)
    except BaseException:
        os.unlink(name)
        raise


def is_stream(path: Path) -> bool:
    """Whether `path` is a device, a pipe or an open descriptor, such as /dev/null, /dev/stdout or
    /dev/fd/3: these are written in place.
    """
    if _descriptor(path) is not None:
        return True
    return path.exists() and not path.is_file() and not path.is_dir()


_MOST_LINKS = 40
"""Linux's limit on symbolic links in the resolution of one path."""


def _descriptor(path: Path) -> int | None:
    """The number of the open descriptor that `path` names, directly or through links.  None if it
    names no descriptor.
    """
    folders = {os.path.realpath(p) for p in ("/dev/fd", "/proc/self/fd")}
    name = os.path.abspath(path)
    for _ in range(_MOST_LINKS):
        folder, last = os.path.split(name)
        if last.isdecimal() and os.path.realpath(folder) in folders:
            return int(last)
        if not os.path.islink(name):
            return None
        name = os.path.join(folder, os.readlink(name))
    return None


@contextmanager
def writing(path: Path) -> Iterator[None]:
    """Raises UsageError, which names `path`, instead of an OSError of the body."""
    try:
        yield
    except OSError as e:
        raise UsageError(f"{str(path)!r} can't be written: {e.strerror or e}") from e


def copied(source: Path, path: Path) -> None:
    """Copy a file, as `written` does.  Raises UsageError if `path` can't be written."""
    with writing(path), written(path) as f:
        f.write(source.read_bytes())


def write_text(path: Path, text: str) -> None:
    """Write a text in UTF-8, as `written` does.  A lone surrogate is written as its escape
    sequence.

    Raises OSError if `path` can't be written.
    """
    with written(path) as f:
        f.write(text.encode("utf-8", "backslashreplace"))


def _umask() -> int:
    """The process's umask.  The system only returns it when a new one is set."""
    mask = os.umask(0)
    os.umask(mask)
    return mask


def make_private(folder: Path) -> None:
    """Create a folder, and the missing folders above it, for this user alone.

    Raises OSError.
    """
    if folder.is_dir():
        return
    if folder.parent != folder:
        make_private(folder.parent)
    folder.mkdir(mode=0o700, exist_ok=True)


def distrusted(path: Path) -> str:
    """The reason why users other than this one and root could change the contents of `path`; empty
    if they can't.

    `path`: without symbolic links (see `Path.resolve`).  All folders above it are checked too:
        users who may write to a folder may replace its entries.  In a sticky folder, such as /tmp,
        only the owner of an entry may replace it.

    Raises OSError.
    """
    for level in (path, *path.parents):
        why = distrusted_entry(level, os.stat(level), is_last=level == path)
        if why:
            return why
    return ""


def distrusted_entry(path: Path, info: os.stat_result, *, is_last: bool = True) -> str:
    """Like `distrusted`, but only for one file or folder, not for the folders above it.

    is_last: whether `path` is the path to be trusted, not a folder above it.  A sticky folder is
        trusted only as a folder above.
    """
    if info.st_uid not in (0, os.geteuid()):
        return f"{path} belongs to another user (number {info.st_uid})"
    if not is_last and info.st_mode & stat.S_ISVTX:
        return ""
    if info.st_mode & stat.S_IWOTH:
        return f"anybody may write to {path}; chmod o-w it"
    # Two groups have only trusted members: root's group, and the user's own group (same number as
    # the user).
    if info.st_mode & stat.S_IWGRP and info.st_gid not in (0, info.st_uid):
        return f"the group {info.st_gid} may write to {path}; chmod g-w it"
    return ""


def open_regular(path: str | os.PathLike[str]) -> BinaryIO:
    """The open file, for reading.  Raises OSError if there is no regular file that can be read."""
    # O_NONBLOCK: opening a FIFO must not wait for a writer.
    flags = os.O_RDONLY | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_NONBLOCK", 0)
    fd = os.open(path, flags | getattr(os, "O_BINARY", 0))
    try:
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            raise OSError(0, "it is not a regular file", os.fspath(path))
        return os.fdopen(fd, "rb")
    except BaseException:
        os.close(fd)
        raise


def read_regular(path: str | os.PathLike[str]) -> bytes:
    """The contents of a regular file.  Raises OSError as `open_regular` does."""
    with open_regular(path) as f:
        return f.read()
