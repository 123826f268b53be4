"""Decomposition: composite operators become the graphs that define them, down to primitives."""

from __future__ import annotations

from dataclasses import replace

from tilesmith.graph.builder import expansion
from tilesmith.graph.nodes import Constant, Graph, Node, Value


def decompose(graph: Graph) -> Graph:
    """`graph` over primitive operators only; the same object if it has no composite.

    New nodes carry the `loc` of their composite.  Its result keeps its label.
    """
    if not any(n.op.is_composite() for n in graph.nodes):
        return graph
    expanded = _Expansion(graph.constants)
    for node in graph.nodes:
        expanded.add(node)
    return replace(
        graph,
        constants=tuple(expanded.constants.values()),
        nodes=tuple(expanded.nodes),
        outputs=tuple(expanded.renamed.get(v, v) for v in graph.outputs),
    )


class _Expansion:
    """The graph under construction; `renamed` maps results that got no value of their own."""

    def __init__(self, constants: tuple[Constant, ...]) -> None:
        self.constants = {c.value: c for c in constants}
        self.nodes: list[Node] = []
        self.renamed: dict[Value, Value] = {}

    def add(self, node: Node) -> None:
        inputs = tuple(self.renamed.get(v, v) for v in node.inputs)
        if not node.op.is_composite():
            self.nodes.append(
                node if inputs == node.inputs else Node(node.op, inputs, node.outputs, node.loc)
            )
            return
        body = expansion(node.op, tuple(v.type for v in inputs))
        inner: dict[Value, Value] = dict(zip(body.inputs, inputs))
        for c in body.constants:  # shared between all uses of one expansion
            self.constants.setdefault(c.value, c)
            inner[c.value] = c.value
        # A result keeps its own value where the body computes it (once); an input that is passed
        # through, or a result returned twice, is renamed.
        final: dict[Value, Value] = {}
        for result, out in zip(node.outputs, body.outputs, strict=True):
            if out not in inner:
                final.setdefault(out, result)
        for n in body.nodes:
            outputs = tuple(final.get(v) or Value("", v.type, v.layout) for v in n.outputs)
            inner.update(zip(n.outputs, outputs))
            self.add(Node(n.op, tuple(inner[v] for v in n.inputs), outputs, node.loc))
        for result, out in zip(node.outputs, body.outputs):
            value = self.renamed.get(inner[out], inner[out])
            if value is not result:
                self.renamed[result] = value
