"""The frontend for TVM's programs: Relay's text, version 0.0.5, and the graphs of NNVM before it.

Weights are in the text's section of constants, or in a file of parameters (`.params`) beside it.
"""

from tilesmith.frontend.common.source import Frontend
from tilesmith.frontend.relay import elementwise, layers, quantized, shapes
from tilesmith.frontend.relay.reader import inspect, load, nodes, recognises

FAMILIES = (elementwise, layers, shapes, quantized)
"""The modules that register operators."""

RELAY = Frontend(
    "a Relay program",
    ("a path to a Relay program", "its text as bytes"),
    recognises,
    load,
    nodes,
    inspect,
)

__all__ = ["FAMILIES", "RELAY"]
