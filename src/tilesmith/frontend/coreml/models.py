"""Models of every kind.  `outputs` maps a model's inputs by name to its outputs by name."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from tilesmith.frontend.common.inputs import Declared, Given
from tilesmith.frontend.common.limits import MAX_DEPTH
from tilesmith.frontend.common.problems import Site
from tilesmith.frontend.common.protobuf import Message
from tilesmith.frontend.common.slots import Failed, Resource, Slot
from tilesmith.frontend.coreml import features, networks
from tilesmith.frontend.coreml.detection import kept_boxes
from tilesmith.frontend.coreml.importer import Frame, MilImporter
from tilesmith.frontend.coreml.package import named_dtype
from tilesmith.frontend.coreml.tables import TABLES, chosen, labels_of
from tilesmith.graph.nodes import Value
from tilesmith.ops.gather import Gather
from tilesmith.support.errors import ModelError, UnsupportedError

PROGRAM = "mlProgram"
NETWORKS = ("neuralNetwork", "neuralNetworkRegressor", "neuralNetworkClassifier")
PIPELINES = ("pipeline", "pipelineClassifier", "pipelineRegressor")
SUPPRESSION = "nonMaximumSuppression"
_OTHERS = ("supportVectorClassifier", "dictVectorizer", "categoricalMapping")
"""Kinds of models that are not supported."""


def kind_of(model: Message) -> str:
    """The kind of a model."""
    return (
        model.which(PROGRAM, *NETWORKS, *PIPELINES, *TABLES, SUPPRESSION, *_OTHERS)
        or "unknown model"
    )


def declared(model: Message, given: Given) -> list[Declared]:
    """The inputs of a model.  The states of a program are not inputs."""
    types = features.described(model)
    if kind_of(model) != PROGRAM:
        return [features.declared(name, type_, given) for name, type_ in types.items()]
    function, _ = main_function(model, given.signature)
    return [
        features.declared_tensor(i, types.get(i.name), given)
        for i in function.inputs
        if i.type.stateType is None
    ]


def outputs(
    importer: MilImporter,
    model: Message,
    values: Mapping[str, Value],
    function: str | None = None,
    depth: int = 0,
) -> dict[str, Slot]:
    """The model's outputs for its inputs.

    function: the function of a program; by default the one that the model names.
    """
    kind = kind_of(model)
    missing = [f.name for f in features.required(model.description.input) if f.name not in values]
    if missing and kind != PROGRAM:
        raise ModelError(f"expected input {missing[0]!r} of {kind}, found none")
    if kind == PROGRAM:
        return _program(importer, model, values, function)
    if kind in NETWORKS:
        return _network(importer, model, values)
    if kind in PIPELINES:
        return _pipeline(importer, model, values, depth)
    if kind == SUPPRESSION:
        return _suppression(importer, model, values)
    return _table(importer, model, kind, values)


# Programs


def main_function(model: Message, name: str | None = None) -> tuple[Message, Message]:
    """A function of the program, and its block.  By default it is the model's default function."""
    functions = model.mlProgram.functions
    name = name or model.description.defaultFunctionName or "main"
    function = functions.get(name)
    if function is None:
        raise ModelError(f"expected function {name!r} of the program, found {', '.join(functions)}")
    blocks = function.block_specializations
    block = blocks.get(function.opset) or next(iter(blocks.values()), None)
    if block is None:
        raise ModelError(f"function {name!r}: expected a block, found none")
    return function, block


def _program(
    importer: MilImporter, model: Message, values: Mapping[str, Value], name: str | None
) -> dict[str, Slot]:
    function, block = main_function(model, name)
    importer.use(function.opset)
    frame = Frame({}, importer.builder)
    for i in function.inputs:
        if i.type.stateType is None:
            if i.name not in values:
                raise ModelError(f"expected input {i.name!r} of the program, found none")
            frame.names[i.name] = values[i.name]
            continue
        # a state's first value is zeros
        type_ = i.type.stateType.wrappedType.tensorType
        zeros = np.zeros([d.constant.size for d in type_.dimensions])
        kept = zeros.astype(named_dtype(type_.dataType).numpy)
        importer.states.read(importer.builder, i.name, i.name, kept)
        frame.names[i.name] = Resource(i.name)
    return dict(zip(block.outputs, importer.block(block, frame), strict=True))


# Networks


def _network(importer: MilImporter, model: Message, values: Mapping[str, Value]) -> dict[str, Slot]:
    description, kind = model.description, kind_of(model)
    net = getattr(model, kind)
    names = networks.run_network(importer, net, description, values)
    made: dict[str, Slot] = {}
    by_name = {f.name: f for f in description.output}
    if kind == "neuralNetworkClassifier":
        last = net.layers[-1].output[0] if net.layers and net.layers[-1].output else ""
        name = net.labelProbabilityLayerName or last
        scores = names.get(name)
        if isinstance(scores, Value):
            scores = scores.reshape(-1)
            made |= _classified(importer, model, net, scores)
        by_name = {k: f for k, f in by_name.items() if k not in made}
    for name, feature in by_name.items():
        if name in names:
            made[name] = networks.result(names, name, net, feature)
        elif kind != "neuralNetworkClassifier":
            raise ModelError(f"expected a layer that gives output {name!r}, found none")
    return made


