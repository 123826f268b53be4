"""A batcher's counts in the text format of Prometheus.

Source: https://prometheus.io/docs/instrumenting/exposition_formats/, text format 0.0.4.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator

from .stats import BatcherStats, Histogram

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"


def exposition(stats: BatcherStats, model: str, is_ready: bool) -> str:
    """The counts as text.  model: the value of the label `model`."""
    quoted = model.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")
    rows = Histogram(tuple(2.0**n for n in range(11)))
    for size, count in stats.batches.items():
        rows.add(size, count)
    return "\n".join((*_lines(stats, f'model="{quoted}"', rows, is_ready), ""))


def _lines(stats: BatcherStats, label: str, rows: Histogram, is_ready: bool) -> Iterator[str]:
    yield from _head("ready", "gauge", "1 if requests are accepted")
    yield f"tilesmith_ready{{{label}}} {int(is_ready)}"
    yield from _head("waiting_requests", "gauge", "Requests that wait for a run")
    yield f"tilesmith_waiting_requests{{{label}}} {stats.waiting}"
    yield from _head("requests_total", "counter", "Requests by their end")
    for outcome, n in stats.requests.items():
        yield f'tilesmith_requests_total{{{label},outcome="{outcome}"}} {n}'
    yield from _head("stage_seconds_total", "counter", "Time of answered requests in each stage")
    for stage, seconds in stats.seconds.items():
        yield f'tilesmith_stage_seconds_total{{{label},stage="{stage}"}} {seconds:.9g}'
    yield from _histogram("request_seconds", "From submission to answer", label, stats.latencies)
    yield from _histogram("wait_seconds", "From submission to the run", label, stats.waits)
    yield from _histogram("batch_rows", "Rows of a call", label, rows)


def _head(name: str, kind: str, text: str) -> Iterator[str]:
    yield f"# HELP tilesmith_{name} {text}"
    yield f"# TYPE tilesmith_{name} {kind}"


def _histogram(name: str, text: str, label: str, held: Histogram) -> Iterator[str]:
    yield from _head(name, "histogram", text)
    below = itertools.accumulate(held.counts)
    for bound, n in zip((*(f"{b:.9g}" for b in held.bounds), "+Inf"), below, strict=True):
        yield f'tilesmith_{name}_bucket{{{label},le="{bound}"}} {n}'
    yield f"tilesmith_{name}_sum{{{label}}} {held.total:.9g}"
    yield f"tilesmith_{name}_count{{{label}}} {held.count}"
