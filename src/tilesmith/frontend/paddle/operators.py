"""The modules that register operators, and the reader that uses them."""

from tilesmith.frontend.common.networks import network_reader
from tilesmith.frontend.paddle import (  # noqa: F401  (registers operators)
    control,
    detection,
    elementwise,
    layers,
    recurrent,
    shapes,
)
from tilesmith.frontend.paddle.reader import read
from tilesmith.frontend.paddle.registry import OPERATORS

READER = network_reader(read, OPERATORS)

__all__ = ["READER"]
