"""The modules that register operators, and the reader that uses them."""

from tilesmith.frontend.common.networks import network_reader
from tilesmith.frontend.paddle import elementwise, layers, recurrent, shapes  # noqa: F401  (registers operators)
from tilesmith.frontend.paddle.reader import read
from tilesmith.frontend.paddle.registry import OPERATORS

READER = network_reader(read, OPERATORS)

__all__ = ["READER"]
