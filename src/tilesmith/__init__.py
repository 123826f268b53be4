"""Tilesmith is an end-to-end deep learning compiler. It turns a trained model into native code that
is tuned for one machine.

    import tilesmith as ts
    exe = ts.compile("resnet50.onnx")
    y = exe(x)

The names below are the public interface.  Importing the package does not load the compiler; the
first use of a name does.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tilesmith.support.exports import exports
from tilesmith.support.version import VERSION

if TYPE_CHECKING:
    from tilesmith import ncnn, ort, te, tengine, tflite, torch, training
    from tilesmith.driver import build, check, compile, load
    from tilesmith.driver.compiler import tensor_intrinsics
    from tilesmith.driver.exporting import export
    from tilesmith.driver.gradients import grad, jvp, value_and_grad
    from tilesmith.engines.plugin import export_plugin
    from tilesmith.frontend.onnx.custom import register_op
    from tilesmith.frontend.onnx.export import save_onnx
    from tilesmith.graph.nodes import Graph
    from tilesmith.ir.target import Target
    from tilesmith.ops.base import Op
    from tilesmith.quantisation.entry import quantize
    from tilesmith.runtime.executable import Executable
    from tilesmith.runtime.instance import Instance
    from tilesmith.runtime.remote.device import RemoteDevice
    from tilesmith.runtime.signing import verify
    from tilesmith.search_space.templates import register_template
    from tilesmith.serving.batcher import Batcher
    from tilesmith.serving.service import Service
    from tilesmith.serving.streams import Streams
    from tilesmith.support.errors import (
        AccuracyError,
        DeadlineError,
        DeviceError,
        ExpressionError,
        InternalError,
        ModelError,
        ScheduleError,
        SignatureError,
        TilesmithError,
        UnavailableError,
        UnsupportedError,
        UsageError,
    )
    from tilesmith.support.options import Options
    from tilesmith.training.trainer import Trainer
    from tilesmith.tuning.model import tune
    from tilesmith.tuning.operators import export_op
    from tilesmith.tuning.template import apply_best, auto_schedule, tune_expression, tune_template

__version__ = VERSION

__all__ = [
    "AccuracyError",
    "Batcher",
    "DeadlineError",
    "DeviceError",
    "Executable",
    "ExpressionError",
    "Graph",
    "Instance",
    "InternalError",
    "ModelError",
    "Op",
    "Options",
    "RemoteDevice",
    "ScheduleError",
    "Service",
    "SignatureError",
    "Streams",
    "Target",
    "TilesmithError",
    "Trainer",
    "UnavailableError",
    "UnsupportedError",
    "UsageError",
    "apply_best",
    "auto_schedule",
    "build",
    "check",
    "compile",
    "export",
    "export_op",
    "export_plugin",
    "grad",
    "jvp",
    "load",
    "ncnn",
    "ort",
    "quantize",
    "register_op",
    "register_template",
    "save_onnx",
    "te",
    "tengine",
    "tensor_intrinsics",
    "tflite",
    "torch",
    "training",
    "tune",
    "tune_expression",
    "tune_template",
    "value_and_grad",
    "verify",
]

__getattr__, __dir__ = exports(
    __name__,
    {
        "tilesmith.driver.entry": "compile load",
        "tilesmith.driver.compiler": "build tensor_intrinsics",
        "tilesmith.driver.exporting": "export",
        "tilesmith.driver.gradients": "grad jvp value_and_grad",
        "tilesmith.driver.checking": "check",
        "tilesmith.frontend.onnx.custom": "register_op",
        "tilesmith.frontend.onnx.export": "save_onnx",
        "tilesmith.graph.nodes": "Graph",
        "tilesmith.ir.target": "Target",
        "tilesmith.ops.base": "Op",
        "tilesmith.engines.plugin": "export_plugin",
        "tilesmith.quantisation.entry": "quantize",
        "tilesmith.runtime.executable": "Executable",
        "tilesmith.runtime.instance": "Instance",
        "tilesmith.runtime.remote.device": "RemoteDevice",
        "tilesmith.runtime.signing": "verify",
        "tilesmith.serving.batcher": "Batcher",
        "tilesmith.serving.service": "Service",
        "tilesmith.serving.streams": "Streams",
        "tilesmith.support.errors": "AccuracyError DeadlineError DeviceError ExpressionError "
        "InternalError ModelError ScheduleError SignatureError TilesmithError UnavailableError "
        "UnsupportedError UsageError",
        "tilesmith.support.options": "Options",
        "tilesmith.ncnn": "",
        "tilesmith.ort": "",
        "tilesmith.te": "",
        "tilesmith.tengine": "",
        "tilesmith.tflite": "",
        "tilesmith.torch": "",
        "tilesmith.training": "",
        "tilesmith.training.trainer": "Trainer",
        "tilesmith.tuning.template": "apply_best auto_schedule tune_expression tune_template",
        "tilesmith.tuning.operators": "export_op",
        "tilesmith.tuning.model": "tune",
        "tilesmith.search_space.templates": "register_template",
    },
)
