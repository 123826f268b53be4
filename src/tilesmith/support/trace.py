"""Traces of events that https://ui.perfetto.dev and chrome://tracing open.

The format is Chrome's "Trace Event Format": metadata that name a process and its tracks, and events
with a beginning and a duration.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple


class Event(NamedTuple):
    """Something that takes time.

    track: position of its track.
    name: what the picture calls it.
    category: kind of events.
    start, duration: in microseconds.
    about: what a click shows.
    """

    track: int
    name: str
    category: str
    start: float
    duration: float
    about: Mapping[str, Any]


def trace(process: str, tracks: Sequence[str], events: Iterable[Event]) -> dict[str, Any]:
    """The trace of one process, to be written as JSON."""
    named: list[dict[str, Any]] = [
        {"ph": "M", "name": "process_name", "pid": 1, "tid": 1, "args": {"name": process}},
    ]
    named += (
        {"ph": "M", "name": "thread_name", "pid": 1, "tid": number, "args": {"name": track}}
        for number, track in enumerate(tracks, 1)
    )
    shown = (
        {
            "ph": "X", "name": e.name, "cat": e.category, "pid": 1, "tid": e.track + 1,
            "ts": e.start, "dur": e.duration, "args": dict(e.about),
        }
        for e in events
    )  # fmt: skip
    return {"traceEvents": [*named, *shown], "displayTimeUnit": "ms"}
