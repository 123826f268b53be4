"""Repacking of constants of fused groups, in other layouts than the layout pass chose.

That pass decides before there are groups.  A tuned group may need its weights packed differently;
they are then packed again from their source.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from tilesmith.graph.nodes import Constant, Fused, Graph, Node, Value, with_values
from tilesmith.ir.layout import Layout

from .layout import pack


def repack(graph: Graph, wanted: Mapping[Node, Mapping[int, Layout]]) -> Graph:
    """`graph` with the inputs of fused nodes, by number, in the wanted layouts.

    They must be constants that the layout pass packed.
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
    """A fused body whose inputs, by number, have other layouts (None: row-major)."""
    new = {body.inputs[i]: replace(body.inputs[i], layout=la) for i, la in layouts.items()}
    return with_values(body, new) if new else body
