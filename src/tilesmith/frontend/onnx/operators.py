"""The modules that register operators, and the reader that uses them."""

from tilesmith.frontend.common.source import Reader
from tilesmith.frontend.onnx import (
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
    optimizers,
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
from tilesmith.frontend.onnx.contrib import attention as contrib_attention
from tilesmith.frontend.onnx.contrib import fused as contrib_fused
from tilesmith.frontend.onnx.contrib import quantized as contrib_quantized
from tilesmith.frontend.onnx.inspection import inspect
from tilesmith.frontend.onnx.ml import encoders as ml_encoders
from tilesmith.frontend.onnx.ml import features as ml_features
from tilesmith.frontend.onnx.ml import linear as ml_linear
from tilesmith.frontend.onnx.ml import trees as ml_trees
from tilesmith.frontend.onnx.reader import load, nodes
from tilesmith.frontend.onnx.registry import OPERATORS

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
    selection,
    resizing,
    sampling,
    attention,
    states,
    recurrent,
    control,
    loops,
    sequences,
    strings,
    quantized,
    losses,
    optimizers,
    early,
    ml_features,
    ml_encoders,
    ml_linear,
    ml_trees,
    contrib_fused,
    contrib_attention,
    contrib_quantized,
)
"""The modules that register operators, in the order of the documentation."""

READER = Reader(load, nodes, inspect)

__all__ = ["FAMILIES", "OPERATORS", "READER"]
