"""Dead code elimination: remove nodes and constants that no output depends on.

Graph inputs stay, since users see them.  A node without results is alive if an extent depends on
what it measures.
"""

from __future__ import annotations

from dataclasses import replace

from tilesmith.graph.measure import Measure
from tilesmith.graph.nodes import Graph, Node, Value
from tilesmith.ir.expr import Var


def dce(graph: Graph) -> Graph:
    """`graph` without dead nodes and constants; the same object if there are none."""
    live: set[Value] = set(graph.outputs)
    extents: set[Var] = set()
    measures = any(isinstance(n.op, Measure) for n in graph.nodes)
    nodes: list[Node] = []
    for node in reversed(graph.nodes):
        op = node.op
        needed = isinstance(op, Measure) and (op.asserts or not extents.isdisjoint(op.symbols))
        if needed or any(v in live for v in node.outputs):
            live.update(node.inputs)
            extents.update(node.symbols if measures else ())
            nodes.append(node)
    constants = tuple(c for c in graph.constants if c.value in live)
    if len(nodes) == len(graph.nodes) and len(constants) == len(graph.constants):
        return graph
    nodes.reverse()
    return replace(graph, constants=constants, nodes=tuple(nodes))
