"""The operators of PyTorch's ATen library, for programs from any source.

Importing this package registers every operator; it does not import `torch`.
"""

from tilesmith.frontend.aten import (  # noqa: F401  (registers operators)
    activations,
    attention,
    bessel_functions,
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
    gamma_functions,
    gradients,
    indexing,
    norm_gradients,
    normalizations,
    pool_gradients,
    pools,
    quantized,
    random_numbers,
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
