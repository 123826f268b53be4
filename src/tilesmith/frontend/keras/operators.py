"""The reader of Keras files with all layers and operations: importing it registers them."""

from tilesmith.frontend import aten
from tilesmith.frontend.common.source import Reader
from tilesmith.frontend.keras import (
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

FAMILIES = (
    core,
    activations,
    convolutions,
    normalizations,
    recurrent,
    attention,
    merging,
    shapes,
    operations,
    aten,
)
"""The modules in the order of the documentation."""

READER = Reader(load, nodes, inspect)

__all__ = ["FAMILIES", "READER"]
