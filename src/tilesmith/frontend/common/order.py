"""Topological order of nodes that refer to one another by name.

Formats demand that definitions precede uses, but exporters and optimisers sometimes break this
order.  Such nodes are put in order here instead of being refused.  A legal order stays unchanged.
"""

from __future__ import annotations

import heapq
from collections.abc import Collection, Container, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from tilesmith.support.errors import ModelError

N = TypeVar("N")


@dataclass(frozen=True, slots=True)
class Named(Generic[N]):
    """A node of the source model, and the names in it.

    node: the node.
    name: the node's own name, for messages.
    defines: names of the values that the node defines.
    uses: names that the node or its sub-graphs use.
    """

    node: N
    name: str
    defines: tuple[str, ...]
    uses: Collection[str]


def ordered(
    nodes: Sequence[Named[N]], defined: Container[str], outside: Container[str], where: str
) -> list[N]:
    """The nodes, each after the nodes that it needs.

    defined: names of the graph's inputs and stored tensors.
    outside: names of the enclosing graphs.
    where: the graph's name, for messages.

    Raises ModelError for a name defined twice, a name that nothing defines, and a cycle.
    """
    maker: dict[str, int] = {}
    for number, n in enumerate(nodes):
        for name in n.defines:
            if name in defined or name in maker or name in outside:
                raise ModelError(f"{where}: value {name!r} is defined twice; names must be unique")
            maker[name] = number
    waiting: list[int] = [0] * len(nodes)
    users: dict[int, list[int]] = {}
    for number, n in enumerate(nodes):
        makers = set()
        for name in n.uses:
            if name in maker:
                makers.add(maker[name])
            elif name not in defined and name not in outside:
                raise ModelError(f"{where}: node {n.name!r} uses {name!r}, which nothing defines")
        waiting[number] = len(makers)
        for m in makers:
            users.setdefault(m, []).append(number)
    ready = [n for n, w in enumerate(waiting) if w == 0]  # in ascending order, so it is a heap
    order: list[N] = []
    while ready:
        number = heapq.heappop(ready)
        order.append(nodes[number].node)
        for u in users.get(number, ()):
            waiting[u] -= 1
            if waiting[u] == 0:
                heapq.heappush(ready, u)
    if len(order) != len(nodes):
        stuck = [nodes[n].name for n, w in enumerate(waiting) if w][:4]
        raise ModelError(
            f"{where}: nodes depend on one another in a cycle: {', '.join(map(repr, stuck))}"
        )
    return order
