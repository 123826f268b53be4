"""Parts of an ONNX model: runs of nodes, each of which becomes one custom operator.

Nodes of ONNX are in topological order, so the nodes between two positions form a part that no path
leaves and enters again.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
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
    """

    def __init__(self, model: onnx.ModelProto, types: Mapping[str, onnx.TypeProto]) -> None:
        self.model = model
        self._types = dict(types)
        self._nodes = list(model.graph.node)
        self._initializers = {t.name: t for t in model.graph.initializer}
        self._sparse = {t.values.name for t in model.graph.sparse_initializer}
        self._reads = [tuple(_read(n)) for n in self._nodes]
        outputs = {o.name for o in model.graph.output}
        self._last = dict.fromkeys(outputs, len(self._nodes))
        for i, names in enumerate(self._reads):
            for name in names:
                self._last[name] = max(self._last.get(name, 0), i)

    def runs(self) -> list[Part]:
        """The maximal runs of nodes whose operators all have importers, the longest run first."""
        opsets = opsets_of(self.model)
        functions = {(f.domain, f.name) for f in self.model.functions}
        parts_found, begin = [], 0
        for i, n in enumerate([*self._nodes, None]):
            if n is None or not (
                (n.domain, n.op_type) in functions
                or OPERATORS.find(domain_of(n), n.op_type, opsets.get(domain_of(n), 1))
            ):
                if i > begin:
                    parts_found.append(Part(begin, i))
                begin = i + 1
        return sorted(parts_found, key=len, reverse=True)

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
        nodes = self._nodes[part.begin : part.end]
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
