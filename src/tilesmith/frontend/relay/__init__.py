"""The frontend for TVM's programs: Relay's text, version 0.0.5, and the graphs of NNVM before it.

Weights are in the text's section of constants, or in a file of parameters (`.params`) beside it.
"""

from tilesmith.frontend.common.source import Frontend
from tilesmith.frontend.relay.reader import recognises

RELAY = Frontend(
    "a Relay program",
    ("a path to a Relay program", "its text as bytes"),
    recognises,
    "tilesmith.frontend.relay.operators",
)

__all__ = ["RELAY"]
