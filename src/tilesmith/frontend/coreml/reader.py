"""Import of a Core ML model as a Graph."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

from tilesmith.frontend.common.folding import FoldingBuilder
from tilesmith.frontend.common.inputs import Given, fixed, input_types
from tilesmith.frontend.common.inspection import Function, Inspection
from tilesmith.frontend.common.protobuf import Message
from tilesmith.frontend.common.slots import kind_of
from tilesmith.frontend.common.source import Source
from tilesmith.frontend.coreml import features, models
from tilesmith.frontend.coreml.importer import MilImporter
from tilesmith.frontend.coreml.layers import LAYERS
from tilesmith.frontend.coreml.package import Package, errors_of, read
from tilesmith.frontend.coreml.registry import OPERATORS
from tilesmith.frontend.coreml.tables import TABLES
from tilesmith.graph.nodes import Graph, Value
from tilesmith.graph.passes.dce import dce
from tilesmith.ops.slicing import Flip
from tilesmith.support.described import Described
from tilesmith.support.errors import ModelError

_TOOLS = "com.github.apple.coremltools"
"""The prefix of the names of metadata that coremltools adds."""

_KINDS = {models.PROGRAM: "ML program"} | dict.fromkeys(models.NETWORKS, "neural network")


def load(source: Source, given: Given) -> Graph:
    """The graph of a Core ML model.  If a program has several functions, the graph of the wanted
    or default function.
    """
    with errors_of(source):
        package = read(source)
        model = package.model
        builder = FoldingBuilder(for_training=given.for_training)
        importer = MilImporter(builder, package, given.weights)
        declared = models.declared(model, given)
        importer.states.taken |= {d.name for d in declared}
        fixed_ = fixed(declared, given.values)
        types = input_types(declared, given, fixed_)
        values = {
            d.name: builder.constant(fixed_[d.name])
            if d.name in fixed_
            else builder.input(d.name, types[d.name])
            for d in declared
        }
        for name, type_ in features.described(model).items():
            if type_.imageType is not None and type_.imageType.colorSpace == "BGR":
                # the caller gives pictures with the channels red, green and blue
                values[name] = builder.add(Flip((1,)), values[name])
        results = models.outputs(importer, model, values, given.signature)
        importer.check()
        outputs = {name: v for name, v in results.items() if isinstance(v, Value)}
        for name, slot in results.items():
            if name not in outputs:
                raise ModelError(f"output {name!r}: expected a tensor, found {kind_of(slot)}")
        if not outputs:
            raise ModelError("expected at least one output, found none")
        return dce(importer.states.finished(builder.finish([*outputs.values()], [*outputs])))


def nodes(source: Source) -> list[tuple[str, str]]:
    """The names and operators of a model's operations or layers, in order."""
    with errors_of(source):
        return list(models.operations(read(source).model))


def signatures(source: Source) -> dict[str, Function]:
    """The functions of a program that has several.  Raises ModelError if it is damaged."""
    with errors_of(source):
        functions = read(source).model.description.functions
        if len(functions) < 2:
            return {}
        return {
            f.name: {
                "inputs": {i.name: features.text_of(i) for i in f.input},
                "outputs": {o.name: features.text_of(o) for o in f.output},
            }
            for f in functions
        }


def described(source: Source, name: str | None) -> dict[str, Described]:
    """Descriptions of a model's inputs and outputs, and the labels of its classes, by name."""
    with errors_of(source):
        return _described(read(source).model)


def _described(model: Message) -> dict[str, Described]:
    description = model.description
    made = {
        f.name: Described(features.about(f))
        for f in (*description.input, *description.output)
        if features.about(f)
    }
    labels = tuple(map(str, models.labels(model)))
    if labels and description.predictedProbabilitiesName:
        made[description.predictedProbabilitiesName] = Described(labels=labels)
    if models.has_names(model) and description.predictedFeatureName:
        made[description.predictedFeatureName] = Described(value_labels=labels)
    return made


def inspect(source: Source) -> Inspection:
    """Facts about a Core ML model.  Raises ModelError if it is damaged."""
    with errors_of(source):
        return _inspected(read(source))


def _inspected(package: Package) -> Inspection:
    model = package.model
    kind, description = models.kind_of(model), model.description
    operators = Counter(name for _, name in models.operations(model))
    metadata: dict[str, Any] = {}
    stored: Mapping[str, str] = {}
    if description.metadata is not None:
        stored = description.metadata.userDefined
        for name in ("shortDescription", "versionString", "author", "license"):
            if text := getattr(description.metadata, name):
                metadata[name] = text
    if labels := models.labels(model):
        metadata["class_labels"] = list(labels)
    origin = stored.get(f"{_TOOLS}.source", "")
    version = stored.get(f"{_TOOLS}.version", "")
    producer = f"coremltools {version}".strip() if version else ""
    metadata |= {k: v for k, v in stored.items() if not k.startswith(_TOOLS)}
    known = (
        lambda k: OPERATORS.find("", k),
        lambda k: LAYERS.find("", k) or k in ("loop", "branch"),
        lambda k: k in TABLES or k == models.SUPPRESSION,
    )
    return Inspection(
        f"Core ML, specification {model.specificationVersion}, {_KINDS.get(kind, kind)}",
        f"{producer} from {origin}" if producer and origin else producer,
        {f.name: features.text_of(f) for f in description.input},
        {f.name: features.text_of(f) for f in description.output},
        operators,
        frozenset(k for k in operators if not any(find(k) for find in known)),
        0,
        metadata,
        _described(model),
    )
