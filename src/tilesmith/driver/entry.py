"""What runs without the compiler: programs that were compiled before."""

from __future__ import annotations

import os
from pathlib import Path

from tilesmith.runtime.executable import Executable


def load(path: str | os.PathLike[str], threads: int | None = None) -> Executable:
    """The executable in a `.tsm` file; ModelError when it is damaged or needs another CPU."""
    return Executable.load(Path(path), threads)
