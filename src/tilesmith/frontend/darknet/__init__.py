"""The frontend for Darknet's networks: a `.cfg` with its `.weights`."""

from tilesmith.frontend.common.networks import network_frontend
from tilesmith.frontend.darknet import heads, layers
from tilesmith.frontend.darknet.config import read, recognises
from tilesmith.frontend.darknet.layers import LAYERS

FAMILIES = (layers, heads)
"""The modules that register layers."""

DARKNET = network_frontend(
    "a Darknet network",
    ("a path to a Darknet network (.cfg)", "the paths of its .cfg and .weights as a pair"),
    recognises,
    read,
    LAYERS,
)

__all__ = ["DARKNET", "FAMILIES"]
