"""The modules that register operators, and the reader that uses them."""

from tilesmith.frontend.common.source import Reader
from tilesmith.frontend.mxnet import (
    detection,
    elementwise,
    layers,
    recurrent,
    reductions,
    sampling,
    shapes,
)
from tilesmith.frontend.mxnet.reader import inspect, load, nodes

FAMILIES = (detection, elementwise, layers, recurrent, reductions, sampling, shapes)
"""The modules that register operators, in the order of the documentation."""

READER = Reader(load, nodes, inspect)

__all__ = ["FAMILIES", "READER"]
