"""Layout assignment: how each value lies in memory.

Every kernel can read any layout (a layout is an index map), so this pass only has to choose well.
The target's policy names, per node, the layouts it wants for constant operands and for results;
constants are packed when first read, results carry the layout on, and a `relayout` node stands only
before a graph output that is not row-major.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from tilesmith.graph.nodes import Constant, Data, Graph, Node, Relayout, Value
from tilesmith.ir.layout import Layout


@dataclass(frozen=True, slots=True)
class NodeLayouts:
    """Layouts for a node: per operand number (constants only), and per result."""

    operands: dict[int, Layout]
    results: tuple[Layout | None, ...]


Policy = Callable[[Node, tuple[Value, ...], frozenset[int]], NodeLayouts]
"""(node, its inputs with their layouts, which of them are constants) -> the layouts wanted."""


def assign_layouts(graph: Graph, policy: Policy) -> Graph:
    """`graph` with layouts on its values and constants packed to match."""
    current: dict[Value, Value] = {}
    packed: dict[tuple[Value, Layout], Constant] = {}
    nodes: list[Node] = []
    changed = False
    for node in graph.nodes:
        inputs = [current.get(v, v) for v in node.inputs]
        known = frozenset(i for i, v in enumerate(node.inputs) if v in graph.constant)
        wanted = policy(node, tuple(inputs), known)
        for i, layout in wanted.operands.items():
            source = graph.constant[node.inputs[i]]
            key = (source.value, layout)
            if source.value.layout is None and not layout.is_row_major:
                if key not in packed:
                    packed[key] = pack(source, layout)
                inputs[i] = packed[key].value
        outputs = []
        for v, layout in zip(node.outputs, wanted.results, strict=True):
            layout = None if layout is None or _is_trivial(layout, v) else layout
            if layout != v.layout:
                current[v] = replace(v, layout=layout)
            outputs.append(current.get(v, v))
        same = all(a is b for a, b in zip(inputs, node.inputs, strict=True)) and not any(
            v in current for v in node.outputs
        )
        changed |= not same
        nodes.append(node if same else replace(node, inputs=tuple(inputs), outputs=tuple(outputs)))
    results: list[Value] = []
    for v in graph.outputs:
        value = current.get(v, v)
        given = value in graph.inputs or value in graph.constant or value in results
        if value.layout is not None or given:  # an output is memory of its own, row-major
            plain = replace(value, layout=None)
            nodes.append(Node(Relayout(Layout.row_major(v.type.rank)), (value,), (plain,)))
            value, changed = plain, True
        results.append(value)
    if not changed:
        return graph
    used = {v for n in nodes for v in n.inputs} | set(results)
    constants = [c for c in graph.constants if c.value in used] + list(packed.values())
    return replace(graph, constants=tuple(constants), nodes=tuple(nodes), outputs=tuple(results))


def relayout_count(graph: Graph) -> int:
    """Number of layout conversions left in a graph (fused or not)."""
    count = 0
    for n in graph.nodes:
        body = getattr(n.op, "body", None)
        count += relayout_count(body) if body is not None else isinstance(n.op, Relayout)
    return count


def pack(source: Constant, layout: Layout) -> Constant:
    """The constant `source` in another layout, made when its contents are needed."""

    def load() -> np.ndarray:
        return layout.pack(source.data.read())

    def fill(out: np.ndarray) -> None:
        layout.pack(source.data.read(), out)

    return Constant(replace(source.value, layout=layout), Data(load, fill, source))


def _is_trivial(layout: Layout, value: Value) -> bool:
    """True when only axes of extent 1 move, so that memory is as for row-major."""
    if layout.has_padding:
        return False
    order = [d.axis for d in layout.dims if value.shape[d.axis] != 1]
    return order == sorted(order)
