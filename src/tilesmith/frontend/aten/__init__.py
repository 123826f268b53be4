"""The operators of PyTorch's ATen library, whatever source a program of them was read from.

Importing this package registers every operator; it does not import `torch`.
"""

from tilesmith.frontend.aten import (
    activations,
    attention,
    composites,
    contractions,
    control,
    convolutions,
    creation,
    distances,
    elementwise,
    embeddings,
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
    shapes,
    sorting,
    symbols,
    upsampling,
)

FAMILIES = (
    elementwise,
    functions,
    activations,
    reductions,
    contractions,
    control,
    distances,
    convolutions,
    pools,
    normalizations,
    attention,
    recurrent,
    quantized,
    upsampling,
    shapes,
    indexing,
    scatters,
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
