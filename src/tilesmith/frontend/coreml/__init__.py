"""The frontend for Core ML: `.mlpackage` folders and `.mlmodel` files.

The files are read without coremltools, so that models for Apple's systems run elsewhere.
"""

from tilesmith.frontend.common.source import Frontend
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
from tilesmith.frontend.coreml.package import recognises
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

COREML = Frontend(
    "a Core ML model",
    ("a path to a Core ML model or package", "its bytes"),
    recognises,
    load,
    nodes,
    inspect,
    signatures,
    described,
)

__all__ = ["COREML", "FAMILIES"]
