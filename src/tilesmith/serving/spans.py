"""Spans of OpenTelemetry for the requests of a batcher.

They exist where the package `opentelemetry-api` is installed, and go where the program's tracer
provider sends them.  The span of a request is a child of the span in which its caller asked.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any

from tilesmith.support.version import VERSION

from .queue import Request

try:
    from opentelemetry import context, trace  # pyright: ignore[reportMissingImports]
except ImportError:
    context = trace = None


def current() -> Any:
    """The caller's context, in which the span of its request begins; None without OpenTelemetry."""
    return None if context is None else context.get_current()


def record(
    requests: Sequence[Request],
    answers: Sequence[Any],
    end: float,
    began: float | None = None,
    stages: Mapping[str, float] | None = None,
) -> None:
    """Record the spans of requests that have ended: `tilesmith.request`, with a span for the time
    in the queue and one for the call.

    answers: the answers; an error ends a span with the status of an error.
    began, end: beginning of the call (None: there was none) and end, in seconds of the monotonic
        clock.
    stages: seconds of the call's stages, which become attributes of its span.
    """
    if trace is None:
        return
    tracer = trace.get_tracer("tilesmith", VERSION)
    start = time.time_ns() - time.monotonic_ns()  # of the monotonic clock

    def at(seconds: float) -> int:
        return start + int(seconds * 1e9)

    rows = sum(r.accepted.rows for r in requests)
    shared = {f"tilesmith.{name}.seconds": taken for name, taken in (stages or {}).items()}
    for request, answer in zip(requests, answers, strict=True):
        own = {"tilesmith.rows": request.accepted.rows}
        span = tracer.start_span(
            "tilesmith.request", request.context, attributes=own, start_time=at(request.arrived)
        )
        if not span.is_recording():
            continue
        within = trace.set_span_in_context(span, request.context)
        left = end if began is None else began
        queue = tracer.start_span("tilesmith.queue", within, start_time=at(request.arrived))
        queue.end(at(left))
        if began is not None:
            about = {"tilesmith.call.rows": rows, **shared}
            call = tracer.start_span(
                "tilesmith.call", within, attributes=about, start_time=at(began)
            )
            call.end(at(end))
        if isinstance(answer, BaseException):
            span.record_exception(answer)
            span.set_status(trace.StatusCode.ERROR, str(answer))
        span.end(at(end))
