"""The frontend for TVM's programs: Relay's text, version 0.0.5, and the graphs of NNVM before it.

Weights are in the text's section of constants, or in a file of parameters (`.params`) beside it.
"""

from __future__ import annotations

import json
import re

from tilesmith.frontend.common.source import Frontend, Source
from tilesmith.support.errors import DAMAGED

_START = re.compile(
    rb"\s*(?:(?:/\*.*?\*/|//[^\n]*)\s*)*(?:#\[version|def @|free_var %|fn \()", re.S
)
_PEEK = 1 << 16
"""Number of bytes at the start of a file among which the program must begin."""


def recognises(source: Source) -> bool:
    """Whether a file is Relay's text, or a graph of NNVM."""
    content = source.content
    if content is None:
        return False
    return _START.match(bytes(content[:_PEEK])) is not None or is_nnvm(content)


def is_nnvm(content: bytes | memoryview) -> bool:
    """Whether a file is a graph of NNVM.  MXNet's graphs, which have a similar form, are not."""
    if bytes(content[:256]).lstrip()[:1] != b"{":
        return False
    try:
        graph = json.loads(bytes(content))
        operators = {str(node["op"]) for node in graph["nodes"]} - {"null"}
        is_lower = all(re.fullmatch(r"(?!_[^_])[a-z0-9_]+", o) for o in operators)
        is_later = "mxnet_version" in graph.get("attrs", {})
        return "arg_nodes" in graph and bool(operators) and is_lower and not is_later
    except DAMAGED:
        return False


RELAY = Frontend(
    "a Relay program",
    ("a path to a Relay program", "its text as bytes"),
    recognises,
    "tilesmith.frontend.relay.operators",
)

__all__ = ["RELAY"]
