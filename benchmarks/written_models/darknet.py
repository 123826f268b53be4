"""Writes small Darknet networks for tests."""

from __future__ import annotations

import struct
from pathlib import Path

import numpy as np


def written(
    folder: Path,
    text: str,
    arrays: list[np.ndarray],
    header: bytes = struct.pack("<iiiq", 0, 2, 5, 9),
) -> Path:
    (folder / "net.cfg").write_text(text)
    numbers = b"".join(a.astype("<f4").tobytes() for a in arrays)
    (folder / "net.weights").write_bytes(header + numbers)
    return folder / "net.cfg"
