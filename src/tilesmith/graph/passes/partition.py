"""Division of a graph into parts for a device and for the CPU, with the copies between them.

Parts run one after the other.  A part contains all nodes of its side (device or CPU) whose operands
are available, so that there are few parts.  A value is copied at most once in each direction.
Constants are not copied: each part has its own.

Light nodes move to the CPU if all their neighbours are there, since copying their operands and
results would take longer than computing them.  Light nodes between the device and the CPU move to
the CPU if copying their operand is cheaper than copying their results.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import replace
from math import prod

from tilesmith.graph.measure import stages_in, symbols_defined
from tilesmith.graph.nodes import Graph, Node, Value
from tilesmith.graph.parts import Download, Part, Upload
from tilesmith.ir.expr import Var
from tilesmith.ir.symbols import symbols_of


def partition(
    graph: Graph, on_host: Collection[Node], is_light: Callable[[Node], bool]
) -> Graph | None:
    """`graph` as a sequence of parts and copies.

    on_host: the nodes that the device can't run.
    is_light: whether computing a node takes no longer than copying its results.

    None if a part needs a size that another part measures, and no operand of the first part has
    this extent.
    """
    nodes = {*on_host}
    while True:
        more = _neighbours(graph, nodes, is_light) | _views(graph, nodes, is_light)
        if more <= nodes:
            break
        nodes |= more
    parts = min((_parts(graph, nodes, first) for first in (True, False)), key=len)
    builder = _Builder(graph)
    for on_device, members in parts:
        builder.part(members, on_device)
    return builder.finish() if builder.is_closed else None


def _neighbours(graph: Graph, on_host: set[Node], is_light: Callable[[Node], bool]) -> set[Node]:
    """The largest set of light nodes whose neighbours are all in the set or in `on_host`.  Nodes
    that no path inside the set connects to `on_host` are left out.
    """
    light = {n for n in graph.nodes if n not in on_host and is_light(n)}
    while True:
        near = light | on_host
        left = {
            n
            for n in light
            if all(graph.producer[v] in near for v in n.inputs if v in graph.producer)
            and all(c in near for v in n.outputs for c in graph.consumers.get(v, ()))
        }
        if left == light:
            break
        light = left
    # A light node stays on the device unless a path of light nodes connects it to `on_host`.
    reached: set[Node] = set()
    waiting = [*on_host]
    while waiting:
        node = waiting.pop()
        around = {graph.producer[v] for v in node.inputs if v in graph.producer}
        around |= {c for v in node.outputs for c in graph.consumers.get(v, ())}
        fresh = (around & light) - reached
        reached |= fresh
        waiting += fresh
    return reached


def _views(graph: Graph, on_host: set[Node], is_light: Callable[[Node], bool]) -> set[Node]:
    """Light nodes that read one value of the device, and whose results are read on the CPU only.
    They move if copying the value is cheaper than copying their results.
    """
    readers: dict[Value, list[Node]] = {}
    for n in graph.nodes:
        read = {v for v in n.inputs if v not in graph.constant}
        consumers = [c for v in n.outputs for c in graph.consumers.get(v, ())]
        if (
            n not in on_host
            and len(read) == 1
            and consumers
            and all(c in on_host for c in consumers)
            and not any(v in graph.outputs for v in n.outputs)
            and is_light(n)
        ):
            (v,) = read
            readers.setdefault(v, []).append(n)
    moved: set[Node] = set()
    for v, nodes in readers.items():
        there = v not in graph.producer or graph.producer[v] in on_host
        there = there or v in graph.outputs or any(c in on_host for c in graph.consumers[v])
        if there or sum(_bytes(w) for n in nodes for w in n.outputs) > _bytes(v):
            moved.update(nodes)
    return moved


def _bytes(v: Value) -> int:
    return prod(v.type.static_shape) * v.dtype.bytes


def _parts(
    graph: Graph, on_host: Collection[Node], device_first: bool
) -> list[tuple[bool, list[Node]]]:
    """The parts in order: whether each runs on the device, and its nodes."""
    definers: dict[Var, Node] = {s: n for n in graph.nodes for s in symbols_defined(n)}
    needs: dict[Node, set[Node]] = {}
    for n in graph.nodes:
        before = {graph.producer[v] for v in n.inputs if v in graph.producer}
        before |= {definers[s] for s in n.symbols if s in definers}
        needs[n] = before - {n}
    parts: list[tuple[bool, list[Node]]] = []
    done: set[Node] = set()
    left, on_device = [*graph.nodes], device_first
    while left:
        own: list[Node] = []
        rest: list[Node] = []
        for n in left:  # in program order, so that one pass is enough
            fits = (n not in on_host) == on_device and needs[n] <= done
            (own if fits else rest).append(n)
            done.update((n,) if fits else ())
        if own:
            parts.append((on_device, own))
        left, on_device = rest, not on_device
    return parts


class _Builder:
    """The graph of parts under construction.

    is_closed: whether every part knows its sizes.
    """

    def __init__(self, graph: Graph) -> None:
        self.is_closed = True
        self._graph = graph
        self._nodes: list[Node] = []
        self._host: dict[Value, Value] = {v: v for v in graph.inputs}
        self._device: dict[Value, Value] = {}
        self._count = 0
        self._defined = {s for stage in stages_in(graph) for s in stage.symbols}

    def part(self, members: list[Node], on_device: bool) -> None:
        """Add a part, preceded by the copies of its operands."""
        graph = self._graph
        inside = {v for n in members for v in n.outputs}
        read = dict.fromkeys(v for n in members for v in n.inputs if v not in inside)
        operands = [v for v in read if v not in graph.constant]
        if not on_device:
            operands += self._sized_by(members, operands)
        others = {*graph.nodes} - {*members}
        results = [
            v
            for n in members
            for v in n.outputs
            if v in graph.outputs or any(c in others for c in graph.consumers.get(v, ()))
        ]
        arguments = [self._at(v, on_device) for v in operands]
        names = _names((*operands, *results))
        renamed = {v: replace(v, name=names[v]) for v in (*operands, *results)}
        body = Graph(
            f"part{self._count}",
            tuple(renamed[v] for v in operands),
            tuple(graph.constant[v] for v in read if v in graph.constant),
            tuple(n.with_values(renamed) for n in members),
            tuple(renamed[v] for v in results),
            tuple(names[v] for v in results),
        )
        self._count += 1
        self._check_closed(body)
        made = tuple(replace(v) for v in results)
        (self._device if on_device else self._host).update(zip(results, made, strict=True))
        self._nodes.append(Node(Part(body, on_device), tuple(arguments), made))

    def _sized_by(self, members: list[Node], operands: Sequence[Value]) -> list[Value]:
        """The inputs of the graph that define the sizes which `members` use and `operands` do not
        define.
        """
        known = {d for v in operands for d in v.shape if isinstance(d, Var)}
        used = {s for n in members for s in n.symbols}
        used = used.union(symbols_of(d for v in operands for d in v.shape)) - known
        sizes: list[Value] = []
        for v in self._graph.inputs:
            named = used.intersection(d for d in v.shape if isinstance(d, Var))
            if named:
                sizes.append(v)
                used -= named
        return sizes

    def _check_closed(self, body: Graph) -> None:
        extents = {d for v in body.inputs for d in v.shape if isinstance(d, Var)}
        own = {s for stage in stages_in(body) for s in stage.symbols}
        formulas = symbols_of(d for v in body.inputs for d in v.shape)
        used = {s for n in body.nodes for s in n.symbols} | {*formulas}
        self.is_closed &= used <= extents | own

    def _at(self, v: Value, on_device: bool) -> Value:
        """The copy of `v` on the device or on the CPU.  It is made at the first call."""
        here, there = (self._device, self._host) if on_device else (self._host, self._device)
        if v not in here:
            here[v] = replace(v, name="")
            copy = Upload() if on_device else Download()
            self._nodes.append(Node(copy, (there[v],), (here[v],)))
        return here[v]

    def finish(self) -> Graph:
        graph = self._graph
        constants = dict.fromkeys(v for v in graph.outputs if v in graph.constant)
        if constants:
            names = _names(constants)
            values = tuple(replace(v, name=names[v]) for v in constants)
            held = tuple(replace(graph.constant[v], value=r) for v, r in zip(constants, values))
            body = Graph("constants", (), held, (), values, tuple(names.values()))
            made = tuple(replace(v) for v in constants)
            self._host.update(zip(constants, made, strict=True))
            self._nodes.append(Node(Part(body, on_device=False), (), made))
        outputs = tuple(self._at(v, on_device=False) for v in graph.outputs)
        return replace(graph, constants=(), nodes=tuple(self._nodes), outputs=outputs)


def _names(values: Iterable[Value]) -> dict[Value, str]:
    """A unique name for each value."""
    names: dict[Value, str] = {}
    taken: set[str] = set()
    for i, v in enumerate(values):
        name = v.name or f"v{i}"
        while name in taken:
            name += "_"
        taken.add(name)
        names[v] = name
    return names
