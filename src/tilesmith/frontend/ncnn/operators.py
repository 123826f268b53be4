"""The modules that register operators, and the reader that uses them."""

from tilesmith.frontend.common.networks import network_reader
from tilesmith.frontend.ncnn import (  # noqa: F401  (registers operators)
    detection,
    elements,
    layers,
    sequences,
    shapes,
)
from tilesmith.frontend.ncnn.layers import LAYERS
from tilesmith.frontend.ncnn.model import read

READER = network_reader(read, LAYERS)

__all__ = ["LAYERS", "READER"]
