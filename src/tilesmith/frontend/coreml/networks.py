"""Core ML's neural networks: the walk over their layers, and the preparation of images."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from tilesmith.frontend.common.branches import branched
from tilesmith.frontend.common.limits import MAX_DEPTH
from tilesmith.frontend.common.problems import Site
from tilesmith.frontend.common.protobuf import Message
from tilesmith.frontend.common.slots import FAILED, Failed, Slot
from tilesmith.frontend.common.whiles import repeated
from tilesmith.frontend.coreml.features import CHANNELS
from tilesmith.frontend.coreml.importer import Frame, MilImporter
from tilesmith.frontend.coreml.layers import LAYERS
from tilesmith.frontend.coreml.schema import schema
from tilesmith.graph.nodes import Value
from tilesmith.ir.dtypes import f32, i64
from tilesmith.ir.types import same_dim
from tilesmith.support.errors import ModelError, UnsupportedError

_FIRST = 100
"""The lowest number of those fields of a layer that hold parameters."""


def kind_of(layer: Message) -> str:
    """The kind of a layer: the name of the field with its parameters."""
    fields = schema().fields("Layer").values()
    return layer.which(*(f.name for f in fields if f.number >= _FIRST)) or "unknown layer"


def run_network(
    importer: MilImporter, net: Message, description: Message, values: Mapping[str, Value]
) -> dict[str, Slot]:
    """The values of all names in a network after its layers ran on `values`, its inputs."""
    frame = Frame({}, importer.builder)
    for feature in description.input:
        frame.names[feature.name] = _prepared(net, feature, values[feature.name])
    for layer in net.layers:
        _layer(importer, layer, frame)
    return {name: slot for name, slot in frame.names.items() if not isinstance(slot, (str, tuple))}


def result(names: Mapping[str, Slot], name: str, net: Message, feature: Message | None) -> Slot:
    """An output of a network.  Values of rank 5, as in older networks, get the declared rank."""
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
    """An input in the form that layers read: f32, scaled, with the network's rank."""
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
    """Scale pixels [N, C, H, W] and add a bias to each colour, or subtract the mean image."""
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


def _layer(importer: MilImporter, layer: Message, frame: Frame) -> None:
    importer.builder.count()
    kind = kind_of(layer)
    label = layer.output[0] if layer.output else layer.name
    site = Site(kind, "", layer.name or label)
    if kind in ("loop", "branch"):
        written = _written([layer])
        made = importer.attempt(site, lambda: _control(importer, layer, kind, frame, written))
        outputs = [name for name in written if name in frame or made is not None]
    else:
        made = importer.attempt(site, lambda: _results(importer, layer, kind, label, frame))
        outputs = list(layer.output)
    frame.define(site, outputs, made)


def _results(
    importer: MilImporter, layer: Message, kind: str, label: str, frame: Frame
) -> Sequence[Slot] | None:
    function = LAYERS.find("", kind)
    if function is None:
        raise UnsupportedError("the layer is not supported")
    inputs = [frame.find(name) for name in layer.input]
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


# Branches and loops.  Their layers write to names of the enclosing network.


@dataclass(frozen=True)
class _Stage:
    """A network inside a layer, as a function of carried names.

    layers: its layers.
    carried: the names that have its arguments.
    results: the names of its results.
    limit: for the condition of a loop, the largest number of iterations, or 0 for no limit; the
        first carried value counts iterations.  None for other networks.
    """

    layers: Sequence[Message]
    carried: Sequence[str]
    results: Sequence[str]
    limit: int | None = None


_COUNT = "the number of iterations"


def _written(layers: Sequence[Message]) -> list[str]:
    """The names that layers write, also those that networks inside them write."""
    names: dict[str, None] = {}
    for layer in layers:
        names |= dict.fromkeys(layer.output)
        for net in _inner(layer):
            names |= dict.fromkeys(_written(net.layers))
    return list(names)


def _inner(layer: Message) -> Sequence[Message]:
    fields = {"loop": ("conditionNetwork", "bodyNetwork"), "branch": ("ifBranch", "elseBranch")}
    kind = layer.which(*fields)
    nets = [] if kind is None else [getattr(getattr(layer, kind), name) for name in fields[kind]]
    return [net for net in nets if net is not None]


def _control(
    importer: MilImporter, layer: Message, kind: str, frame: Frame, written: list[str]
) -> Sequence[Slot]:
    """The values that a branch or loop writes, in the order of `written`.

    Names that are not defined on every path are removed from `written`.
    """
    node = replace(
        importer.node(kind, layer.name, layer.name, 0),
        inline=lambda stage, given, at: _run(importer, frame, stage, given),
        nest=lambda body, stage, given, at: importer.within(
            body, lambda: _run(importer, frame, stage, given)
        ),
    )
    p, carried = getattr(layer, kind), [name for name in written if name in frame]
    state = [s for s in map(frame.find, carried) if isinstance(s, Value)]
    if len(state) < len(carried):
        raise UnsupportedError("names that hold no tensors")
    if kind == "branch":
        nets = (p.ifBranch, p.elseBranch)
        sets = [set(carried) | set(_written(net.layers) if net is not None else ()) for net in nets]
        written[:] = [name for name in written if all(name in s for s in sets)]
        stages = [_Stage(net.layers if net is not None else (), carried, written) for net in nets]
        condition = frame.find(layer.input[0]) if len(layer.input) else None
        if not isinstance(condition, Value):
            raise ModelError("expected a condition, found none")
        is_true = condition.differs(0.0).reshape()
        made = branched(node, is_true, (stages[0], stages[1]), state)
        return made if isinstance(made, tuple) else (made,)
    written[:] = carried
    limit, names = int(p.maxLoopIterations), [_COUNT, *carried]
    condition = p.conditionNetwork
    test = _Stage(
        condition.layers if condition is not None else (),
        names,
        [p.conditionVar] if condition is not None else [],
        limit,
    )
    step = _Stage(p.bodyNetwork.layers, names, names)
    made = repeated(node, test, step, (node.const(0, i64), *state))
    return made[1:] if isinstance(made, tuple) else ()


def _run(importer: MilImporter, frame: Frame, stage: _Stage, given: Sequence[Slot]) -> list[Slot]:
    """The results of a network inside a layer."""
    if frame.depth > MAX_DEPTH:
        raise ModelError(f"networks are nested more than {MAX_DEPTH} deep")
    names = dict(zip(stage.carried, given, strict=True))
    inner = Frame(dict(names), importer.builder, frame, frame.depth + 1)
    for layer in stage.layers:
        _layer(importer, layer, inner)
    results = [inner.find(name) for name in stage.results]
    slots: list[Slot] = [r for r in results if not isinstance(r, (str, tuple))]
    if any(isinstance(s, Failed) for s in slots):
        return [FAILED]
    if stage.limit is None:
        count = names.get(_COUNT)
        if isinstance(count, Value):
            slots[0] = count + 1
        return slots
    count = names[_COUNT]
    goes = [s.differs(0.0).reshape() for s in slots if isinstance(s, Value)]
    if isinstance(count, Value) and (stage.limit or not goes):
        goes.append(count < stage.limit)
    return [goes[0] if len(goes) == 1 else goes[0] & goes[1]]
