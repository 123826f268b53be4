"""The modules that register operators, and the reader that uses them."""

from tilesmith.frontend.common.networks import network_reader
from tilesmith.frontend.openvino import (  # noqa: F401  (registers operators)
    detection,
    elements,
    indexing,
    layers,
    recurrent,
    shapes,
    transforms,
)
from tilesmith.frontend.openvino.elements import LAYERS
from tilesmith.frontend.openvino.model import read

READER = network_reader(read, LAYERS)

__all__ = ["READER"]
