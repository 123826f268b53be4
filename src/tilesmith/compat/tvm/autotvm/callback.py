"""What a tuner calls after measurements."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from .measure import MeasureInput, MeasureResult
from .record import encode


def log_to_file(file_out: str | Path, protocol: str = "json") -> Callable[..., None]:
    """Append each measurement to a log."""
    path = Path(file_out)

    def log(_: Any, inputs: Sequence[MeasureInput], results: Sequence[MeasureResult]) -> None:
        with path.open("a", encoding="utf-8") as file:
            for i, r in zip(inputs, results, strict=True):
                file.write(encode(i, r, protocol) + "\n")

    return log


def progress_bar(total: int, prefix: str = "", si_prefix: str = "G") -> Callable[..., None]:
    """Show the number of measurements and the best time."""
    count, best = 0, float("inf")

    def show(_: Any, inputs: Sequence[MeasureInput], results: Sequence[MeasureResult]) -> None:
        nonlocal count, best
        count += len(results)
        best = min((best, *(r.costs[0] for r in results if not r.error_no)))
        sys.stdout.write(f"\r{prefix} {count}/{total}, best {best * 1e3:.4f} ms")
        sys.stdout.flush()

    return show
