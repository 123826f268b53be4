"""Log messages of the compiler, by topic.

    _log = logger("schedule")
    _log.info("%s: the rule for convolutions does not fit: %s", name, why)

Each topic is the logger `tilesmith.TOPIC` of Python's `logging`: programs handle the messages like
those of other loggers.  `TILESMITH_LOGS=schedule,cache` (the option `logs`) shows all messages of
these topics on stderr.  By default only warnings appear, as usual in Python.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager

from tilesmith.support.errors import UsageError

TOPICS = {
    "cache": "kernels and programs that were found in the cache, kept or dropped",
    "compile": "compiled kernels, where and how long; operators that PyTorch can't take apart",
    "device": "nodes that run on the CPU in place of a device, and devices that fail",
    "engines": "calls that other engines made and that failed",
    "machine": "rates of this machine: measured, kept, or measured again",
    "records": "tuning records that were used, or why they were not",
    "schedule": "schedule rules that did not fit a kernel, and what it got instead",
    "sizes": "dimensions that nodes restrict, outputs that models declare otherwise, and programs "
    "for sizes that calls have often",
    "tuning": "candidates that failed, processes and machines that went away",
}
"""The topics for `TILESMITH_LOGS`, with a description of their messages."""

ALL = "all"


def logger(topic: str) -> logging.Logger:
    """The logger of a topic of `TOPICS`."""
    assert topic in TOPICS, topic
    return logging.getLogger(f"tilesmith.{topic}")


def parse_topics(text: str) -> tuple[str, ...]:
    """The topics in a list such as `schedule,cache`; `all` means all topics.  Raises UsageError for
    an unknown topic.
    """
    topics = [t for t in (part.strip() for part in text.split(",")) if t]
    for topic in topics:
        if topic not in TOPICS and topic != ALL:
            raise UsageError(
                f"logs: there is no topic {topic!r}; expected {ALL}, or some of {', '.join(TOPICS)}"
            )
    return tuple(TOPICS) if ALL in topics else tuple(dict.fromkeys(topics))


class _Collector(logging.Handler):
    """A handler that keeps messages as topic, level and text."""

    def __init__(self) -> None:
        super().__init__()
        self.messages: list[tuple[str, int, str]] = []

    def emit(self, record: logging.LogRecord) -> None:
        topic = record.name.rpartition(".")[2]
        self.messages.append((topic, record.levelno, record.getMessage()))


class _Stderr(logging.Handler):
    """A handler that writes to the current `sys.stderr`."""

    def emit(self, record: logging.LogRecord) -> None:
        try:
            print(self.format(record), file=sys.stderr)
        except Exception:  # as in other handlers, an error in a message must not stop the program
            self.handleError(record)


_shown = _Stderr()
_shown.setFormatter(logging.Formatter("%(name)s: %(message)s"))


def show(topics: Iterable[str]) -> None:
    """Show all messages of these topics on stderr from now on.  Other topics are unchanged."""
    for topic in topics:
        log = logger(topic)
        log.setLevel(logging.DEBUG)
        log.addHandler(_shown)  # this does nothing if the handler is there already


@contextmanager
def collected(topics: Iterable[str]) -> Iterator[list[tuple[str, int, str]]]:
    """Yields a list that collects the messages (topic, level, text) that the body logs on these
    topics.

    A worker process sends them to its parent, and the parent logs them with `repeat`.
    """
    collector = _Collector()
    levels = {log: log.level for log in map(logger, topics)}
    for log in levels:
        log.setLevel(logging.DEBUG)
        log.addHandler(collector)
    try:
        yield collector.messages
    finally:
        for log, level in levels.items():
            log.setLevel(level)
            log.removeHandler(collector)


class _Progress(logging.Handler):
    def __init__(self, tell: Callable[[int, int], object]) -> None:
        super().__init__()
        self._tell = tell

    def emit(self, record: logging.LogRecord) -> None:
        progress = getattr(record, "progress", None)
        if progress is not None:
            self._tell(*progress)


def log_progress(topic: str, what: str, done: int, total: int) -> None:
    """Log progress: `done` of `total` things (`what`) are finished."""
    logger(topic).info("%d of %d %s", done, total, what, extra={"progress": (done, total)})


@contextmanager
def following(topic: str, tell: Callable[[int, int], object]) -> Iterator[None]:
    """Call `tell(done, total)` whenever the body logs progress on this topic."""
    log, handler = logger(topic), _Progress(tell)
    level = log.level
    log.setLevel(min(log.getEffectiveLevel(), logging.INFO))
    log.addHandler(handler)
    try:
        yield
    finally:
        log.setLevel(level)
        log.removeHandler(handler)


def repeat(messages: Sequence[Sequence[object]]) -> None:
    """Log messages that `collected` recorded in another process."""
    for topic, level, text in messages:
        assert isinstance(topic, str) and isinstance(level, int)
        logger(topic).log(level, "%s", text)
