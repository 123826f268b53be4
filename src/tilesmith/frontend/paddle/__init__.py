"""The frontend for models of Paddle: `.pdmodel` or `.json`, with `.pdiparams`.

Both files are read without Paddle.
"""

from tilesmith.frontend.common.source import Frontend
from tilesmith.frontend.paddle.reader import recognises

PADDLE = Frontend(
    "a Paddle model",
    ("a path to a Paddle model, or to it and its parameters",),
    recognises,
    "tilesmith.frontend.paddle.operators",
)

__all__ = ["PADDLE"]
