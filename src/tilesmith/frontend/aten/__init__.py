"""The operators of PyTorch's ATen library, whatever source a program of them was read from.

Importing this package registers every operator; it does not import `torch`.
"""

from tilesmith.frontend.aten import (
    activations,
    attention,
    composites,
    contractions,
    convolutions,
    creation,
    elementwise,
    indexing,
    normalizations,
    pools,
    reductions,
    shapes,
    symbols,
    upsampling,
)

FAMILIES = (
    elementwise,
    activations,
    reductions,
    contractions,
    convolutions,
    pools,
    normalizations,
    attention,
    upsampling,
    shapes,
    indexing,
    creation,
    symbols,
    composites,
)
"""The modules that register operators."""

__all__ = ["FAMILIES"]
