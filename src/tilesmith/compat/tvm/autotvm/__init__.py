"""TVM's `autotvm`: templates with named decisions, tuners, and logs of what they measured."""

from __future__ import annotations

from ...names import refusing
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
    "graph_tuner": "tilesmith.compile, which chooses layouts for a whole model",
}
"""What to use for names of TVM."""

__getattr__ = refusing("autotvm", ELSEWHERE)
