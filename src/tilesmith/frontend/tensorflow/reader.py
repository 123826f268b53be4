"""Import of a TensorFlow model as a Graph."""

from __future__ import annotations

from collections.abc import Mapping

from tilesmith.frontend.common.errors import errors_name
from tilesmith.frontend.common.folding import FoldingBuilder
from tilesmith.frontend.common.inputs import Declared, Given, fixed, input_types
from tilesmith.frontend.common.source import Source
from tilesmith.frontend.tensorflow.importer import IDLE, TfImporter
from tilesmith.frontend.tensorflow.model import Model, Node, Ref, read
from tilesmith.frontend.tensorflow.registry import OUTPUTS
from tilesmith.frontend.tensorflow.restoring import changed, reached
from tilesmith.frontend.tensorflow.tensors import OPEN, dims_of, element_type
from tilesmith.graph.nodes import Graph, Value
from tilesmith.graph.passes.dce import dce
from tilesmith.support.errors import ModelError

_NO_RESULTS = (*IDLE, "Const", "NoOp", "Placeholder", "Assign", "AssignVariableOp", "VarHandleOp")
"""Operators that never give outputs of a frozen graph, even if no other node reads them."""


def load(source: Source, given: Given) -> Graph:
    """The graph of a signature of a SavedModel, or of a frozen graph."""
    with errors_name(source.name):
        model = read(source)
        return _graph(model, given)


def nodes(source: Source) -> list[tuple[str, str]]:
    """The names and operators of the nodes of the main graph."""
    return [(n.name, n.op) for n in read(source).graph.nodes.values()]


def _graph(model: Model, given: Given) -> Graph:
    signature = model.signature(given.signature)
    placed, outputs = inputs(model, given.signature), results(model, given.signature)
    builder = FoldingBuilder(
        signature.name if signature is not None else "main", given.for_training
    )
    importer = TfImporter(builder, model, given.weights)
    importer.changed = changed(model, [r.node for r in outputs.values()])
    importer.states.taken |= {*placed}
    importer.states.shared = (
        frozenset(importer.changed) if len(model.signatures) > 1 else frozenset()
    )
    frame = importer.frame(model.graph)
    declared = [d for _, d in placed.values()]
    values = fixed(declared, given.values)
    types = input_types(declared, given, values)
    for name, (ref, _) in placed.items():
        frame.given[ref.node, ref.index] = (
            builder.constant(values[name]) if name in values else builder.input(name, types[name])
        )
    slots = importer.outputs(frame, [*outputs.values()])
    importer.check()
    for name, slot in zip(outputs, slots, strict=True):
        if not isinstance(slot, Value):
            raise ModelError(f"output {name!r} has no value")
    made = [s for s in slots if isinstance(s, Value)]
    if not made:
        raise ModelError("expected at least one output, found none")
    return dce(importer.states.finished(builder.finish(made, [*outputs])))


def inputs(model: Model, signature: str | None) -> Mapping[str, tuple[Ref, Declared]]:
    """The inputs of a signature by name, or the placeholders of a frozen graph."""
    placed: dict[str, tuple[Ref, Declared]] = {}
    wanted = model.signature(signature)
    if wanted is not None:
        for name, (ref, info) in wanted.inputs.items():
            dtype = element_type(info.dtype, f"input {name!r}")
            placed[name] = ref, Declared(name, dtype, _opened(dims_of(info.tensor_shape)))
        return placed
    ends = [r.node for r in results(model, signature).values()]
    for node in reached(model.graph, ends):
        if node.op == "Placeholder":
            kind, shape = node.attributes.get("dtype"), node.attributes.get("shape")
            dtype = element_type(kind.type if kind is not None else 0, f"input {node.name!r}")
            dims = dims_of(shape.shape if shape is not None else None)
            placed[node.name] = Ref(node.name), Declared(node.name, dtype, _opened(dims))
    return placed


def results(model: Model, signature: str | None) -> Mapping[str, Ref]:
    """The outputs of a signature by name.  In a frozen graph, the outputs of nodes that no other
    node reads.
    """
    wanted = model.signature(signature)
    if wanted is not None:
        return {name: ref for name, (ref, _) in wanted.outputs.items()}
    read_ = {r.node for n in model.graph.nodes.values() for r in n.inputs}
    read_ |= {c for n in model.graph.nodes.values() for c in n.controls}
    named: dict[str, Ref] = {}
    for node in model.graph.nodes.values():
        if node.name not in read_ and node.op not in _NO_RESULTS:
            count = _count(node)
            for i in range(count):
                named[node.name if count == 1 else f"{node.name}:{i}"] = Ref(node.name, "", i)
    return named


def _count(node: Node) -> int:
    """The number of outputs of a node that no other node of a frozen graph reads."""
    if node.op.startswith(("FusedBatchNorm", "Merge", "RefMerge")):
        return 1
    for name in ("Tout", "num_split", "num"):
        stated = node.attributes.get(name)
        if stated is not None:
            return len(stated.list.type) if stated.list is not None else stated.i
    return len(OUTPUTS.get(node.op, ("",)))


def _opened(dims: tuple[int, ...] | None) -> tuple[int | str, ...] | None:
    return None if dims is None else tuple("" if d == OPEN else d for d in dims)
