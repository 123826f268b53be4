"""Import of a TFLite file as a Graph."""

from __future__ import annotations

from collections.abc import Sequence

from tilesmith.frontend.common.errors import errors_name
from tilesmith.frontend.common.folding import FoldingBuilder
from tilesmith.frontend.common.inputs import Declared, Given, fixed, input_types, resizable
from tilesmith.frontend.common.source import Source
from tilesmith.frontend.tflite.importer import TfliteImporter
from tilesmith.frontend.tflite.model import OPEN, Model, Signature, Tensor, read
from tilesmith.graph.nodes import Graph, Value
from tilesmith.graph.passes.dce import dce
from tilesmith.support.errors import ModelError

_MAIN = 0
"""The number of the subgraph that a model without signatures runs."""


def load(source: Source, given: Given) -> Graph:
    """The graph of a signature of a TFLite model: the wanted one, or that of the main subgraph."""
    with errors_name(source.name):
        model = read(source)
        return _graph(model, given)


def nodes(source: Source) -> list[tuple[str, str]]:
    """The names and operators of the nodes of the main subgraph."""
    graph = read(source).subgraph(_MAIN)
    return [
        (graph.tensors[o.outputs[0]].name if o.outputs else o.name.lower(), o.name)
        for o in graph.operators
    ]


def _graph(model: Model, given: Given) -> Graph:
    signature = chosen_signature(model, given.signature)
    builder = FoldingBuilder(signature.name or "main", given.for_training)
    importer = TfliteImporter(builder, model, given.weights)
    importer.states.taken |= {i for s in (signature, *model.signatures) for i in s.inputs}
    frame = importer.frame(signature.subgraph)
    tensors = frame.graph.tensors
    declared = [_declared(name, tensors[t], given) for name, t in signature.inputs.items()]
    values = fixed(declared, given.values)
    types = input_types(declared, given, values)
    for name, number in signature.inputs.items():
        known = name in values
        frame.values[number] = (
            builder.constant(values[name]) if known else builder.input(name, types[name])
        )
    results = dict(zip(frame.graph.outputs, importer.body(frame), strict=True))
    importer.check()
    outputs: list[Value] = []
    for name, number in signature.outputs.items():
        value = results.get(number, frame.values.get(number))
        if not isinstance(value, Value):
            raise ModelError(f"output {name!r} has no value")
        outputs.append(value)
    if not outputs:
        raise ModelError("expected at least one output, found none")
    return dce(importer.states.finished(builder.finish(outputs, list(signature.outputs))))


def chosen_signature(model: Model, name: str | None = None) -> Signature:
    """The model's signature of this name; without a name the first one of the main subgraph.  A
    model without signatures gets one, with the names of its tensors.
    """
    for signature in model.signatures:
        if signature.name == name or (name is None and signature.subgraph == _MAIN):
            return signature
    graph = model.subgraph(_MAIN)
    return Signature(
        "",
        _MAIN,
        _named(graph.inputs, graph.tensors, "input"),
        _named(graph.outputs, graph.tensors, "output"),
    )


def _named(numbers: Sequence[int], tensors: Sequence[Tensor], what: str) -> dict[str, int]:
    """Unique names for tensors, from their own names, which may be missing or not unique."""
    named: dict[str, int] = {}
    for i, number in enumerate(numbers):
        own = tensors[number].name or f"{what}{i}"
        name, count = own, 1
        while name in named:
            count += 1
            name = f"{own}_{count}"
        named[name] = number
    return named


def _declared(name: str, tensor: Tensor, given: Given) -> Declared:
    """An input as the file declares it.  The caller may resize each dimension, as TFLite's
    `resize_tensor_input` does.
    """

    if tensor.dims is None:
        return Declared(name, tensor.dtype, None)
    dims = tuple("" if d == OPEN else d for d in tensor.dims)
    return resizable(Declared(name, tensor.dtype, dims), given)
