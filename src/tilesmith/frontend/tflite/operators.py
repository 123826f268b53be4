"""The modules that register operators, and the reader that uses them."""

from tilesmith.frontend.common.source import Reader
from tilesmith.frontend.tflite import (  # noqa: F401  (registers operators)
    activations,
    blocks,
    complex_numbers,
    contractions,
    control,
    convolutions,
    detection,
    elementwise,
    lstm,
    mediapipe,
    pools,
    quantized,
    quantized_activations,
    quantized_normalizations,
    quantized_products,
    quantized_reductions,
    recurrent,
    reductions,
    resizing,
    scattering,
    selection,
    shapes,
    slices,
    stablehlo,
    variables,
    weights,
)
from tilesmith.frontend.tflite.inspection import described, inspect, signatures
from tilesmith.frontend.tflite.reader import load, nodes
from tilesmith.frontend.tflite.registry import FORMS, OPERATORS

READER = Reader(load, nodes, inspect, signatures, described)

__all__ = ["FORMS", "OPERATORS", "READER"]
