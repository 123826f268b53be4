"""The names that an ONNX graph's nodes define and use."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tilesmith.frontend.common.order import Named
from tilesmith.frontend.onnx.attributes import GRAPH, GRAPHS, attribute_type
from tilesmith.frontend.onnx.proto import text


def node_name(node: Any) -> str:
    """A node's name for messages: its own name, else the name of its first output."""
    own = text(node.name, "a node's name")
    return own or next((text(o, "an output's name") for o in node.output if o), "")


def subgraphs(node: Any) -> Iterator[Any]:
    """The graphs in a node's attributes."""
    for a in node.attribute:
        kind = attribute_type(a)
        if kind == GRAPH:
            yield a.g
        elif kind == GRAPHS:
            yield from a.graphs


def captured(graph: Any) -> set[str]:
    """Names that a sub-graph uses but does not define, which enclosing graphs define."""
    defined = {text(v.name, "an input's name") for v in graph.input}
    defined |= {text(t.name, "an initializer's name") for t in graph.initializer}
    defined |= {text(t.values.name, "an initializer's name") for t in graph.sparse_initializer}
    used: set[str] = set()
    for node in graph.node:
        defined.update(text(o, "an output's name") for o in node.output)
        used |= uses(node)
    used |= {text(o.name, "an output's name") for o in graph.output}
    return used - defined


def uses(node: Any) -> set[str]:
    """Names that a node uses: its inputs, and names that its sub-graphs capture."""
    names = {text(i, "an input's name") for i in node.input if i}
    for graph in subgraphs(node):
        names |= captured(graph)
    return names


def named(node: Any) -> Named[Any]:
    """The names of a NodeProto.  Raises ModelError for names that are not text."""
    outputs = (text(o, "an output's name") for o in node.output)
    return Named(node, node_name(node), tuple(o for o in outputs if o), uses(node))
