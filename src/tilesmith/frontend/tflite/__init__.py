"""The frontend for TFLite files: `.tflite`, as TensorFlow Lite and LiteRT run them.

The file is read without TensorFlow and without a FlatBuffers library.  Quantised operators compute
the same integers as TFLite's reference kernels.
"""

from tilesmith.frontend.common.source import Frontend
from tilesmith.frontend.tflite.model import recognises

TFLITE = Frontend(
    "a TFLite file",
    ("a path to a TFLite model", "its bytes"),
    recognises,
    "tilesmith.frontend.tflite.operators",
)

__all__ = ["TFLITE"]
