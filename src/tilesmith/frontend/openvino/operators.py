"""The modules that register operators, and the reader that uses them."""

from tilesmith.frontend.common.networks import network_reader
from tilesmith.frontend.openvino import elements, layers, shapes
from tilesmith.frontend.openvino.elements import LAYERS
from tilesmith.frontend.openvino.model import read

FAMILIES = (elements, layers, shapes)
"""The modules that register operators."""

READER = network_reader(read, LAYERS)

__all__ = ["FAMILIES", "READER"]
