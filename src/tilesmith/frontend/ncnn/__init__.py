"""The frontend for ncnn's models: a `.param` with its `.bin`."""

from tilesmith.frontend.common.networks import network_frontend
from tilesmith.frontend.ncnn import elements, layers, shapes
from tilesmith.frontend.ncnn.layers import LAYERS
from tilesmith.frontend.ncnn.model import read, recognises

FAMILIES = (elements, layers, shapes)
"""The modules that register layers."""

NCNN = network_frontend(
    "an ncnn model",
    ("a path to an ncnn model (.param)", "the paths of its .param and .bin as a pair"),
    recognises,
    read,
    LAYERS,
)

__all__ = ["FAMILIES", "NCNN"]
