"""Import of a Keras file as a Graph, and facts about it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

from tilesmith.frontend.common.errors import errors_name
from tilesmith.frontend.common.folding import FoldingBuilder
from tilesmith.frontend.common.inputs import Declared, Given, fixed, input_types
from tilesmith.frontend.common.inspection import Inspection
from tilesmith.frontend.common.source import Source
from tilesmith.frontend.keras.archive import Stored, damage_named, read
from tilesmith.frontend.keras.importer import KerasImporter
from tilesmith.frontend.keras.model import MODELS, Layer, expect, inputs_of, layers_of, outputs_of
from tilesmith.frontend.keras.node import Tensor
from tilesmith.frontend.keras.registry import LAYERS, OPERATION
from tilesmith.graph.nodes import Graph, Value
from tilesmith.graph.passes.dce import dce
from tilesmith.ir.dtypes import dtype
from tilesmith.support.errors import ExpressionError, ModelError, UnsupportedError

_BATCH = "batch"
"""The name of the first dimension of all inputs, if it is open."""


def load(source: Source, given: Given) -> Graph:
    """The graph of a Keras model."""
    with errors_name(source.name), damage_named():
        return _graph(read(source), given)


def nodes(source: Source) -> list[tuple[str, str]]:
    """The names and classes of the model's layers, with those of models inside it."""
    with errors_name(source.name), damage_named():
        config = read(source).config
        return [(name, layer.kind) for name, layer in _walk(*_model(config))]


def inspect(source: Source) -> Inspection:
    """Facts about a Keras file.  Raises ModelError if it is damaged."""
    with damage_named():
        return _inspection(read(source))


def _inspection(stored: Stored) -> Inspection:
    kind, config = _model(stored.config)
    layers = [layer for _, layer in _walk(kind, config)]
    unsupported = {layer.kind for layer in layers if not _is_supported(layer)}
    own = layers_of(kind, config)
    outputs = [o.layer for o in outputs_of(kind, config, own)]
    declared = [_declared(name, config, own) for name in inputs_of(kind, config, own)]
    return Inspection(
        stored.format,
        f"Keras {stored.version}" if stored.version else "Keras",
        {d.name: f"{d.dtype}[{','.join(str(e or '?') for e in d.dims or ())}]" for d in declared},
        dict.fromkeys(outputs, "the result of a layer"),
        Counter(layer.kind for layer in layers),
        frozenset(unsupported),
        stored.weights.stored_bytes(),
        stored.metadata,
    )


def _is_supported(layer: Layer) -> bool:
    domain = OPERATION if layer.is_operation else ""
    return layer.kind in MODELS or LAYERS.find(domain, layer.kind) is not None


def _model(stored: dict[str, Any]) -> tuple[str, Any]:
    """The kind and the configuration of a serialised model."""
    kind = str(stored.get("class_name"))
    config = stored.get("config")
    if kind not in MODELS or (kind != "Sequential" and "layers" not in expect(config, dict, kind)):
        raise UnsupportedError(
            f"the model is of the class {kind!r}, whose code is not in the file; expected a "
            "Sequential or a functional model: build keras.Model(inputs, outputs) and save it"
        )
    return kind, config


def _walk(kind: str, config: Any, prefix: str = "", depth: int = 0) -> Iterator[tuple[str, Layer]]:
    """All layers with their names, also those of models inside the model."""
    if depth > 64:
        raise ModelError("models stand more than 64 deep in one another")
    for layer in layers_of(kind, config):
        yield prefix + layer.name, layer
        if layer.kind in MODELS and not layer.is_operation:
            yield from _walk(layer.kind, layer.config, f"{prefix}{layer.name}/", depth + 1)


def _graph(stored: Stored, given: Given) -> Graph:
    kind, config = _model(stored.config)
    layers = layers_of(kind, config)
    builder = FoldingBuilder("main", given.for_training)
    importer = KerasImporter(builder, stored.major, given.weights)
    declared = [_declared(name, config, layers) for name in inputs_of(kind, config, layers)]
    arrays = fixed(declared, given.values)
    types = input_types(declared, given, arrays)
    inputs = [
        Tensor(
            builder.constant(arrays[d.name])
            if d.name in arrays
            else builder.input(d.name, types[d.name])
        )
        for d in declared
    ]
    results = importer.model(kind, config, stored.weights, inputs)
    importer.check()
    names = Counter[str]()
    named: dict[str, Value] = {}
    for reference, tensor in zip(outputs_of(kind, config, layers), results, strict=True):
        names[reference.layer] += 1
        count = names[reference.layer]
        if not isinstance(tensor.value, Value):
            raise ModelError(f"output {reference.layer!r} has no value")
        named[f"{reference.layer}_{count - 1}" if count > 1 else reference.layer] = tensor.value
    if not named:
        raise ModelError("expected at least one output, found none")
    return dce(builder.finish(list(named.values()), list(named)))


def _declared(name: str, config: Any, layers: list[Layer]) -> Declared:
    """An input, with the shape of its input layer, or else the shape that its first layer has."""
    layer = next((own_layer for own_layer in layers if own_layer.name == name), layers[0])
    own = expect(layer.config, dict, f"the configuration of {layer.name!r}")
    shape = own.get("batch_shape")
    if shape is None and isinstance(own.get("shape"), list):
        shape = [None, *own["shape"]]
    if shape is None and isinstance(config, dict):
        shape = config.get("build_input_shape")
    if shape is None and isinstance(own.get("input_dim"), int):  # Keras 1
        shape = [None, own["input_dim"]]
    if not isinstance(shape, list) or not all(d is None or type(d) is int for d in shape):
        raise ModelError(
            f"input {layer.name!r}: expected its shape, found {shape!r}: build the model"
        )
    dims = tuple("" if d is None else d for d in shape)
    if dims and dims[0] == "":
        dims = (_BATCH, *dims[1:])
    policy = own.get("dtype") or ("int32" if layer.kind == "Embedding" else "float32")
    element = policy if isinstance(policy, str) and layer.kind == "InputLayer" else "float32"
    if layer.kind == "Embedding":
        element = "int32"
    try:
        return Declared(name or layer.name, dtype(element), dims)
    except ExpressionError:
        raise UnsupportedError(f"input {layer.name!r} of the type {element!r}") from None
