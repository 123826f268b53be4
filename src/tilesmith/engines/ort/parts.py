"""Parts of an ONNX model: runs of nodes, each of which becomes one custom operator.

Nodes are in a topological order, so the nodes between two positions form a part that no path leaves
and enters again.  The order puts nodes whose operators are known next to each other where it can.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

import onnx
from onnx import helper

from tilesmith.frontend.onnx.importer import domain_of, opsets_of
from tilesmith.frontend.onnx.operators import OPERATORS
from tilesmith.support.errors import ModelError

DOMAIN = "tilesmith.parts"


@dataclass(frozen=True, slots=True)
class Part:
    """Nodes `begin` to `end - 1` of a graph."""

    begin: int
    end: int

    def __len__(self) -> int:
        return self.end - self.begin

    def halves(self) -> tuple[Part, Part]:
        middle = (self.begin + self.end) // 2
        return Part(self.begin, middle), Part(middle, self.end)


class Source:
    """A model, with the values that its parts read and write.

    types: by name, the types of values.  A value without a type can't be an input or output of a
        part.
    refused: positions in the model of nodes that must not be in a part.
    order: for each node, its position in the model.
    """

    def __init__(
        self,
        model: onnx.ModelProto,
        types: Mapping[str, onnx.TypeProto],
        refused: Collection[int] = (),
    ) -> None:
        self.model = model
        self._types = dict(types)
        self._opsets = opsets_of(model)
        self._functions = {(f.domain, f.name) for f in model.functions}
        nodes = list(model.graph.node)
        known = [i not in refused and self._is_known(n) for i, n in enumerate(nodes)]
        self.order = _order(nodes, known)
        self._nodes, self._known = [nodes[i] for i in self.order], [known[i] for i in self.order]
        self._initializers = {t.name: t for t in model.graph.initializer}
        self._sparse = {t.values.name for t in model.graph.sparse_initializer}
        self._reads = [tuple(_read(n)) for n in self._nodes]
        outputs = {o.name for o in model.graph.output}
        self._last = dict.fromkeys(outputs, len(self._nodes))
        for i, names in enumerate(self._reads):
            for name in names:
                self._last[name] = max(self._last.get(name, 0), i)

    def _is_known(self, node: onnx.NodeProto) -> bool:
        """Whether the node's operator has an importer."""
        domain = domain_of(node)
        return (node.domain, node.op_type) in self._functions or bool(
            OPERATORS.find(domain, node.op_type, self._opsets.get(domain, 1))
        )

    def runs(self) -> list[Part]:
        """The maximal runs of nodes whose operators all have importers, the longest run first."""
        parts_found, begin = [], 0
        for i, known in enumerate([*self._known, False]):
            if not known:
                if i > begin:
                    parts_found.append(Part(begin, i))
                begin = i + 1
        return sorted(parts_found, key=len, reverse=True)

    def nodes(self, part: Part) -> list[onnx.NodeProto]:
        return self._nodes[part.begin : part.end]

    def positions(self, part: Part) -> list[int]:
        """The positions of a part's nodes in the model."""
        return self.order[part.begin : part.end]

    def borders(self, part: Part) -> tuple[list[str], list[str]]:
        """The inputs and outputs of a part: values from outside that the part reads, and values of
        the part that later nodes or the model's outputs read.
        """
        made: dict[str, None] = {}
        read: dict[str, None] = {}
        for i in range(part.begin, part.end):
            for name in self._reads[i]:
                if name not in made and name not in self._initializers:
                    read[name] = None
            made.update(dict.fromkeys(o for o in self._nodes[i].output if o))
        return list(read), [n for n in made if self._last.get(n, -1) >= part.end]

    def model_of(self, part: Part) -> onnx.ModelProto:
        """A part as a model.  Raises ModelError if a value at its border has no known type."""
        inputs, outputs = self.borders(part)
        nodes = self.nodes(part)
        used = {name for i in range(part.begin, part.end) for name in self._reads[i]}
        graph = helper.make_graph(
            nodes,
            f"part_{part.begin}_{part.end}",
            [self._declared(n) for n in inputs],
            [self._declared(n) for n in outputs],
            [t for name, t in self._initializers.items() if name in used],
        )
        return helper.make_model(
            graph,
            opset_imports=self.model.opset_import,
            functions=self.model.functions,
            ir_version=self.model.ir_version,
        )

    def _declared(self, name: str) -> onnx.ValueInfoProto:
        if name not in self._types or name in self._sparse:
            raise ModelError(f"the type of {name!r} is not known")
        return helper.make_value_info(name, self._types[name])

    def with_parts(self, parts: Iterable[Part]) -> onnx.ModelProto:
        """The model with each part replaced by one node.  The parts must not overlap."""
        nodes, next_node = [], 0
        for part in sorted(parts, key=lambda p: p.begin):
            nodes += self._nodes[next_node : part.begin]
            inputs, outputs = self.borders(part)
            nodes.append(
                helper.make_node(operator(part), inputs, outputs, operator(part), domain=DOMAIN)
            )
            next_node = part.end
        nodes += self._nodes[next_node:]
        made = onnx.ModelProto()
        made.CopyFrom(self._without_contents())
        made.graph.node.extend(nodes)
        used = {name for n in nodes for name in _read(n)}
        made.graph.initializer.extend(t for n, t in self._initializers.items() if n in used)
        made.opset_import.append(helper.make_opsetid(DOMAIN, 1))
        return made

    def _without_contents(self) -> onnx.ModelProto:
        """The model without nodes and initializers."""
        model, graph = self.model, self.model.graph
        empty = helper.make_graph(
            [], graph.name, list(graph.input), list(graph.output),
            sparse_initializer=list(graph.sparse_initializer),
        )  # fmt: skip
        made = helper.make_model(
            empty,
            opset_imports=model.opset_import,
            functions=model.functions,
            ir_version=model.ir_version,
        )
        made.metadata_props.extend(model.metadata_props)
        return made


def _order(nodes: Sequence[onnx.NodeProto], known: Sequence[bool]) -> list[int]:
    """Reorder topologically sorted nodes, so that known nodes form few runs.

    Each path to a node has some edges from an unknown node to a known node.  The node's level is
    the largest number of such edges on one path.  Nodes are sorted by level.  In a level, known
    nodes come first, since no edge in a level leads from an unknown node to a known node.
    """
    makers: dict[str, tuple[int, bool]] = {}  # by value: level of its node, whether that is known
    keys = []
    for i, node in enumerate(nodes):
        before = [makers[name] for name in _read(node) if name in makers]
        level = max((n + (known[i] and not k) for n, k in before), default=0)
        makers.update((name, (level, known[i])) for name in node.output)
        keys.append((level, not known[i], i))
    return [i for *_, i in sorted(keys)]


def operator(part: Part) -> str:
    """The name of the operator that computes a part."""
    return f"Part_{part.begin}_{part.end}"


def _read(node: onnx.NodeProto) -> Iterable[str]:
    """The values that a node reads, including those that its subgraphs read."""
    yield from (name for name in node.input if name)
    for attribute in node.attribute:
        for graph in (attribute.g, *attribute.graphs):
            yield from _free(graph)


def _free(graph: onnx.GraphProto) -> Iterable[str]:
    """The values of enclosing graphs that a graph reads."""
    own = {t.name for t in graph.initializer} | {i.name for i in graph.input}
    read: Sequence[str] = ()
    for node in graph.node:
        read = [n for n in _read(node) if n not in own]
        yield from read
        own |= set(node.output)
    yield from (o.name for o in graph.output if o.name not in own)
