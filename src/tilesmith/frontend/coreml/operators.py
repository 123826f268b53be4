"""The modules that register operators, and the reader that uses them."""

from tilesmith.frontend.common.source import Reader
from tilesmith.frontend.coreml import (  # noqa: F401  (registers operators)
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

READER = Reader(load, nodes, inspect, signatures, described)

__all__ = ["READER"]
