"""The ONNX frontend.

Importing this package registers every operator.  The `onnx` package is imported later, when a
model is read.
"""

from tilesmith.frontend.common.source import Frontend
from tilesmith.frontend.onnx.proto import recognises

ONNX = Frontend(
    "an ONNX file",
    ("a path to an ONNX model", "its bytes", "an onnx.ModelProto"),
    recognises,
    "tilesmith.frontend.onnx.operators",
)

__all__ = ["ONNX"]
