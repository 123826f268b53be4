"""Dead code elimination: remove nodes and constants that no output depends on.

Graph inputs stay, since users see them.  A node that defines symbols is alive if an extent depends
on these symbols.
"""

from __future__ import annotations

from dataclasses import replace

from tilesmith.graph.measure import Measure, symbols_defined
from tilesmith.graph.nodes import Graph, Node, Value
from tilesmith.ir.expr import Var


def dce(graph: Graph) -> Graph:
    """`graph` without dead nodes and constants; the same object if there are none."""
    live: set[Value] = set(graph.outputs)
    extents: set[Var] = set()
    measures = any(map(symbols_defined, graph.nodes))
    nodes: list[Node] = []
    for node in reversed(graph.nodes):
        op = node.op
        needed = not extents.isdisjoint(symbols_defined(node))
        needed = needed or (isinstance(op, Measure) and op.asserts)
        if needed or any(v in live for v in node.outputs):
            live.update(node.inputs)
            extents.update(node.symbols if measures else ())
            nodes.append(node)
    constants = tuple(c for c in graph.constants if c.value in live)
    if len(nodes) == len(graph.nodes) and len(constants) == len(graph.constants):
        return graph
    nodes.reverse()
    return replace(graph, constants=constants, nodes=tuple(nodes))
