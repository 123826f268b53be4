"""The modules that register operators, and the reader that uses them."""

from tilesmith.frontend.common.source import Reader
from tilesmith.frontend.relay import elementwise, layers, quantized, shapes, vision  # noqa: F401  (registers operators)
from tilesmith.frontend.relay.reader import inspect, load, nodes

READER = Reader(load, nodes, inspect)

__all__ = ["READER"]
