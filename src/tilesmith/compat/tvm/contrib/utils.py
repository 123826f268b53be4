"""TVM's temporary folders."""

from __future__ import annotations

import tempfile
from pathlib import Path


class TempDirectory:
    """A folder that is removed when nobody holds it any more."""

    def __init__(self) -> None:
        self._folder = tempfile.TemporaryDirectory()
        self.temp_dir = self._folder.name

    def relpath(self, name: str) -> str:
        """The path of a file in the folder."""
        return str(Path(self.temp_dir) / name)

    def remove(self) -> None:
        self._folder.cleanup()


def tempdir() -> TempDirectory:
    """A new temporary folder."""
    return TempDirectory()
