"""Packs constants of fused groups again, in other layouts than the layout pass chose.

The layout pass runs before groups exist.  A tuned group may need another packing of its weights.
Then the weights are packed again from their source.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from tilesmith.graph.nodes import Constant, Fused, Graph, Node, Value, with_values
from tilesmith.ir.layout import Layout

from .layout import pack


def repack(graph: Graph, wanted: Mapping[Node, Mapping[int, Layout]]) -> Graph:
    """`graph` with inputs of fused nodes in the layouts `wanted`: node -> input number -> layout.

    These inputs must be constants that the layout pass packed.
    """
    made: dict[tuple[Value, Layout], Constant] = {}
    nodes: list[Node] = []
    for node in graph.nodes:
        layouts = wanted.get(node, {})
        inputs = list(node.inputs)
        for i, layout in layouts.items():
            source = graph.constant[inputs[i]].data.source
            assert source is not None
            key = (source.value, layout)
            if key not in made:
                made[key] = pack(source, layout)
            inputs[i] = made[key].value
        if layouts:
            assert isinstance(node.op, Fused)
            op = replace(node.op, body=with_packing(node.op.body, layouts))
            node = replace(node, op=op, inputs=tuple(inputs))
        nodes.append(node)
    if not made:
        return graph
    used = {v for n in nodes for v in n.inputs} | set(graph.outputs)
    constants = [c for c in graph.constants if c.value in used]
    return replace(graph, constants=(*constants, *made.values()), nodes=tuple(nodes))


def with_packing(body: Graph, layouts: Mapping[int, Layout | None]) -> Graph:
    """A fused body with the given layouts for its inputs: input number -> layout (None:
    row-major).
    """
    new = {body.inputs[i]: replace(body.inputs[i], layout=la) for i, la in layouts.items()}
    return with_values(body, new) if new else body
