"""TVM's `auto_scheduler` (Ansor): a search over schedules that rules generate."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tilesmith import te
from tilesmith.driver import Session
from tilesmith.search_space.records import Trial
from tilesmith.strategy.sketch import generated
from tilesmith.support.arguments import checked
from tilesmith.support.errors import DAMAGED, ModelError, UsageError
from tilesmith.te.knobs import ANALYTIC, Config, Decisions, values_from_json
from tilesmith.tuning.template import tune_expression

from ..names import refusing
from .searches import searched
from .target import Target

_WORKLOADS: dict[str, Callable[..., Sequence[te.Tensor]]] = {}


def register_workload(func: Any = None, f: Any = None, override: bool = False) -> Any:
    """Name a function for tasks.  The function returns the parameters of a computation."""
    name = func if isinstance(func, str) else None

    def registered(found: Any) -> Any:
        _WORKLOADS[name or found.__name__] = found
        return found

    given = f if f is not None else func
    return registered(given) if callable(given) else registered


class RecordToFile:
    """Append each measurement to a log, a line of JSON with the decisions of this compiler."""

    def __init__(self, filename: str | Path) -> None:
        self.filename = Path(filename)

    def write(self, key: str, trials: Sequence[Trial]) -> None:
        with self.filename.open("a", encoding="utf-8") as file:
            for t in trials:
                decisions = json.loads(json.dumps(dict(t.candidate)))
                line = {"workload": key, "decisions": decisions, "seconds": t.seconds,
                        "status": t.status, "when": t.when}  # fmt: skip
                file.write(json.dumps(line) + "\n")


@dataclass
class TuningOptions:
    """Options of a search.

    num_measure_trials: upper bound on the measured candidates.
    early_stopping: any number makes the search end when almost nothing is left to gain.
    num_measures_per_round, verbose, builder, runner: accepted for TVM's scripts, without effect.
    measure_callbacks: logs to write.
    """

    num_measure_trials: int = 0
    early_stopping: int | None = None
    num_measures_per_round: int = 64
    verbose: int = 1
    builder: Any = "local"
    runner: Any = "local"
    measure_callbacks: Sequence[RecordToFile] = field(default_factory=tuple)


class SearchTask:
    """A computation and its target.

    workload_key: its name and arguments as text.
    """

    @checked(UsageError)
    def __init__(
        self,
        func: Callable[..., Sequence[te.Tensor]] | str,
        args: Sequence[Any],
        target: Any = None,
        **other: Any,
    ) -> None:
        name = func if isinstance(func, str) else func.__name__
        found = _WORKLOADS.get(name) if isinstance(func, str) else func
        if found is None:
            known = ", ".join(_WORKLOADS) or "none"
            raise UsageError(f"no workload {name!r} is registered; those registered are {known}")
        self.target = Target.current() if target is None else Target(target)
        self.workload_key = json.dumps([name, *args])
        self._args = tuple(found(*args))
        session = Session.of(None, target=self._native)
        self._template = generated(self._args, session.target, session.options.algorithm_bound)

    @property
    def _native(self) -> str | None:
        return None if self.target is None else self.target.native

    @property
    def compute_dag(self) -> str:
        """The expressions as text."""
        return te.print_ops([t.op for t in self._args if isinstance(t.op, te.Compute)])

    def tune(self, tuning_options: TuningOptions, search_policy: Any = None) -> None:
        """Measure candidates.  Their outputs are compared with those of the plain loops."""
        if search_policy is not None:
            raise UsageError("tune: leave search_policy out; `tilesmith.tune_expression(search=)`")

        def told(trials: Sequence[Trial]) -> None:
            for log in tuning_options.measure_callbacks:
                log.write(self.workload_key, trials)

        searched(
            tune_expression, self._args, told=told, target=self._native,
            trials=max(tuning_options.num_measure_trials, 1),
            early_stopping=tuning_options.early_stopping is not None,
        )  # fmt: skip

    def apply_best(
        self,
        log_file: str | Path,
        include_compatible: bool = False,
        layout_rewrite_option: Any = None,
    ) -> tuple[te.Schedule, Sequence[te.Tensor]]:
        """The fastest schedule in a log, with its parameters.  If the log has no schedule of this
        task, rules choose the schedule.
        """
        return self._template(self._best(log_file))

    def print_best(self, log_file: str | Path, print_mode: str = "schedule") -> str:
        """The steps of the fastest schedule in a log, as Python."""
        return str(self.apply_best(log_file)[0])

    def _best(self, log_file: str | Path) -> Config:
        best: tuple[float, Decisions] | None = None
        for row in Path(log_file).read_text(encoding="utf-8").splitlines():
            try:
                line = json.loads(row)
                key, status, seconds = line["workload"], line["status"], float(line["seconds"])
                decisions = values_from_json(line["decisions"])
            except DAMAGED:
                raise ModelError(
                    f"{log_file}: expected a log that RecordToFile wrote here, found {row[:80]!r}; "
                    "the steps in TVM's own logs are those of its rules: tune again"
                ) from None
            if key == self.workload_key and status == "ok" and (not best or seconds < best[0]):
                best = seconds, decisions
        return ANALYTIC if best is None else Config(best[1])


def create_task(func: Any, args: Sequence[Any], target: Any = None) -> SearchTask:
    """The older name of `SearchTask`."""
    return SearchTask(func, args, target)


ELSEWHERE = {
    **dict.fromkeys(
        ("TaskScheduler", "extract_tasks"),
        "tilesmith.tune(model), which divides its time among the kernels",
    ),
    "ApplyHistoryBest": "tilesmith.compile(model), which takes what tuning recorded",
    **dict.fromkeys(
        ("PreloadMeasuredStates", "RandomModel", "SketchPolicy", "XGBModel"),
        "tilesmith.tune_expression(search=)",
    ),
    **dict.fromkeys(
        ("HardwareParams", "LocalBuilder", "LocalRPCMeasureContext", "LocalRunner", "RPCRunner"),
        "TuningOptions alone: candidates run on this machine",
    ),
    "auto_schedule": "task.tune(options), then task.apply_best(log)",
}
"""What to use for names of TVM."""

__getattr__ = refusing("auto_scheduler", ELSEWHERE)
