"""The modules that register operators of ONNX's own domain, and the reader that uses them."""

from tilesmith.frontend.common.source import Reader
from tilesmith.frontend.onnx import (  # noqa: F401  (registers operators)
    activations,
    attention,
    constants,
    contractions,
    control,
    convolutions,
    early,
    elementwise,
    loops,
    losses,
    normalizations,
    quantized,
    random_numbers,
    recurrent,
    reductions,
    resizing,
    sampling,
    scattering,
    selection,
    sequences,
    shapes,
    states,
    strings,
)
from tilesmith.frontend.onnx.inspection import inspect
from tilesmith.frontend.onnx.reader import load, nodes
from tilesmith.frontend.onnx.registry import OPERATORS

READER = Reader(load, nodes, inspect)

__all__ = ["OPERATORS", "READER"]
