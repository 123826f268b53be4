"""The reader of Keras files with all layers and operations: importing it registers them."""

from tilesmith.frontend import aten  # noqa: F401  (registers operators)
from tilesmith.frontend.common.source import Reader
from tilesmith.frontend.keras import (  # noqa: F401  (registers operators)
    activations,
    attention,
    convolutions,
    core,
    merging,
    normalizations,
    operations,
    recurrent,
    shapes,
)
from tilesmith.frontend.keras.reader import inspect, load, nodes

READER = Reader(load, nodes, inspect)

__all__ = ["READER"]
