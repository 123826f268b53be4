"""All modules that register layers and operations; importing this module registers them."""

from tilesmith.frontend import aten
from tilesmith.frontend.keras import (
    activations,
    attention,
    convolutions,
    core,
    merging,
    normalizations,
    operations,
    recurrent,
    shapes,
)

FAMILIES = (
    core,
    activations,
    convolutions,
    normalizations,
    recurrent,
    attention,
    merging,
    shapes,
    operations,
    aten,
)
"""The modules in the order of the documentation."""
