"""TVM's tuners, implemented by Tilesmith's searches."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, ClassVar

from tilesmith import te
from tilesmith.search_space.records import Trial
from tilesmith.support.errors import UsageError
from tilesmith.te.knobs import Config
from tilesmith.tuning.template import tune_template

from ..searches import searched
from .measure import MeasureInput, MeasureOption, MeasureResult
from .task import Task

Callback = Callable[[Any, Sequence[MeasureInput], Sequence[MeasureResult]], object]


class Tuner:
    """A search over the decisions of one task.

    best_config: the best decisions found, after `tune`.
    best_flops: its rate, if the template counts operations (`add_flop`).
    """

    search: ClassVar[str]

    def __init__(self, task: Task, *_: Any, **__: Any) -> None:
        self.task = task
        self.best_config: Any = None
        self.best_flops = 0.0
        self.n_trial = 0

    def has_next(self) -> bool:
        """Always true, since a search ends by itself when no candidates are left."""
        return True

    def tune(
        self,
        n_trial: int,
        measure_option: MeasureOption,
        early_stopping: int | None = None,
        callbacks: Sequence[Callback] = (),
        si_prefix: str = "G",
    ) -> None:
        """Measure at most `n_trial` candidates.  Their outputs are compared with those of the plain
        loops.

        early_stopping: any number makes the search end when almost nothing is left to gain.
        callbacks: called with the tuner, and the inputs and results that are new.
        """
        if not isinstance(measure_option, MeasureOption):
            raise UsageError("tune: expected autotvm.measure_option(builder=, runner=)")
        self.n_trial = n_trial

        def told(trials: Sequence[Trial]) -> None:
            inputs = [self._input(t) for t in trials]
            results = [_result(t) for t in trials]
            for callback in callbacks:
                callback(self, inputs, results)

        target = self.task.target.native if self.task.target else None
        best = searched(
            tune_template, self._made, told=told, target=target, trials=n_trial,
            search=self.search, early_stopping=early_stopping is not None,
            flush=measure_option.runner.enable_cpu_cache_flush,
        )  # fmt: skip
        self.best_config = self.task.entity(dict(best.decisions))  # type: ignore[arg-type]

    def _made(self, config: Config) -> tuple[te.Schedule, Sequence[te.Tensor]]:
        schedule, args = self.task.instantiate(config)
        return schedule.in_memory(lambda s: te.lower(s, args)), args

    def _input(self, trial: Trial) -> MeasureInput:
        return MeasureInput(self.task.target, self.task, self.task.entity(trial.candidate))


def _result(trial: Trial) -> MeasureResult:
    if trial.status != "ok":
        return MeasureResult((), 1, trial.seconds, trial.when)
    return MeasureResult((trial.seconds,), 0, trial.seconds, trial.when)


class RandomTuner(Tuner):
    """Candidates drawn at random."""

    search = "random"


class GridSearchTuner(Tuner):
    """All candidates in order."""

    search = "grid"


class GATuner(Tuner):
    """A search by mutation and crossing."""

    search = "evolution"


class XGBTuner(Tuner):
    """A search that a cost model guides."""

    search = "model"
