"""Output for people and for programs.

Results go to stdout, as text or (with `--json`) as one JSON document; all else (progress, warnings)
goes to stderr, so that stdout can always be piped.  If stderr can't be written (it is closed, or
its disk is full), the work continues.
"""

from __future__ import annotations

import json
import math
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

from tilesmith.support.logs import following
from tilesmith.support.signals import raise_noted

LINE_SECONDS = 5.0
"""Least seconds between lines of progress without a terminal."""
_err = Console(stderr=True, highlight=False, soft_wrap=True)


def print_json(result: Any) -> None:
    """One JSON document on stdout (RFC 8259).

    JSON has no numbers for NaN and infinity.  They become the strings "NaN", "Infinity" and
    "-Infinity", as in the JSON of Protocol Buffers.
    """
    print(json.dumps(_plain(result), indent=2, allow_nan=False))


def _plain(value: Any) -> Any:
    """`value` with JSON's types."""
    if isinstance(value, Mapping):
        return {str(k): _plain(v) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(v) for v in value]
    if isinstance(value, (set, frozenset)):
        return sorted(map(_plain, value))
    if isinstance(value, (np.generic, np.ndarray)):
        return _plain(value.tolist())
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    if isinstance(value, Path):
        return str(value)
    if value is None or isinstance(value, (str, int, float)):
        return value
    raise TypeError(f"{type(value).__name__} has no JSON form")


def print_table(
    columns: Sequence[str], rows: Sequence[Sequence[object]], *, title: str | None = None
) -> None:
    """A table on stdout; columns whose name starts with `>` are aligned to the right."""
    table = Table(
        title=title,
        title_justify="left",
        show_header=any(columns),
        box=None,
        pad_edge=False,
        padding=(0, 2, 0, 0),
    )
    for name in columns:
        right = name.startswith(">")
        table.add_column(
            name.removeprefix(">"), justify="right" if right else "left", overflow="fold"
        )
    for row in rows:
        table.add_row(*map(str, row))
    # Piped output is not cut to a terminal's width.
    console = Console(highlight=False, width=None if sys.stdout.isatty() else 200, markup=False)
    with console.capture() as printed:
        console.print(table)
    print("\n".join(line.rstrip() for line in printed.get().rstrip().splitlines()), flush=True)


def note(text: str) -> None:
    """Print a line for people to stderr, apart from the result."""
    with suppress(OSError):
        _err.print(text, markup=False)


@contextmanager
def progress(what: str) -> Iterator[Callable[[str], None]]:
    """Show that `what` is in progress: a spinner on a terminal, plain lines elsewhere.

    Yields a function that reports the progress so far.
    """
    start = time.perf_counter()
    if _err.is_terminal:
        with _err.status(what) as status:
            yield lambda text: status.update(f"{what} {text}")
    else:
        note(f"{what} ...")
        last = time.perf_counter()

        def update(text: str) -> None:
            nonlocal last
            if time.perf_counter() - last >= LINE_SECONDS:
                last = time.perf_counter()
                note(f"{what} {text}")

        yield update
    note(f"{what}: {time.perf_counter() - start:.2f} s")


@contextmanager
def compiling(name: str, target: str) -> Iterator[None]:
    """`progress` of compiling a model, with the number of finished kernels."""

    def told(done: int, total: int) -> None:
        raise_noted()
        update(f"{done} of {total} kernels")

    with (
        progress(f"compiling {name} for {target}") as update,
        following("compile", told),
    ):
        yield


def milliseconds(seconds: float) -> str:
    """A readable time, in ms with about three significant digits."""
    ms = seconds * 1e3
    digits = 1 if ms >= 10 else 2 if ms >= 1 else 3 if ms >= 0.1 else 5
    return f"{ms:.{digits}f}"


def size_text(size: float) -> str:
    """A readable number of bytes."""
    for unit in ("B", "KiB", "MiB"):
        if size < 1024:
            return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1024
    return f"{size:.1f} GiB"
