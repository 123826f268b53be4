"""Common subexpression elimination: equal computations and equal constants become one.

Operators are pure, so two nodes with the same operator, inputs, result types and layouts give the
same values.  Extents that are measured twice in the same way become one symbol.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from tilesmith.graph.bind import Binding
from tilesmith.graph.measure import Measure
from tilesmith.graph.nodes import Constant, Fused, Graph, Node, Value
from tilesmith.graph.text import attribute_text
from tilesmith.ir.expr import Expr
from tilesmith.ir.grammar import mapped
from tilesmith.ir.types import Dim
from tilesmith.ops.base import Op
from tilesmith.ops.elementwise import Add, Equal, Max, Min, Mul, NotEqual

COMMUTATIVE: tuple[type[Op], ...] = (Add, Mul, Min, Max, Equal, NotEqual)
"""Operators whose two inputs may be exchanged; only the payload of a NaN may differ."""

_SAMPLE = 16


def cse(graph: Graph) -> Graph:
    """`graph` with equal computations shared; the same object if there are none."""
    replaced: dict[Value, Value] = {}
    symbols: dict[Expr, Dim] = {}
    constants = _share_constants(graph, replaced)
    seen: dict[Any, Node] = {}
    order: dict[Value, int] = {v: i for i, v in enumerate(graph.inputs)}
    for c in constants:
        order[c.value] = len(order)
    nodes: list[Node] = []
    for node in graph.nodes:
        node = node.with_values(replaced)
        inputs = node.inputs
        if isinstance(node.op, COMMUTATIVE):
            inputs = tuple(sorted(inputs, key=order.__getitem__))
        key = (op_key(node.op), inputs, tuple((v.type, v.layout) for v in node.outputs))
        first = seen.setdefault(key, node)
        if first is node:
            nodes.append(node)
            for v in node.outputs:
                order[v] = len(order)
        else:
            replaced.update(zip(node.outputs, first.outputs))
            if isinstance(node.op, Measure) and isinstance(first.op, Measure):
                symbols.update(zip(node.op.symbols, first.op.symbols))
    if not replaced and not symbols:
        return graph
    outputs = tuple(replaced.get(v, v) for v in graph.outputs)
    shared = replace(graph, constants=constants, nodes=tuple(nodes), outputs=outputs)
    return cse(Binding(symbols).graph(shared)) if symbols else shared


def op_key(op: Op) -> Any:
    """A key that is equal for operators that compute the same function."""
    if isinstance(op, Fused):
        return op  # groups are equal only if their bodies are the same object
    if isinstance(op, Measure):
        return (Measure, tuple(s.sizes for s in op.symbols), op.bounds)
    return (type(op), mapped(tuple(op.attributes.values()), _attribute_key))


def _attribute_key(value: Any) -> Any:
    if isinstance(value, (Expr, Graph)):
        return value  # compared by identity, since different symbolic dimensions may have one name
    return attribute_text(value)  # in Python, 0.0 == -0.0 and 1 == True


def _share_constants(graph: Graph, replaced: dict[Value, Value]) -> tuple[Constant, ...]:
    seen: dict[Any, list[Constant]] = {}
    kept: list[Constant] = []
    for c in graph.constants:
        array = c.data.array
        # Constants are hashed only if some of their elements are equal, since weights are large.
        flat = array.reshape(-1) if array.flags.c_contiguous else np.empty(0, array.dtype)
        step = max(1, flat.size // _SAMPLE)
        key = (c.value.type, c.value.layout, flat[::step][: 2 * _SAMPLE].tobytes())
        alike = seen.setdefault(key, [])
        same = next((k for k in alike if k.data.digest == c.data.digest), None) if alike else None
        if same is None:
            alike.append(c)
            kept.append(c)
        else:
            replaced[c.value] = same.value
    return tuple(kept)
