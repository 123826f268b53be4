"""Dumps: the text of every stage that changed something, for people to read.

A dump folder has one sub-folder per unit (the graph, each kernel).  A sub-folder has one file per
stage, such as `03-simplify.txt`, numbered in the order in which the stages ran.  A stage that
returned its input unchanged keeps its number but writes no file.  So a gap in the numbers means "no
change", and stage numbers agree between runs.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from tilesmith.support.errors import UsageError

T = TypeVar("T")


@dataclass(slots=True)
class _Unit:
    folder: Path
    stages: int = 0
    value: Any = None
    text: str | None = None


@dataclass(slots=True)
class Dumper:
    """Writes the text of stages; does nothing (and prints nothing) without a folder.

    directory: the folder; None for no dumps.
    """

    directory: Path | None = None
    _labels: dict[str, str] = field(default_factory=dict)
    _units: dict[str, _Unit] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def __post_init__(self) -> None:
        if self.directory is not None:
            try:
                self.directory.mkdir(parents=True, exist_ok=True)
            except OSError as e:
                raise UsageError(
                    f"the dump folder {str(self.directory)!r} can't be made: {e.strerror}"
                ) from None

    @property
    def enabled(self) -> bool:
        return self.directory is not None

    def name(self, unit: str, label: str) -> None:
        """Prefix the name of a unit's folder with `label`, for people."""
        self._labels[unit] = label

    def __call__(self, stage: str, value: T, text: Callable[[T], str], unit: str = "graph") -> None:
        """Record that `stage` of `unit` returned `value`.  Write `text(value)` if the text has
        changed.

        If `value` is the same object as before, `text` is not called.
        """
        if self.directory is None:
            return
        with self._lock:
            state = self._units.get(unit)
            if state is None:
                state = self._units[unit] = _Unit(
                    self.directory / _file_name(f"{self._labels.get(unit, '')[:80]}-{unit}")
                )
            number = state.stages
            state.stages += 1
            if state.value is value and state.text is not None:
                return
            printed = text(value)
            unchanged = printed == state.text
            state.value, state.text = value, printed
            if unchanged:
                return
            state.folder.mkdir(parents=True, exist_ok=True)
            path = state.folder / f"{number:02d}-{_file_name(stage)}.txt"
            path.write_text(printed if printed.endswith("\n") else printed + "\n")


def _file_name(text: str) -> str:
    """`text` as a file name: characters other than letters, digits, dots and underscores become
    dashes.
    """
    return re.sub(r"[^\w.-]+", "-", text).strip(".-")[:120] or "unnamed"
