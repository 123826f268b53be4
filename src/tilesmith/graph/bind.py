"""Binding of symbols to numbers.  The new program is for these sizes only.

A `Measure` whose symbols are all bound is left out of the new program.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from tilesmith.graph.measure import Measure
from tilesmith.graph.nodes import Graph, Node, Value
from tilesmith.ir.expr import Expr, Var
from tilesmith.ir.grammar import mapped
from tilesmith.ir.symbols import bound, expected
from tilesmith.ir.types import Dim, TensorType
from tilesmith.ops.base import Op


def bind(graph: Graph, values: Mapping[Var, int]) -> Graph:
    """`graph` with its symbols replaced by `values`; the same object if no symbol of `values` is
    in the graph.

    Raises ValueError if an extent has no value at these sizes, as in a division by zero.
    """
    if not values:
        return graph
    return Binding({**values}).graph(graph)


def expected_graph(graph: Graph) -> Graph:
    """`graph` with each symbol replaced by its expected size."""
    return bind(graph, {v: expected(v) for v in graph.symbols})


class Binding:
    """Replaces extents (mostly symbols) by other extents.  A value is replaced only if its type
    changes.

    new: replaced value -> its replacement.
    """

    def __init__(self, extents: Mapping[Expr, Dim]) -> None:
        self._extents = extents
        self.new: dict[Value, Value] = {}

    def graph(self, graph: Graph) -> Graph:
        inputs, nodes = mapped(graph.inputs, self.value), mapped(graph.nodes, self.node)
        outputs = mapped(graph.outputs, self.value)
        kept = tuple(n for n in nodes if not _measures_nothing(n))
        if inputs is graph.inputs and nodes is graph.nodes and len(kept) == len(nodes):
            return graph
        return replace(graph, inputs=inputs, nodes=kept, outputs=outputs)

    def value(self, value: Value) -> Value:
        bound_value = self.new.get(value)
        if bound_value is None and value.type.is_static:
            return value
        if bound_value is None:
            bound_value = self.new[value] = replace(value, type=self.type(value.type))
        return bound_value

    def type(self, type: TensorType) -> TensorType:
        return TensorType(type.dtype, tuple(bound(d, self._extents) for d in type.shape))

    def node(self, node: Node) -> Node:
        op = self.op(node.op)
        inputs, outputs = (mapped(v, self.value) for v in (node.inputs, node.outputs))
        if op is node.op and inputs is node.inputs and outputs is node.outputs:
            return node
        return Node(op, inputs, outputs, node.loc)

    def op(self, op: Op) -> Op:
        changed = {}
        for name, value in op.attributes.items():
            new = mapped(value, self.attribute)
            if new is not value:
                changed[name] = new
        return replace(op, **changed) if changed else op

    def attribute(self, value: Any) -> Any:
        if isinstance(value, Expr):
            return bound(value, self._extents)
        if isinstance(value, TensorType):
            return value if value.is_static else self.type(value)
        if isinstance(value, Op):
            return self.op(value)
        if isinstance(value, Graph):
            return type(self)(self._extents).graph(value)
        return value


def _measures_nothing(node: Node) -> bool:
    op = node.op
    return isinstance(op, Measure) and not any(isinstance(s, Expr) for s in op.symbols)
