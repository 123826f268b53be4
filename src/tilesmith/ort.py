"""Interfaces to ONNX Runtime: libraries of custom operators, and models whose parts run as such.

Importing this package does not import `onnxruntime`; only `accelerate` needs it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tilesmith.support.exports import exports

if TYPE_CHECKING:
    from tilesmith.engines.ort.accelerated import Accelerated, accelerate
    from tilesmith.engines.ort.library import export_custom_ops

__all__ = ["Accelerated", "accelerate", "export_custom_ops"]

__getattr__, __dir__ = exports(
    __name__,
    {
        "tilesmith.engines.ort.accelerated": "Accelerated accelerate",
        "tilesmith.engines.ort.library": "export_custom_ops",
    },
)
