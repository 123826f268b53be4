"""Searches that are limited by a number of trials, as those of AutoTVM and Ansor are."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from tilesmith.runtime.arguments import KernelFunction
from tilesmith.search_space.records import Trial
from tilesmith.support.options import Options
from tilesmith.tuning.scheduler import Progress

NO_LIMIT = 7 * 86400.0
"""Seconds allowed for a search that ends by its number of trials."""


def searched(
    search: Callable[..., KernelFunction],
    /,
    *arguments: Any,
    told: Callable[[Sequence[Trial]], object],
    **choices: Any,
) -> KernelFunction:
    """The best function of a search that measures everything anew.

    search: `tune_template` or `tune_expression`; `arguments` and `choices` are its arguments.
    told: called with new trials as they end.
    """
    known: set[str] = set()

    def report(stage: str, states: Sequence[Progress]) -> None:
        new = [t for s in states for k, t in s.seen.items() if k not in known]
        known.update(t.decisions for t in new)
        if new:
            told(new)

    with tempfile.TemporaryDirectory() as folder:
        options = Options(records=Path(folder) / "records.sqlite")
        return search(*arguments, options=options, seconds=NO_LIMIT, report=report, **choices)
