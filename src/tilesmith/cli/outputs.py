"""Destinations of a verb's output (`-o`): one that can't be written is refused before any work."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout, suppress
from pathlib import Path

from tilesmith.support.errors import UsageError
from tilesmith.support.folders import is_stream


def check_output(path: Path) -> None:
    """Raises UsageError unless a file, device or pipe `path` can be written."""
    _check_name(path)
    if path.is_dir():
        raise UsageError(f"{str(path)!r} is a folder; give the name of a file to write, in it")
    if is_stream(path):
        return
    folder = Path(os.path.realpath(path)).parent
    if not folder.is_dir():
        raise UsageError(f"the folder of {str(path)!r} does not exist; make it first")
    _check_access(path, folder)


def check_output_folder(path: Path) -> None:
    """Raises UsageError unless files can be written to the folder `path`, which may be absent."""
    _check_name(path)
    folder = path.absolute()
    near = next(p for p in (folder, *folder.parents) if p.exists())
    if not near.is_dir():
        raise UsageError(f"{str(path)!r} can't be written: {str(near)!r} is no folder")
    _check_access(path, near)


def _check_name(path: Path) -> None:
    if str(path) == "-":
        raise UsageError("-o -: give /dev/stdout for standard output; a file needs another name")


def _check_access(path: Path, folder: Path) -> None:
    if not os.access(folder, os.W_OK | os.X_OK):
        raise UsageError(
            f"{str(path)!r} can't be written: you may not write to the folder {str(folder)!r}; "
            "choose another with -o"
        )


@contextmanager
def apart_from(path: Path | None) -> Iterator[None]:
    """Redirect printed text to stderr if `path` is stdout, so that stdout gets only the file's
    bytes.
    """
    if path is None or not _is_stdout(path):
        yield
        return
    with redirect_stdout(sys.stderr):
        yield


def _is_stdout(path: Path) -> bool:
    with suppress(OSError):  # `path` is absent, or stdout is closed
        return os.path.samestat(os.stat(path), os.fstat(1))
    return False
