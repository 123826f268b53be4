"""The modules that register operators, and the reader that uses them."""

from tilesmith.frontend.common.source import Reader
from tilesmith.frontend.relay import elementwise, layers, quantized, shapes, vision
from tilesmith.frontend.relay.reader import inspect, load, nodes

FAMILIES = (elementwise, layers, shapes, vision, quantized)
"""The modules that register operators."""

READER = Reader(load, nodes, inspect)

__all__ = ["FAMILIES", "READER"]
