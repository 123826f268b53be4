"""The frontend for TensorFlow's models: SavedModel folders, and frozen graphs (`.pb`).

The files are read without TensorFlow.  Where TFLite has an operator of TensorFlow's, both readers
have one function for it.
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
