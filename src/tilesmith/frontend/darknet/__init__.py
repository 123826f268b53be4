"""The frontend for Darknet's networks: a `.cfg` with its `.weights`."""

from tilesmith.frontend.common.source import Frontend
from tilesmith.frontend.darknet.config import recognises

DARKNET = Frontend(
    "a Darknet network",
    ("a path to a Darknet network (.cfg)", "the paths of its .cfg and .weights as a pair"),
    recognises,
    "tilesmith.frontend.darknet.operators",
)

__all__ = ["DARKNET"]
