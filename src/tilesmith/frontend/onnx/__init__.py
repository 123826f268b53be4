"""The ONNX frontend: `load` turns a model file into a Graph.

Importing this package registers every operator; it does not import `onnx`, which happens when a
model is read.
"""

from tilesmith.frontend.onnx import (
    activations,
    attention,
    constants,
    contractions,
    control,
    convolutions,
    elementwise,
    losses,
    normalizations,
    quantized,
    random_numbers,
    recurrent,
    reductions,
    resizing,
    sampling,
    scattering,
    sequences,
    shapes,
)
from tilesmith.frontend.onnx.errors import ValuesNeededError
from tilesmith.frontend.onnx.load import load
from tilesmith.frontend.onnx.registry import OLDEST_OPSET, TABLE

FAMILIES = (
    elementwise,
    activations,
    reductions,
    contractions,
    convolutions,
    normalizations,
    shapes,
    constants,
    random_numbers,
    scattering,
    resizing,
    sampling,
    attention,
    recurrent,
    control,
    sequences,
    quantized,
    losses,
)
"""The modules that register operators, in the order of the documentation."""

__all__ = ["FAMILIES", "OLDEST_OPSET", "TABLE", "ValuesNeededError", "load"]
