"""Core ML's neural networks: the walk over their layers, and the preparation of images."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from tilesmith.frontend.common.problems import Site
from tilesmith.frontend.common.protobuf import Message
from tilesmith.frontend.common.slots import FAILED, Failed, Slot
from tilesmith.frontend.coreml.features import CHANNELS
from tilesmith.frontend.coreml.importer import MilImporter
from tilesmith.frontend.coreml.layers import LAYERS
from tilesmith.frontend.coreml.schema import schema
from tilesmith.graph.nodes import Value
from tilesmith.ir.dtypes import f32
from tilesmith.ir.types import same_dim
from tilesmith.support.errors import ModelError, UnsupportedError

_FIRST = 100
"""The number of the first field of a layer that holds parameters."""


def kind_of(layer: Message) -> str:
    """The name of a layer's parameters."""
    fields = schema().fields("Layer").values()
    return layer.which(*(f.name for f in fields if f.number >= _FIRST)) or "unknown layer"


def run_network(
    importer: MilImporter, net: Message, description: Message, values: Mapping[str, Value]
) -> dict[str, Slot]:
    """The values of all names of a network, for its inputs by name."""
    names: dict[str, Slot] = {}
    for feature in description.input:
        names[feature.name] = _prepared(net, feature, values[feature.name])
    for layer in net.layers:
        _layer(importer, layer, names)
    return names


def result(names: Mapping[str, Slot], name: str, net: Message, feature: Message | None) -> Slot:
    """An output of a network.  Older networks have rank 5; their outputs have the declared rank."""
    value = names.get(name)
    if not isinstance(value, Value) or value.type.rank != 5:
        return value
    array = feature.type.multiArrayType if feature is not None else None
    declared = () if array is None else tuple(array.shape.tolist())
    if declared and value.type.is_static and np.prod(declared) == value.type.size:
        return value.reshape(*declared)
    if not is_older(net):
        return value
    dims = list(value.type.shape)
    while len(dims) > 3 and same_dim(dims[0], 1):
        dims = dims[1:]
    while len(dims) == 3 and declared and len(declared) < len(dims) and same_dim(dims[-1], 1):
        dims = dims[:-1]
    return value.reshape(*dims)


def is_older(net: Message) -> bool:
    """Whether arrays have rank 5: sequence, batch, channels, height, width."""
    return net.arrayInputShapeMapping == "RANK5_ARRAY_MAPPING"


def _prepared(net: Message, feature: Message, value: Value) -> Value:
    """An input as the layers read it."""
    x = value.cast(f32)
    image = feature.type.imageType
    if image is None:
        dims = x.type.shape
        if not is_older(net) or len(dims) == 5:
            return x
        if len(dims) == 4:
            return x.reshape(1, *dims)
        lead = (1, 1) if len(dims) != 2 else (1, dims[0])
        own = dims if len(dims) != 2 else dims[1:]
        return x.reshape(*lead, *own, *[1] * (3 - len(own)))
    for p in net.preprocessing:
        if p.featureName in ("", feature.name):
            x = _scaled(p, image, x)
    is_five = net.imageInputShapeMapping == "RANK5_IMAGE_MAPPING"
    return x.reshape(1, *x.type.shape) if is_five else x


def _scaled(p: Message, image: Message, x: Value) -> Value:
    """Pixels [N, C, H, W] times the model's scale plus its bias for each colour, or minus its mean
    image.
    """
    if p.scaler is not None:
        s = p.scaler
        colours = {"RGB": (s.redBias, s.greenBias, s.blueBias),
                   "BGR": (s.blueBias, s.greenBias, s.redBias)}  # fmt: skip
        bias = np.array(colours.get(image.colorSpace, (s.grayBias,)), np.float32)
        factor = s.channelScale if s.has("channelScale") else 1.0
        return x * factor + bias.reshape(-1, 1, 1)
    mean = p.meanImage.meanImage
    dims = (CHANNELS.get(image.colorSpace, 3), int(image.height), int(image.width))
    if mean.size != np.prod(dims):
        raise ModelError(f"expected a mean image {list(dims)}, found {mean.size} numbers")
    return x - mean.reshape(dims)


def _layer(importer: MilImporter, layer: Message, names: dict[str, Slot]) -> None:
    importer.builder.count()
    kind = kind_of(layer)
    label = layer.output[0] if layer.output else layer.name
    site = Site(kind, "", layer.name or label)
    made = importer.attempt(site, lambda: _results(importer, layer, kind, label, names))
    if made is not None and len(made) < len(layer.output):
        raise ModelError(
            f"node {site.loc!r} ({kind}): expected at most {len(made)} outputs, found "
            f"{len(layer.output)}"
        )
    for i, name in enumerate(layer.output):
        names[name] = FAILED if made is None else made[i]


def _results(
    importer: MilImporter, layer: Message, kind: str, label: str, names: Mapping[str, Slot]
) -> Sequence[Slot] | None:
    function = LAYERS.find("", kind)
    if function is None:
        raise UnsupportedError("the layer is not supported")
    missing = [name for name in layer.input if name not in names]
    if missing:
        raise ModelError(f"{missing[0]!r} is used, which nothing before defines")
    inputs = [names[name] for name in layer.input]
    if any(isinstance(i, Failed) for i in inputs):
        return None
    tensors = tuple(i for i in inputs if isinstance(i, Value))
    if not tensors and kind not in ("loadConstant", "loadConstantND", "fillStatic", "rangeStatic"):
        raise ModelError("expected an input, found none")
    node = importer.node(kind, layer.name or label, label, len(layer.output))
    with importer.builder.at(node.loc, label):
        made = function(node, getattr(layer, kind), tensors)
    results = made if isinstance(made, tuple) else (made,)
    # every value of a network is a float
    return [r.cast(f32) if isinstance(r, Value) else r for r in results]
