"""The frontend for models of Paddle: `.pdmodel` or `.json`, with `.pdiparams`.

Both files are read without Paddle.
"""

from tilesmith.frontend.common.source import Frontend
from tilesmith.frontend.paddle import elementwise, layers, shapes
from tilesmith.frontend.paddle.reader import inspect, load, nodes, recognises

FAMILIES = (elementwise, layers, shapes)
"""The modules that register operators, in the order of the documentation."""

PADDLE = Frontend(
    "a Paddle model",
    ("a path to a Paddle model, or to it and its parameters",),
    recognises,
    load,
    nodes,
    inspect,
)

__all__ = ["FAMILIES", "PADDLE"]
