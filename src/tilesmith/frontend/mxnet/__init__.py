"""The frontend for models of MXNet and Gluon: `NAME-symbol.json` and `NAME-0000.params`.

Both files are read without MXNet.
"""

from tilesmith.frontend.common.source import Frontend
from tilesmith.frontend.mxnet.reader import recognises

MXNET = Frontend(
    "an MXNet symbol",
    ("a path to an MXNet symbol, or to it and its parameters",),
    recognises,
    "tilesmith.frontend.mxnet.operators",
)

__all__ = ["MXNET"]
