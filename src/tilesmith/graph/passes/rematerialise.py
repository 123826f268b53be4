"""Values are computed again, so that fewer bytes are alive at one time.

The pass runs on a fused graph, after equal nodes were merged.  It repeats a step until the bytes
alive fit: of the values that are alive at the fullest node and read by later ones alone, the one
that costs the least seconds for each byte is computed again before its next reader.  Operands that
are not alive there are computed again, too.

Chen and others, "Training Deep Nets with Sublinear Memory Cost" (2016), recompute whole segments;
here each value is decided by itself, as by Kirisame and others, "Dynamic Tensor Rematerialization"
(2021), but before the program runs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from tilesmith.graph.nodes import Fused, Graph, InPlace, Node, Value
from tilesmith.graph.passes.memory_plan import aligned, value_bytes
from tilesmith.ir.symbols import expected

Seconds = Callable[[Node], float]
"""The time of a kernel."""


def rematerialise(graph: Graph, limit: int, seconds: Seconds) -> Graph:
    """A fused graph of which at most `limit` bytes are alive at one time, besides inputs, outputs
    and constants, or as few as were found; the same object if it needs no more.
    """
    best, fewest = graph, _Lives(graph).fullest()[1]
    for _ in range(4 * len(graph.nodes)):
        lives = _Lives(graph)
        place, most = lives.fullest()
        if most < fewest:
            best, fewest = graph, most
        if most <= limit:
            break
        ways = [w for v in lives.across(place) if (w := lives.again(v, place, seconds)) is not None]
        if not ways:
            break
        again = min(ways, key=lambda way: way.seconds / way.bytes)
        graph = again.graph()
    return best


def computed_again(graph: Graph) -> list[Node]:
    """The nodes that compute what an earlier node computes."""
    known: dict[tuple[object, tuple[Value, ...]], Node] = {}
    same: dict[Value, Value] = {}
    repeated = []
    for node in graph.nodes:
        if not isinstance(node.op, Fused):
            continue
        first = known.setdefault((node.op, tuple(same.get(v, v) for v in node.inputs)), node)
        if first is not node:
            repeated.append(node)
            same.update(zip(node.outputs, first.outputs, strict=True))
    return repeated


@dataclass(frozen=True, slots=True)
class _Again:
    """A value that is computed again.

    lives: the graph before.
    value: the value.
    nodes: the nodes that compute it again, in order.
    reader: the number of the first node that reads the new value.
    seconds: the time of `nodes`.
    bytes: bytes that are free then at the fullest node.
    """

    lives: _Lives
    value: Value
    nodes: tuple[Node, ...]
    reader: int
    seconds: float
    bytes: int

    def graph(self) -> Graph:
        new: dict[Value, Value] = {}
        copies = []
        for node in self.nodes:
            outputs = tuple(replace(v) for v in node.outputs)
            copies.append(
                Node(node.op, tuple(new.get(v, v) for v in node.inputs), outputs, node.loc)
            )
            new.update(zip(node.outputs, outputs, strict=True))
        graph = self.lives.graph
        renamed = {self.value: new[self.value]}
        late = (n.with_values(renamed) for n in graph.nodes[self.reader :])
        return replace(graph, nodes=(*graph.nodes[: self.reader], *copies, *late))


class _Lives:
    """The live ranges of the values of a graph, by numbers of nodes."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.made: dict[Value, int] = {}
        self.readers: dict[Value, list[int]] = {}
        for number, node in enumerate(graph.nodes):
            self.made.update(dict.fromkeys(node.outputs, number))
            for v in dict.fromkeys(node.inputs):
                self.readers.setdefault(v, []).append(number)
        outside = {*graph.outputs}
        self.size: Mapping[Value, int] = {
            v: expected(aligned(value_bytes(v))) for v in self.made if v not in outside
        }

    def last(self, v: Value) -> int:
        """The number of the last node that needs `v`."""
        return max(self.readers.get(v, [self.made[v]]))

    def fullest(self) -> tuple[int, int]:
        """The number of a node while which the most bytes are alive, and these bytes."""
        change = [0] * (len(self.graph.nodes) + 1)
        for v, size in self.size.items():
            change[self.made[v]] += size
            change[self.last(v) + 1] -= size
        alive, best = 0, (0, 0)
        for number, delta in enumerate(change):
            alive += delta
            if alive > best[1]:
                best = (number, alive)
        return best

    def across(self, place: int) -> list[Value]:
        """The values that are alive at a node that neither makes nor reads them."""
        return [
            v
            for v in self.size
            if self.made[v] < place < self.last(v) and place not in self.readers[v]
        ]

    def again(self, v: Value, place: int, seconds: Seconds) -> _Again | None:
        """The way to compute `v` again after the node `place`; None if there is none."""
        reader = min(n for n in self.readers[v] if n > place)
        nodes: dict[int, Node] = {}
        waiting, freed = [v], self.size[v]
        while waiting:
            number = self.made[waiting.pop()]
            node = self.graph.nodes[number]
            if not isinstance(node.op, Fused) or isinstance(node.op, InPlace):
                return None
            nodes[number] = node
            for o in node.inputs:
                if o not in self.made or self.made[o] in nodes or self.last(o) >= reader:
                    continue
                if o not in self.size:
                    continue  # an output of the program is there until the end
                waiting.append(o)
        ordered = tuple(nodes[n] for n in sorted(nodes))
        return _Again(self, v, ordered, reader, sum(map(seconds, ordered)), freed)
