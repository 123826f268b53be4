"""The frontend for models of MXNet and Gluon: `NAME-symbol.json` and `NAME-0000.params`.

Both files are read without MXNet.
"""

from tilesmith.frontend.common.source import Frontend
from tilesmith.frontend.mxnet import elementwise, layers, reductions, shapes
from tilesmith.frontend.mxnet.reader import inspect, load, nodes, recognises

FAMILIES = (elementwise, layers, reductions, shapes)
"""The modules that register operators, in the order of the documentation."""

MXNET = Frontend(
    "an MXNet symbol",
    ("a path to an MXNet symbol, or to it and its parameters",),
    recognises,
    load,
    nodes,
    inspect,
)

__all__ = ["FAMILIES", "MXNET"]
