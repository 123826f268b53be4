"""Tilesmith: an end-to-end deep learning compiler.  A trained model in, native code tuned for one
machine out.

    import tilesmith as ts
    exe = ts.compile("resnet50.onnx")
    y = exe(x)

The names below are the public surface; importing the package loads none of the compiler, the first
use of a name does.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tilesmith import te
    from tilesmith.driver import build, check, compile, load
    from tilesmith.graph.nodes import Graph
    from tilesmith.ir.target import Target
    from tilesmith.runtime.executable import Executable
    from tilesmith.support.errors import (
        AccuracyError,
        InternalError,
        ModelError,
        ScheduleError,
        TilesmithError,
        UnsupportedError,
        UsageError,
    )
    from tilesmith.support.options import Options
    from tilesmith.template_tuner import auto_schedule, tune_expression, tune_template
    from tilesmith.tuner import tune
    from tilesmith.tuning.templates import register_template

__version__ = "0.1.0"

__all__ = [
    "AccuracyError",
    "Executable",
    "Graph",
    "InternalError",
    "ModelError",
    "Options",
    "ScheduleError",
    "Target",
    "TilesmithError",
    "UnsupportedError",
    "UsageError",
    "auto_schedule",
    "build",
    "check",
    "compile",
    "load",
    "register_template",
    "te",
    "tune",
    "tune_expression",
    "tune_template",
]

_HOME = {
    "build": "tilesmith.driver",
    "check": "tilesmith.driver",
    "compile": "tilesmith.driver",
    "load": "tilesmith.driver",
    "tune": "tilesmith.tuner",
    "auto_schedule": "tilesmith.template_tuner",
    "register_template": "tilesmith.tuning.templates",
    "tune_expression": "tilesmith.template_tuner",
    "tune_template": "tilesmith.template_tuner",
    "Graph": "tilesmith.graph.nodes",
    "Target": "tilesmith.ir.target",
    "Executable": "tilesmith.runtime.executable",
    "Options": "tilesmith.support.options",
}


def __getattr__(name: str) -> Any:
    if name == "te":
        return importlib.import_module("tilesmith.te")
    if name not in __all__:
        raise AttributeError(f"module 'tilesmith' has no attribute {name!r}")
    return getattr(importlib.import_module(_HOME.get(name, "tilesmith.support.errors")), name)


def __dir__() -> list[str]:
    return sorted(__all__)
