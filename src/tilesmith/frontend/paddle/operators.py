"""The modules that register operators, and the reader that uses them."""

from tilesmith.frontend.common.source import Reader
from tilesmith.frontend.paddle import elementwise, layers, recurrent, shapes
from tilesmith.frontend.paddle.reader import inspect, load, nodes

FAMILIES = (elementwise, layers, recurrent, shapes)
"""The modules that register operators, in the order of the documentation."""

READER = Reader(load, nodes, inspect)

__all__ = ["FAMILIES", "READER"]
