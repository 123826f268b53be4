"""Import of a Core ML model as a Graph."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from tilesmith.frontend.common.folding import FoldingBuilder
from tilesmith.frontend.common.inputs import Declared, Given, fixed, input_types
from tilesmith.frontend.common.inspection import Inspection
from tilesmith.frontend.common.protobuf import Message
from tilesmith.frontend.common.slots import Resource
from tilesmith.frontend.common.source import Source
from tilesmith.frontend.coreml import features
from tilesmith.frontend.coreml.importer import Frame, MilImporter
from tilesmith.frontend.coreml.package import Package, errors_of, named_dtype, read
from tilesmith.frontend.coreml.registry import OPERATORS
from tilesmith.graph.nodes import Graph, Value
from tilesmith.graph.passes.dce import dce
from tilesmith.support.errors import ModelError

_TOOLS = "com.github.apple.coremltools"
"""The beginning of the names of metadata that coremltools adds."""


def load(source: Source, given: Given) -> Graph:
    """The graph of a Core ML model; of a program with several functions, the default one."""
    with errors_of(source):
        package = read(source)
        function, block = main_function(package)
        description = features.described(package.model)
        builder = FoldingBuilder()
        importer = MilImporter(builder, package, function.opset, given.weights)
        importer.states.taken |= {i.name for i in function.inputs}
        declared = [
            _declared(i, description.get(i.name), given)
            for i in function.inputs
            if i.type.stateType is None
        ]
        values = fixed(declared, given.values)
        types = input_types(declared, given, values)
        frame = Frame({}, builder)
        for i in function.inputs:
            if i.name in types:
                known = i.name in values
                frame.names[i.name] = (
                    builder.constant(values[i.name])
                    if known
                    else builder.input(i.name, types[i.name])
                )
            else:
                frame.names[i.name] = Resource(i.name)
        _begin_states(importer, function)
        results = importer.block(block, frame)
        importer.check()
        outputs = [r for r in results if isinstance(r, Value)]
        if not outputs or len(outputs) < len(results):
            raise ModelError("expected at least one output, all of them tensors")
        return dce(importer.states.finished(builder.finish(outputs, list(block.outputs))))


def _begin_states(importer: MilImporter, function: Message) -> None:
    """States begin with zeros."""
    for i in function.inputs:
        if i.type.stateType is not None:
            type_ = i.type.stateType.wrappedType.tensorType
            shape = tuple(d.constant.size for d in type_.dimensions)
            zeros = np.zeros(shape, named_dtype(type_.dataType).numpy)
            importer.states.read(importer.builder, i.name, i.name, zeros)


def main_function(package: Package) -> tuple[Message, Message]:
    """The default function of the program, and its block."""
    program = package.model.mlProgram
    name = package.model.description.defaultFunctionName or "main"
    function = program.functions.get(name)
    if function is None:
        raise ModelError(
            f"expected function {name!r} of the program, found {', '.join(program.functions)}"
        )
    blocks = function.block_specializations
    block = blocks.get(function.opset) or next(iter(blocks.values()), None)
    if block is None:
        raise ModelError(f"function {name!r}: expected a block, found none")
    return function, block


def _declared(i: Message, feature: Message | None, given: Given) -> Declared:
    """An input of a program.  Its open dimensions have the sizes that the description allows."""
    type_ = i.type.tensorType
    if type_ is None:
        raise ModelError(f"input {i.name!r}: expected a tensor, found another type")
    dtype = named_dtype(type_.dataType)
    if type_.rank < 0:
        return Declared(i.name, dtype, None)
    sizes = features.sizes_of(feature, len(type_.dimensions)) if feature is not None else {}
    dims: list[int | str] = []
    for axis, d in enumerate(type_.dimensions):
        low, high, usual = sizes.get(axis, (0, 0, 0))
        if d.constant is not None and low == high:
            dims.append(d.constant.size)
            continue
        if axis in sizes:
            given.symbols.declare(f"{i.name}.{axis}", low, high, usual)
        dims.append("")
    return Declared(i.name, dtype, tuple(dims))


def nodes(source: Source) -> list[tuple[str, str]]:
    """The names and operators of a model's operations, in order."""
    with errors_of(source):
        return [(name, kind) for name, kind in _listed(read(source)) if kind != "const"]


def _listed(package: Package) -> Iterator[tuple[str, str]]:
    _, block = main_function(package)
    return _operations(block)


def _operations(block: Message) -> Iterator[tuple[str, str]]:
    for o in block.operations:
        yield (o.outputs[0].name if o.outputs else o.type), o.type
        for inner in o.blocks:
            yield from _operations(inner)


def inspect(source: Source) -> Inspection:
    """Facts about a Core ML model.  Raises ModelError if it is damaged."""
    with errors_of(source):
        return _inspected(read(source))


def _inspected(package: Package) -> Inspection:
    model = package.model
    operators = Counter(kind for _, kind in _listed(package) if kind != "const")
    description = model.description
    metadata: dict[str, Any] = {}
    stored: Mapping[str, str] = {}
    if description.metadata is not None:
        stored = description.metadata.userDefined
        for name in ("shortDescription", "versionString", "author", "license"):
            if text := getattr(description.metadata, name):
                metadata[name] = text
    source_name = stored.get(f"{_TOOLS}.source", "")
    version = stored.get(f"{_TOOLS}.version", "")
    producer = f"coremltools {version}".strip() if version else ""
    metadata |= {k: v for k, v in stored.items() if not k.startswith(_TOOLS)}
    return Inspection(
        f"Core ML, specification {model.specificationVersion}, ML program",
        f"{producer} from {source_name}" if producer and source_name else producer,
        {f.name: features.text_of(f) for f in description.input},
        {f.name: features.text_of(f) for f in description.output},
        operators,
        frozenset(k for k in operators if OPERATORS.find("", k) is None),
        0,
        metadata,
    )
