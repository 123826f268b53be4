"""The frontend for TensorFlow's models: SavedModel folders, and frozen graphs (`.pb`).

The files are read without TensorFlow.  Operators that TFLite took over from TensorFlow have one
import function for both readers.
"""

from tilesmith.frontend.common.source import Frontend
from tilesmith.frontend.tensorflow.model import recognises

TENSORFLOW = Frontend(
    "a TensorFlow SavedModel or frozen graph",
    ("a path to a TensorFlow model",),
    recognises,
    "tilesmith.frontend.tensorflow.operators",
)

__all__ = ["TENSORFLOW"]
