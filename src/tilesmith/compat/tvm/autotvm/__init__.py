"""TVM's `autotvm`: templates with named decisions, tuners, and logs of what they measured."""

from __future__ import annotations

from typing import NoReturn

from ...names import elsewhere
from . import callback, record, task, tuner
from .config import get_config
from .measure import LocalBuilder, LocalRunner, MeasureInput, MeasureResult, measure_option
from .record import apply_history_best
from .task import Task, template

__all__ = [
    "LocalBuilder", "LocalRunner", "MeasureInput", "MeasureResult", "Task", "apply_history_best",
    "callback", "get_config", "measure_option", "record", "task", "template", "tuner",
]  # fmt: skip

ELSEWHERE = {
    "RPCRunner": "LocalRunner, or `tilesmith tune MODEL --devices tls://a:9100` for a model",
    "GraphTuner": "tilesmith.compile, which chooses layouts for a whole model",
}
"""What to use for names of TVM."""


def __getattr__(name: str) -> NoReturn:
    elsewhere("autotvm", name, ELSEWHERE)
