"""The modules that register operators, and the reader that uses them."""

from tilesmith.frontend.common.networks import network_reader
from tilesmith.frontend.darknet import heads, layers  # noqa: F401  (registers operators)
from tilesmith.frontend.darknet.config import read
from tilesmith.frontend.darknet.layers import LAYERS

READER = network_reader(read, LAYERS)

__all__ = ["READER"]
