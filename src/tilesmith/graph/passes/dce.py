"""Dead code elimination: remove nodes and constants that no output depends on.

Graph inputs stay, since users see them.
"""

from __future__ import annotations

from tilesmith.graph.nodes import Graph, Node, Value


def dce(graph: Graph) -> Graph:
    """`graph` without dead nodes and constants; the same object if there are none."""
    live: set[Value] = set(graph.outputs)
    nodes: list[Node] = []
    for node in reversed(graph.nodes):
        if any(v in live for v in node.outputs):
            live.update(node.inputs)
            nodes.append(node)
    constants = tuple(c for c in graph.constants if c.value in live)
    if len(nodes) == len(graph.nodes) and len(constants) == len(graph.constants):
        return graph
    nodes.reverse()
    return Graph(
        graph.name, graph.inputs, constants, tuple(nodes), graph.outputs, graph.output_names
    )
