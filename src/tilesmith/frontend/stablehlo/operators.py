"""The modules that register operations, and the reader that uses them."""

from tilesmith.frontend.common.source import Reader
from tilesmith.frontend.stablehlo import rows  # noqa: F401  (registers operations)
from tilesmith.frontend.stablehlo.reader import inspect, load, nodes

READER = Reader(load, nodes, inspect)

__all__ = ["READER"]
