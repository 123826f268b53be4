"""The frontend for TensorFlow's models: SavedModel folders, and frozen graphs (`.pb`).

The files are read without TensorFlow.  Where TFLite has an operator of TensorFlow's, both readers
have one function for it.
"""

from tilesmith.frontend.common.source import Frontend
from tilesmith.frontend.tensorflow import arithmetic, control, elementwise, images, lists, shaping
from tilesmith.frontend.tensorflow.inspection import inspect, signatures
from tilesmith.frontend.tensorflow.model import recognises
from tilesmith.frontend.tensorflow.reader import load, nodes

FAMILIES = (arithmetic, control, elementwise, images, lists, shaping)
"""The modules that register operators, in the order of the documentation."""

TENSORFLOW = Frontend(
    "a TensorFlow SavedModel or frozen graph",
    ("a path to a TensorFlow model",),
    recognises,
    load,
    nodes,
    inspect,
    signatures,
)

__all__ = ["FAMILIES", "TENSORFLOW"]
