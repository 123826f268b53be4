"""The modules that register operators, and the reader that uses them."""

from tilesmith.frontend.common.networks import network_reader
from tilesmith.frontend.mxnet import (  # noqa: F401  (registers operators)
    detection,
    elementwise,
    layers,
    recurrent,
    reductions,
    sampling,
    shapes,
)
from tilesmith.frontend.mxnet.reader import read
from tilesmith.frontend.mxnet.registry import OPERATORS

READER = network_reader(read, OPERATORS)

__all__ = ["READER"]