def _classified(
    importer: MilImporter, model: Message, p: Message, probabilities: Value
) -> dict[str, Slot]:
    """A classifier's outputs by name."""
    description = model.description
    node = importer.node(kind_of(model), "classes", "classes", 2)
    labels = labels_of(p)
    if labels and node.extent(probabilities, -1) != len(labels):
        raise ModelError(f"expected {len(labels)} probabilities, found {probabilities.type}")
    made: dict[str, Slot] = {}
    if description.predictedFeatureName:
        made[description.predictedFeatureName] = chosen(node, p, probabilities)
    if description.predictedProbabilitiesName or not made:
        name = description.predictedProbabilitiesName or "probabilities"
        made[name] = probabilities
    return made


# Other models


def _table(
    importer: MilImporter, model: Message, kind: str, values: Mapping[str, Value]
) -> dict[str, Slot]:
    description = model.description
    names = [f.name for f in features.required(description.input)]
    label = description.output[0].name if description.output else kind

    def make() -> Sequence[Slot]:
        function = TABLES.get(kind)
        if function is None:
            raise UnsupportedError("the kind of model is not supported")
        node = importer.node(kind, label, label, 1)
        with importer.builder.at(label, label):
            return [function(node, getattr(model, kind), [values[name] for name in names])]

    made = importer.attempt(Site(kind, "", label), make)
    if made is None:
        return {f.name: Failed() for f in description.output}
    (result,) = made
    assert isinstance(result, Value)
    if kind.endswith("Classifier"):
        return _classified(importer, model, getattr(model, kind), result)
    name = description.predictedFeatureName or label
    return {name: result}


def _suppression(
    importer: MilImporter, model: Message, values: Mapping[str, Value]
) -> dict[str, Slot]:
    """The boxes that overlap no better box, and the scores of their classes; the best box comes
    first.  The thresholds are those that the model stores.
    """
    p = model.nonMaximumSuppression
    names = p.coordinatesOutputFeatureName, p.confidenceOutputFeatureName

    def make() -> Sequence[Slot]:
        node = importer.node(SUPPRESSION, names[0], names[0], 2)
        inputs = (p.coordinatesInputFeatureName, p.confidenceInputFeatureName)
        pair = [values[name] for name in inputs if name in values]
        if len(pair) < 2 or any(v.type.rank < 2 for v in pair):
            raise ModelError("expected boxes [B, 4] and their scores [B, classes]")
        boxes, scores = (node.reshape(v, v.type.shape[-2:]) for v in pair)
        limits = (0, p.iouThreshold, p.confidenceThreshold)
        per_class = p.pickTop is not None and p.pickTop.perClass
        with importer.builder.at(names[0], names[0]):
            rows = [node.reshape(v, (1, *v.type.shape)) for v in (boxes, scores)]
            places = kept_boxes(node, rows[0], rows[1], limits, per_class)
            return [node.add(Gather(0), v, places) for v in (boxes, scores)]

    made = importer.attempt(Site(SUPPRESSION, "", names[0]), make)
    return dict(zip(names, made or [Failed()] * 2, strict=True))


def stages(model: Message) -> Sequence[Message]:
    """The models of a pipeline."""
    own = getattr(model, kind_of(model))
    return (own.pipeline if own.message_name == "PipelineOf" else own).models


def _pipeline(
    importer: MilImporter, model: Message, values: Mapping[str, Value], depth: int
) -> dict[str, Slot]:
    if depth > MAX_DEPTH:
        raise ModelError(f"pipelines are nested more than {MAX_DEPTH} deep")
    known: dict[str, Slot] = dict(values)
    for stage in stages(model):
        named = {k: v for k, v in known.items() if isinstance(v, Value)}
        if any(isinstance(known.get(f.name), Failed) for f in stage.description.input):
            known |= {f.name: Failed() for f in stage.description.output}
            continue
        known |= outputs(importer, stage, named, None, depth + 1)
    return {f.name: known.get(f.name) for f in model.description.output}


def _classifier(model: Message) -> Message | None:
    """The parameters of the classifier whose labels a model has; None if there is none.

    The classifier is the model itself, or in a pipeline the last stage that is a classifier.
    """
    kind = kind_of(model)
    if kind in PIPELINES:
        classifiers = (
            p for stage in reversed(stages(model)) if (p := _classifier(stage)) is not None
        )
        return next(classifiers, None)
    return getattr(model, kind) if kind.endswith("Classifier") and kind not in _OTHERS else None


def labels(model: Message) -> Sequence[str] | Sequence[int]:
    """The labels of a model's classes; empty if it is no classifier."""
    p = _classifier(model)
    return () if p is None else labels_of(p)


def has_names(model: Message) -> bool:
    """Whether the labels of a model's classes are texts."""
    p = _classifier(model)
    return p is not None and p.stringClassLabels is not None


def operations(model: Message, depth: int = 0) -> Iterator[tuple[str, str]]:
    """The names and kinds of a model's operations, layers or parts, in order."""
    kind = kind_of(model)
    if depth > MAX_DEPTH:
        raise ModelError(f"pipelines are nested more than {MAX_DEPTH} deep")
    if kind == PROGRAM:
        yield from _of_block(main_function(model)[1])
    elif kind in NETWORKS:
        for layer in getattr(model, kind).layers:
            yield layer.name, networks.kind_of(layer)
    elif kind in PIPELINES:
        for stage in stages(model):
            yield from operations(stage, depth + 1)
    else:
        yield kind, kind


def _of_block(block: Message) -> Iterator[tuple[str, str]]:
    for o in block.operations:
        if o.type != "const":
            yield (o.outputs[0].name if o.outputs else o.type), o.type
        for inner in o.blocks:
            yield from _of_block(inner)
