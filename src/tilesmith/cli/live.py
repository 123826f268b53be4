"""The progress of tuning, on stderr: an updated table on a terminal, plain lines elsewhere."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from types import TracebackType

from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from tilesmith.cli.console import milliseconds, note
from tilesmith.support.signals import raise_noted
from tilesmith.tuning.interrupt import Interrupt
from tilesmith.tuning.scheduler import Progress

LINE_SECONDS = 5.0
"""Seconds between plain lines."""
FRAME = 6
"""Number of the terminal's lines that are not rows of tasks: the stage, the table's head, the line
for the other tasks, the totals, and two for the prompt.
"""


class TuningDisplay:
    """Display of a tuning run that may take `seconds` or `trials`.  A context manager."""

    def __init__(self, seconds: float, trials: int | None, interrupt: Interrupt) -> None:
        self._console = Console(stderr=True, highlight=False)
        self._live: Live | None = None
        self._seconds, self._trials, self._interrupt = seconds, trials, interrupt
        self._start = self._last = time.monotonic()
        self._stage = ""
        self._states: Sequence[Progress] = ()
        self._searching: tuple[float, int] | None = None

    def __enter__(self) -> TuningDisplay:
        if self._console.is_terminal:
            self._live = Live(
                console=self._console, refresh_per_second=4, get_renderable=self._picture
            )
            self._live.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if error is None:
            self._stage = "done"
        if self._live is not None:
            self._live.stop()

    def show(self, stage: str, states: Sequence[Progress]) -> None:
        """Show a stage and the state of all tasks."""
        raise_noted()
        now = time.monotonic()
        is_new, self._stage, self._states = stage != self._stage, stage, states
        if self._searching is None and states:
            self._searching = now, _sum(states, "trials")
        if self._live is None and (is_new or now - self._last >= LINE_SECONDS):
            self._last = now
            note(", ".join(filter(None, (self._heading(), totals(states)))))
            sys.stderr.flush()

    def _heading(self) -> str:
        """The stage, with the elapsed and the remaining time of the tuning run."""
        now = time.monotonic()
        elapsed = now - self._start
        left = max(self._seconds - elapsed, 0.0)
        if self._trials is not None and self._searching is not None:
            since, before = self._searching
            done = _sum(self._states, "trials") - before
            if done:  # the trials of this run give the time per trial
                left = min(left, max(self._trials - done, 0) * (now - since) / done)
        stage = self._stage
        if stage == "done":
            return f"{stage}: {elapsed:.0f} s"
        if self._interrupt.requested:
            return f"{stage}: stopping, {elapsed:.0f} s (Ctrl-C again: give up at once)"
        return f"{stage}: {elapsed:.0f} s, about {left:.0f} s left"

    def _picture(self) -> Group:
        states = self._states
        lines = [Text(self._heading(), style="bold")]
        if not states:
            return Group(*lines)
        room = max(self._console.size.height - FRAME, 1)
        return Group(*lines, task_table(states, room), Text(totals(states)))


def task_table(states: Sequence[Progress], room: int) -> Table:
    """The `room` slowest tasks, and the others in one line."""
    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False)
    for name in ("task", "ms", "share", "best", "may gain ms", "trials", "errors"):
        table.add_column(name, justify="left" if name == "task" else "right", no_wrap=True)
    ordered = sorted(states, key=lambda s: -s.task.seconds)
    others = ordered[room:]
    whole = sum(s.task.seconds for s in states) or 1.0
    for s in ordered[:room]:
        seconds = s.task.seconds
        table.add_row(Text(s.task.label, overflow="ellipsis"), *_cells([s], seconds, whole))
    if others:
        seconds = sum(s.task.seconds for s in others)
        table.add_row(f"{len(others)} more", *_cells(others, seconds, whole))
    return table


def _cells(states: Sequence[Progress], seconds: float, whole: float) -> tuple[str, ...]:
    best = 1 - sum(s.saved for s in states) / (seconds or 1.0)
    gain = sum(s.gain for s in states)
    return (
        milliseconds(seconds),
        f"{seconds / whole:.1%}",
        f"{best:.3f}",
        milliseconds(gain),
        f"{_sum(states, 'trials')}",
        f"{_sum(states, 'errors')}",
    )


def totals(states: Sequence[Progress]) -> str:
    """Sums over all tasks; empty before there are tasks."""
    if not states:
        return ""
    before = sum(s.task.seconds for s in states)
    after = before - sum(s.saved for s in states)
    trials, errors = _sum(states, "trials"), _sum(states, "errors")
    return (
        f"{trials} trial{'' if trials == 1 else 's'}, {errors} error{'' if errors == 1 else 's'}; "
        f"these kernels took {milliseconds(before)} ms in the model, now {milliseconds(after)} ms"
    )


def _sum(states: Sequence[Progress], name: str) -> int:
    return sum(getattr(s, name) for s in states)
