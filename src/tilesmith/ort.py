"""Interfaces to ONNX Runtime: an execution provider, libraries of custom operators, and models
with parts that run as custom operators.

Importing this module does not import `onnxruntime`; all but `export_custom_ops` need it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tilesmith.support.exports import exports

if TYPE_CHECKING:
    from tilesmith.engines.ort.accelerated import Accelerated, accelerate
    from tilesmith.engines.ort.library import export_custom_ops
    from tilesmith.engines.ort.session import (
        InferenceSession,
        compile_context,
        install,
        register,
    )

__all__ = [
    "Accelerated",
    "InferenceSession",
    "accelerate",
    "compile_context",
    "export_custom_ops",
    "install",
    "register",
]

__getattr__, __dir__ = exports(
    __name__,
    {
        "tilesmith.engines.ort.accelerated": "Accelerated accelerate",
        "tilesmith.engines.ort.library": "export_custom_ops",
        "tilesmith.engines.ort.session": "InferenceSession compile_context install register",
    },
)
