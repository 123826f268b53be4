"""The modules that register operators, and the reader that uses them."""

from tilesmith.frontend.common.source import Reader
from tilesmith.frontend.coreml import (
    compressed,
    control,
    convolutions,
    detection,
    elementwise,
    image_layers,
    indexing,
    layers,
    normalizations,
    recurrent,
    reductions,
    resizing,
    shapes,
    slices,
)
from tilesmith.frontend.coreml.reader import described, inspect, load, nodes, signatures

FAMILIES = (
    compressed,
    control,
    convolutions,
    detection,
    elementwise,
    image_layers,
    indexing,
    layers,
    normalizations,
    recurrent,
    reductions,
    resizing,
    shapes,
    slices,
)
"""The modules that register operators, in the order of the documentation."""

READER = Reader(load, nodes, inspect, signatures, described)

__all__ = ["FAMILIES", "READER"]
