"""Decomposition: composite operators become the graphs that define them, down to primitives."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from tilesmith.graph.builder import expansion
from tilesmith.graph.nodes import Constant, Data, Graph, Node, Value
from tilesmith.ops.base import Op
from tilesmith.ops.shape import Reshape


def decompose(graph: Graph) -> Graph:
    """`graph` over primitive operators only; the same object if it has no composite."""
    return decompose_only(graph, lambda _: True)


def decompose_only(graph: Graph, chosen: Callable[[Op], bool]) -> Graph:
    """`graph` with the expansions of the composite operators for which `chosen` is true; the same
    object if there are none.

    New nodes have the `loc` of their composite.  The composite's result keeps its label.  Constants
    that an expansion only reshapes stay constants.
    """

    def goes(op: Op) -> bool:
        return op.is_composite() and chosen(op)

    if not any(goes(n.op) for n in graph.nodes):
        return graph
    expanded = _Expansion(graph.constants, goes)
    for node in graph.nodes:
        expanded.add(node)
    return replace(
        graph,
        constants=tuple(expanded.constants.values()),
        nodes=tuple(expanded.nodes),
        outputs=tuple(expanded.renamed.get(v, v) for v in graph.outputs),
    )


class _Expansion:
    """The graph under construction.  `renamed` maps results of expanded nodes to the values that
    replace them.  `goes` decides which operators are expanded.
    """

    def __init__(self, constants: tuple[Constant, ...], goes: Callable[[Op], bool]) -> None:
        self.goes = goes
        self.constants = {c.value: c for c in constants}
        self.nodes: list[Node] = []
        self.renamed: dict[Value, Value] = {}

    def add(self, node: Node) -> None:
        node = node.with_values(self.renamed)
        if not self.goes(node.op):
            self.nodes.append(node)
            return
        body = expansion(node.op, tuple(v.type for v in node.inputs))
        inner: dict[Value, Value] = dict(zip(body.inputs, node.inputs))
        for c in body.constants:  # all uses of one expansion share these constants
            self.constants.setdefault(c.value, c)
            inner[c.value] = c.value
        # A result of the composite keeps its `Value` if a node of the body computes it.  It is
        # renamed if the body returns an input, a constant, or an earlier result again.
        final: dict[Value, Value] = {}
        for result, out in zip(node.outputs, body.outputs, strict=True):
            if out not in inner:
                final.setdefault(out, result)
        for n in body.nodes:
            outputs = tuple(final.get(v) or Value("", v.type, v.layout) for v in n.outputs)
            inner.update(zip(n.outputs, outputs))
            made = Node(n.op, tuple(inner[v] for v in n.inputs), outputs, node.loc)
            source = self.constants.get(made.inputs[0]) if isinstance(n.op, Reshape) else None
            if source is None or source.value.layout or not outputs[0].type.is_static:
                self.add(made)
            else:  # rules recognise scales and zero points because they are constants
                self.constants[outputs[0]] = _reshaped(source, outputs[0])
        for result, out in zip(node.outputs, body.outputs):
            value = self.renamed.get(inner[out], inner[out])
            if value is not result:
                self.renamed[result] = value


def _reshaped(source: Constant, result: Value) -> Constant:
    """`source`, a constant without a layout, in the shape of `result`."""
    shape = result.type.static_shape
    return Constant(result, Data(lambda: source.data.read().reshape(shape)))
