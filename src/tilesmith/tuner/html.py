"""The HTML report of a tuning run."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from tilesmith.runtime.executable import Executable
from tilesmith.support.errors import UsageError
from tilesmith.tuning.report import collect, page
from tilesmith.tuning.scheduler import Progress

from .tasks import random_array


def check_path(path: str | os.PathLike[str] | None) -> None:
    """Raises UsageError, before any work, where no report can be written."""
    if path is not None and (Path(path).is_dir() or not Path(path).absolute().parent.is_dir()):
        raise UsageError(f"the report needs a file name in a folder that exists, not {str(path)!r}")


def write_html(
    path: str | os.PathLike[str],
    title: str,
    states: Sequence[Progress],
    before: Executable,
    after: Executable,
    speedup: float,
    started: float,
) -> None:
    """Write the report to `path`; see `collect` for the rest.  Raises UsageError."""
    rng = np.random.default_rng(0)
    inputs = [random_array(rng, s) for s in before.inputs]
    text = page(collect(title, states, before, after, inputs, speedup, started))
    try:
        Path(path).write_text(text, encoding="utf-8", errors="backslashreplace")
    except OSError as e:
        raise UsageError(f"the report can't be written to {str(path)!r}: {e}") from e
