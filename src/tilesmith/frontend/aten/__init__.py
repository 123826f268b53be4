"""The operators of PyTorch's ATen library, whatever source a program of them was read from.

Importing this package registers every operator; it does not import `torch`.
"""

from tilesmith.frontend.aten import (
    activations,
    attention,
    bits,
    composites,
    contractions,
    control,
    convolutions,
    creation,
    distances,
    elementwise,
    embeddings,
    error_functions,
    functions,
    gradients,
    indexing,
    norm_gradients,
    normalizations,
    pools,
    quantized,
    recurrent,
    reductions,
    scatters,
    segments,
    shapes,
    sorting,
    symbols,
    transformers,
    upsampling,
)

FAMILIES = (
    elementwise,
    error_functions,
    functions,
    bits,
    activations,
    reductions,
    contractions,
    control,
    distances,
    convolutions,
    pools,
    normalizations,
    attention,
    transformers,
    recurrent,
    quantized,
    upsampling,
    shapes,
    indexing,
    scatters,
    segments,
    sorting,
    embeddings,
    creation,
    symbols,
    composites,
    gradients,
    norm_gradients,
)
"""The modules that register operators."""

__all__ = ["FAMILIES"]
