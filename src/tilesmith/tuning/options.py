"""All options of a search, as one frozen value.

`ts.tune` and similar functions take the fields as keyword arguments (`TuneChoices`).  The command
line and the table in docs/tuning.md are made from the fields' metadata, like those of `Options`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias, TypedDict

from tilesmith.ir.target import Target
from tilesmith.runtime.remote.address import Address
from tilesmith.search_space.space import Forbidden
from tilesmith.support.arguments import check_fields
from tilesmith.support.errors import UsageError
from tilesmith.support.options import option
from tilesmith.te.knobs import Decisions

from .cost_model import CostModel
from .interrupt import Interrupt
from .scheduler import Progress
from .search import DEFAULT, MODEL, SEARCHES, check_search

Report: TypeAlias = Callable[[str, Sequence[Progress]], object]
"""Called with a stage and the state of all tasks, when the stage begins and after each trial."""


def check_target(target: Target) -> None:
    """Raises UsageError for a device: candidates for expressions are measured on a CPU only."""
    if target.device is not None:
        raise UsageError(
            f"an expression is tuned on a CPU, and {target.name!r} is a device; tune a model of it "
            "with ts.tune, or tune for 'native'"
        )


def check_device(target: Target, tuning: TuneOptions) -> None:
    """Raises UsageError for options that do not apply to tuning on a device."""
    if target.device is None:
        return
    chosen = {
        "workers": tuning.workers is not None,
        "flush": tuning.flush,
        "html": tuning.html is not None,
        f"search={MODEL!r}": tuning.search == MODEL,
    }
    refused = [name for name, is_chosen in chosen.items() if is_chosen]
    if refused:
        raise UsageError(
            f"{' and '.join(refused)}: expected the target of tuning to be a CPU, found "
            f"{target.name!r}, a device; leave it out"
        )


class TuneChoices(TypedDict, total=False):
    """The fields of `TuneOptions` as keyword arguments."""

    seconds: float
    trials: int | None
    search: str
    seed: int
    pins: Decisions | None
    forbid: Forbidden | None
    workers: str | None
    devices: str | None
    flush: bool
    early_stopping: bool
    html: Path | str | None
    cost_model: CostModel | None
    report: Report | None
    interrupt: Interrupt | None


@dataclass(frozen=True, slots=True, kw_only=True)
class TuneOptions:
    """Options of one search.  The metadata of a field describes it.

    Raises UsageError if a value is impossible.
    """

    seconds: float = option(
        60.0, "How long it may take in all, the final check and the report included.", None
    )
    trials: int | None = option(None, "Most candidates to measure (default: no limit).", None)
    search: str = option(DEFAULT, f"How to search: {', '.join(SEARCHES)}.", None)
    seed: int = option(0, "Seed of the search.", None)
    pins: Decisions | None = option(
        None, "By name of a knob or choice: the only value it may have.", None, cli=False
    )
    forbid: Forbidden | None = option(
        None, "By name of a knob or choice: values it may not have.", None, cli=False
    )
    workers: str | None = option(
        None, "Measure on a Ray cluster: ray, or ray://HOST:PORT (default: here).", None
    )
    devices: str | None = option(
        None,
        "Measure on other machines: addresses of agents, such as tls://board:9100,tls://b:9100.",
        None,
    )
    flush: bool = option(False, "Empty the caches before each run of a candidate.", None)
    early_stopping: bool = option(True, "End when next to nothing is left to gain.", None)
    html: Path | str | None = option(
        None, "Also write an HTML report to this file.", None, flag="--report"
    )
    cost_model: CostModel | None = option(
        None,
        "Orders candidates for the search model (default: the one in the package).",
        None,
        cli=False,
    )
    report: Report | None = option(
        None, "Called with each stage and the tasks' state.", None, cli=False
    )
    interrupt: Interrupt | None = option(None, "Another way to stop than Ctrl-C.", None, cli=False)

    def __post_init__(self) -> None:
        check_fields(self, UsageError)
        if not self.seconds > 0:
            raise UsageError(f"seconds must be positive, not {self.seconds!r}")
        if self.trials is not None and self.trials < 1:
            raise UsageError(f"trials must be at least 1, not {self.trials!r}")
        check_search(self.search, self.cost_model)
        if self.workers not in (None, "ray") and not str(self.workers).startswith("ray://"):
            raise UsageError(f"workers must be 'ray' or 'ray://host:port', not {self.workers!r}")
        if self.devices is not None:
            for address in self.devices.split(","):
                Address.of(address.strip())
            if self.workers is not None:
                raise UsageError("workers and devices both say where to measure: give one of them")
        if self.html is not None:
            path = Path(self.html)
            try:
                fits = not path.is_dir() and path.absolute().parent.is_dir()
            except OSError:  # a name may be too long
                fits = False
            if not fits:
                raise UsageError(
                    f"the report needs a file name in a folder that exists, not {str(path)!r}"
                )

    @property
    def most_trials(self) -> float:
        """`trials`, or infinity."""
        return float("inf") if self.trials is None else self.trials

    def tell(self, stage: str, tasks: Sequence[Progress] = ()) -> None:
        """Call `report`, if there is one."""
        if self.report is not None:
            self.report(stage, tasks)
