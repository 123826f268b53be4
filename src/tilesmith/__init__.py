"""Tilesmith: an end-to-end deep learning compiler.  A trained model in, native code tuned for one machine out.

    import tilesmith as ts
    exe = ts.compile("resnet50.onnx")
    y = exe(x)
"""

from __future__ import annotations

from tilesmith import te
from tilesmith.driver import build, check, compile, load  # noqa: A004  # compile is the public name
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
    "build",
    "check",
    "compile",
    "load",
    "te",
]
