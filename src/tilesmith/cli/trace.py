"""A run as a trace of events in the Trace Event Format, which Perfetto and Chrome open."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from tilesmith.runtime.profile import KernelTime
from tilesmith.support.errors import UsageError
from tilesmith.support.folders import write_text


def trace_of(kernels: Iterable[KernelTime], model: str, threads: int) -> dict[str, Any]:
    """The events of a run: kernels one after the other, as they run.

    Times are microseconds.  A kernel's threads begin and end together, so that it is one event; its
    arguments contain their number.  Kernels that did not run have no event.
    """
    events: list[dict[str, Any]] = [
        {"ph": "M", "name": "process_name", "pid": 1, "tid": 1, "args": {"name": model}},
        {"ph": "M", "name": "thread_name", "pid": 1, "tid": 1, "args": {"name": "kernels"}},
    ]
    now = 0.0
    for number, k in enumerate(kernels):
        if not k.runs:
            continue
        about: dict[str, Any] = {"kernel": number, "symbol": k.call.symbol, "runs": k.runs}
        about["threads"] = threads
        if k.info is not None:
            about["operators"] = "+".join(k.info.operators)
        if k.prediction is not None:
            about["GFLOP/s"] = round(k.flops_per_second / 1e9, 2)
            about["GB/s"] = round(k.bytes_per_second / 1e9, 2)
        name = k.call.label or about.get("operators") or k.call.symbol
        events.append({
            "ph": "X", "name": name, "cat": "kernel", "pid": 1, "tid": 1,
            "ts": now * 1e6, "dur": k.seconds * 1e6, "args": about,
        })  # fmt: skip
        now += k.seconds
    return {"traceEvents": events, "displayTimeUnit": "ms"}


def write_trace(path: Path, kernels: Iterable[KernelTime], model: str, threads: int) -> None:
    """Raises UsageError if the file can't be written."""
    text = json.dumps(trace_of(kernels, model, threads), indent=1, allow_nan=False)
    try:
        write_text(path, text)
    except OSError as e:
        raise UsageError(f"{str(path)!r} can't be written: {e.strerror or e}") from None
