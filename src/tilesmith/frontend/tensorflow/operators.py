"""The modules that register operators, and the reader that uses them."""

from tilesmith.frontend.common.source import Reader
from tilesmith.frontend.tensorflow import arithmetic, control, elementwise, images, lists, shaping  # noqa: F401  (registers operators)
from tilesmith.frontend.tensorflow.inspection import inspect, signatures
from tilesmith.frontend.tensorflow.reader import load, nodes

READER = Reader(load, nodes, inspect, signatures)

__all__ = ["READER"]
