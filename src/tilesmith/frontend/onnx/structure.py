"""The shape of a graph as a program: every name defined once, every use defined, no cycles.

ONNX asks for nodes in order of definition; exporters and optimisers sometimes break that, so nodes
are put in order here (keeping theirs where it is legal) instead of being refused.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Sequence
from typing import Any

from tilesmith.frontend.onnx.attributes import GRAPH, GRAPHS, attribute_type
from tilesmith.frontend.onnx.proto import text
from tilesmith.support.errors import ModelError


def node_name(node: Any) -> str:
    """A node's name for messages: its own, else that of its first output."""
    own = text(node.name, "a node's name")
    return own or next((text(o, "an output's name") for o in node.output if o), "")


def subgraphs(node: Any) -> Iterator[Any]:
    """The graphs in a node's attributes."""
    for a in node.attribute:
        kind = attribute_type(a)
        if kind == GRAPH:
            yield a.g
        elif kind == GRAPHS:
            yield from a.graphs


def captured(graph: Any) -> set[str]:
    """Names that a sub-graph uses but does not define: they come from the graphs around it."""
    defined = {text(v.name, "an input's name") for v in graph.input}
    defined |= {text(t.name, "an initializer's name") for t in graph.initializer}
    defined |= {text(t.values.name, "an initializer's name") for t in graph.sparse_initializer}
    used: set[str] = set()
    for node in graph.node:
        defined.update(text(o, "an output's name") for o in node.output)
        used |= uses(node)
    used |= {text(o.name, "an output's name") for o in graph.output}
    return used - defined


def uses(node: Any) -> set[str]:
    """Names that a node needs: its inputs and what its sub-graphs capture."""
    found = {text(i, "an input's name") for i in node.input if i}
    for graph in subgraphs(node):
        found |= captured(graph)
    return found


def ordered(nodes: Sequence[Any], defined: set[str], outside: Any, where: str) -> list[Any]:
    """`nodes` so that each comes after what it needs.

    `defined`: names of the graph's inputs and initializers; `outside`: a container of names of the
    graphs around. Raises ModelError for a name defined twice, a name that nothing defines, and a
    cycle.
    """
    maker: dict[str, int] = {}
    for number, node in enumerate(nodes):
        for o in node.output:
            name = text(o, "an output's name")
            if not name:
                continue
            if name in defined or name in maker or name in outside:
                raise ModelError(f"{where}: value {name!r} is defined twice; names must be unique")
            maker[name] = number
    waiting: list[int] = [0] * len(nodes)
    users: dict[int, list[int]] = {}
    for number, node in enumerate(nodes):
        makers = set()
        for name in uses(node):
            if name in maker:
                makers.add(maker[name])
            elif name not in defined and name not in outside:
                raise ModelError(
                    f"{where}: node {node_name(node)!r} uses {name!r}, which nothing defines"
                )
        waiting[number] = len(makers)
        for m in makers:
            users.setdefault(m, []).append(number)
    ready = [n for n, w in enumerate(waiting) if w == 0]  # ascending, so already a heap
    order: list[Any] = []
    while ready:
        number = heapq.heappop(ready)
        order.append(nodes[number])
        for u in users.get(number, ()):
            waiting[u] -= 1
            if waiting[u] == 0:
                heapq.heappush(ready, u)
    if len(order) != len(nodes):
        stuck = [node_name(nodes[n]) for n, w in enumerate(waiting) if w][:4]
        raise ModelError(
            f"{where}: nodes depend on one another in a cycle: {', '.join(map(repr, stuck))}"
        )
    return order
