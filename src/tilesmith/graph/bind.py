"""Symbols replaced by numbers: the program for some sizes only.

What measures nothing but symbols that are numbers now is no part of that program.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from operator import is_
from typing import Any

from tilesmith.graph.measure import Measure
from tilesmith.graph.nodes import Graph, Node, Value
from tilesmith.ir.expr import Expr, Var
from tilesmith.ir.symbols import bound, expected
from tilesmith.ir.types import Dim, TensorType
from tilesmith.ops.base import Op


def bind(graph: Graph, values: Mapping[Var, int]) -> Graph:
    """`graph` where symbols have these values; the same object if it has none of them.

    Raises ValueError if an extent has no value then, such as a division by zero.
    """
    if not values:
        return graph
    return Binding({**values}).graph(graph)


def expected_graph(graph: Graph) -> Graph:
    """`graph` for the sizes that its symbols are expected to have."""
    return bind(graph, {v: expected(v) for v in graph.symbols})


class Binding:
    """Extents, mostly symbols, replaced by others; a value becomes another one only if its type
    does.

    new: what values became.
    """

    def __init__(self, extents: Mapping[Expr, Dim]) -> None:
        self._extents = extents
        self.new: dict[Value, Value] = {}

    def graph(self, graph: Graph) -> Graph:
        inputs = tuple(map(self.value, graph.inputs))
        nodes = tuple(n for n in map(self.node, graph.nodes) if not _measures_nothing(n))
        outputs = tuple(map(self.value, graph.outputs))
        before = (*graph.inputs, *graph.nodes)
        if len(nodes) == len(graph.nodes) and all(map(is_, (*inputs, *nodes), before)):
            return graph
        return replace(graph, inputs=inputs, nodes=nodes, outputs=outputs)

    def value(self, value: Value) -> Value:
        found = self.new.get(value)
        if found is None and value.type.is_static:
            return value
        if found is None:
            found = self.new[value] = replace(value, type=self.type(value.type))
        return found

    def type(self, type: TensorType) -> TensorType:
        return TensorType(type.dtype, tuple(bound(d, self._extents) for d in type.shape))

    def node(self, node: Node) -> Node:
        op = self.op(node.op)
        inputs, outputs = (tuple(map(self.value, v)) for v in (node.inputs, node.outputs))
        if op is node.op and inputs == node.inputs and outputs == node.outputs:
            return node
        return Node(op, inputs, outputs, node.loc)

    def op(self, op: Op) -> Op:
        changed = {}
        for name, value in op.attributes.items():
            new = self.attribute(value)
            if new is not value:
                changed[name] = new
        return replace(op, **changed) if changed else op

    def attribute(self, value: Any) -> Any:
        if isinstance(value, Expr):
            return bound(value, self._extents)
        if isinstance(value, TensorType):
            return value if value.is_static else self.type(value)
        if isinstance(value, Graph):
            return type(self)(self._extents).graph(value)
        if isinstance(value, tuple):
            new = tuple(map(self.attribute, value))
            return value if all(a is b for a, b in zip(new, value)) else new
        return value


def _measures_nothing(node: Node) -> bool:
    op = node.op
    return isinstance(op, Measure) and not any(isinstance(s, Expr) for s in op.symbols)
