"""The table of layers, and the reader that uses it."""

from tilesmith.frontend.common.networks import network_reader
from tilesmith.frontend.tengine.layers import LAYERS
from tilesmith.frontend.tengine.model import read

READER = network_reader(read, LAYERS)

__all__ = ["LAYERS", "READER"]
