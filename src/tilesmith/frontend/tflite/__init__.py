"""The frontend for TFLite files: `.tflite`, as TensorFlow Lite and LiteRT run them.

The file is read without TensorFlow and without a FlatBuffers library.  Quantised operators compute
the same integers as TFLite's reference kernels.
"""

from tilesmith.frontend.common.source import Frontend
from tilesmith.frontend.tflite import (
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
    stablehlo_functions,
    stablehlo_indexing,
    variables,
    weights,
)
from tilesmith.frontend.tflite.inspection import described, inspect, signatures
from tilesmith.frontend.tflite.model import recognises
from tilesmith.frontend.tflite.reader import load, nodes

FAMILIES = (
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
    stablehlo_functions,
    stablehlo_indexing,
    variables,
    weights,
)
"""The modules that register operators, in the order of the documentation."""

TFLITE = Frontend(
    "a TFLite file",
    ("a path to a TFLite model", "its bytes"),
    recognises,
    load,
    nodes,
    inspect,
    signatures,
    described,
)

__all__ = ["FAMILIES", "TFLITE"]
