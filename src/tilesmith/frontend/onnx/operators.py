"""The modules that register operators, and the reader that uses them."""

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
    gradient,
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
from tilesmith.frontend.onnx.contrib import attention as contrib_attention  # noqa: F401
from tilesmith.frontend.onnx.contrib import fused as contrib_fused  # noqa: F401
from tilesmith.frontend.onnx.contrib import quantized as contrib_quantized  # noqa: F401
from tilesmith.frontend.onnx.inspection import inspect
from tilesmith.frontend.onnx.ml import (  # noqa: F401
    encoders,
    features,
    linear,
    trees,
)
from tilesmith.frontend.onnx.reader import load, nodes
from tilesmith.frontend.onnx.registry import OPERATORS

READER = Reader(load, nodes, inspect)

__all__ = ["OPERATORS", "READER"]
