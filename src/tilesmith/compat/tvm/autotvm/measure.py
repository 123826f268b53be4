"""Candidates, their measured times, and the options of measurements."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

from tilesmith.support.errors import UsageError

from .config import ConfigEntity


class MeasureInput(NamedTuple):
    """A candidate.

    target: where it runs.
    task: the template with its arguments.
    config: its decisions.
    """

    target: Any
    task: Any
    config: ConfigEntity


class MeasureResult(NamedTuple):
    """The measured times of a candidate.

    costs: seconds of runs; empty after a failure.
    error_no: 0 for a candidate that ran and computed the right outputs.
    all_cost: seconds of a run, since the duration of the whole measurement is not recorded.
    timestamp: seconds since 1970.
    """

    costs: tuple[float, ...]
    error_no: int
    all_cost: float
    timestamp: float


@dataclass(frozen=True)
class LocalBuilder:
    """Candidates are built by this process and its workers.

    timeout, n_parallel, build_func: accepted for TVM's scripts, without effect.
    """

    timeout: float = 10
    n_parallel: int | None = None
    build_func: str = "default"


@dataclass(frozen=True)
class LocalRunner:
    """Candidates run on this machine, alternately with the default, until their times are known
    well enough.

    timeout, number, repeat, min_repeat_ms, cooldown_interval: accepted for TVM's scripts, without
        effect.
    enable_cpu_cache_flush: whether the caches are emptied before each run.
    """

    timeout: float = 5
    number: int = 4
    repeat: int = 3
    min_repeat_ms: int = 0
    cooldown_interval: float = 0.1
    enable_cpu_cache_flush: bool = False


@dataclass(frozen=True)
class MeasureOption:
    """The builder and the runner of a search."""

    builder: LocalBuilder
    runner: LocalRunner


def measure_option(builder: Any, runner: Any) -> MeasureOption:
    """The options of a search; "local" stands for the builder and the runner of this machine."""
    if builder == "local":
        builder = LocalBuilder()
    if runner == "local":
        runner = LocalRunner()
    if not isinstance(builder, LocalBuilder) or not isinstance(runner, LocalRunner):
        raise UsageError(
            f"expected LocalBuilder and LocalRunner, found {builder!r} and {runner!r}; "
            "`tilesmith tune --workers ray://HOST:PORT` measures on other machines"
        )
    return MeasureOption(builder, runner)
