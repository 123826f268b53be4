"""The layers of a Tengine model that a plugin can compute, and how the engine states them."""

from __future__ import annotations

import struct
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from tilesmith.frontend.common.errors import errors_name
from tilesmith.frontend.common.folding import FoldingBuilder
from tilesmith.frontend.common.inputs import Declared, Given, Shapes
from tilesmith.frontend.common.networks import Layer, Network, NetworkImporter, load_network
from tilesmith.frontend.common.source import Source
from tilesmith.frontend.tengine.layers import LAYERS
from tilesmith.frontend.tengine.model import read
from tilesmith.graph.nodes import Graph, Value
from tilesmith.ir.dtypes import f32
from tilesmith.runtime.standalone.objects import weights_sum
from tilesmith.support.errors import UsageError

_ANY = None
"""A parameter that the others, or shapes, decide."""

_WINDOW = ("kernel_h", "kernel_w", "stride_h", "stride_w")
_PARAMS: Mapping[str, Sequence[str | None]] = {
    "BatchNormalize": ("rescale_factor", "eps", "caffe_flavor"),
    "BroadMul": (),
    "Convolution": (
        *_WINDOW, "pad_h0", "pad_h1", "pad_w0", "pad_w1", "dilation_h", "dilation_w", _ANY,
        "output_channel", "group", "activation",
    ),
    "Eltwise": ("type",),
    "FullyConnected": ("num_output",),
    "InstanceNorm": ("eps",),
    "LayerNorm": ("eps",),
    "Lrn": ("local_size", "alpha", "beta", "norm_region", "k"),
    "Pooling": ("pool_method", *_WINDOW, "pad_h0", _ANY, "pad_w0", _ANY, "global", "caffe_flavor"),
    "PReLU": (),
    "ReLU": ("negative_slope",),
    "ReLU6": (),
    "Scale": ("axis", "num_axes", "bias_term"),
    "Sigmoid": (),
    "Softmax": ("axis",),
    "Tanh": (),
}  # fmt: skip
"""The layers that a plugin computes, by operator: the parameters that Tengine 1.5 has for them, in
the order of its structures in `source/operator/prototype`.  Other layers only move elements.
"""

KINDS = frozenset(_PARAMS)


@dataclass(frozen=True, slots=True)
class Replaced:
    """A layer that compiled code computes, wherever a model has it.

    kind: the operator.
    names: the layers of the file that are this layer.
    graph: what it computes; its inputs are the layer's without constants.
    params: the engine's parameters, as bits; None for one that the others, or shapes, decide.
    is_constant: whether each input is a constant.
    constants_sum: identifies the constants.
    """

    kind: str
    names: tuple[str, ...]
    graph: Graph
    params: tuple[int | None, ...]
    is_constant: tuple[bool, ...]
    constants_sum: int


def distinct_layers(
    source: Source, shapes: Shapes, wanted: Collection[str] | None, left: Collection[str]
) -> list[Replaced]:
    """The distinct layers of a model, in order.

    shapes: shapes of inputs, by name, in place of those in the file.
    wanted: operators, or names of layers; None for all.
    left: operators, or names of layers, that are not wanted.

    Raises ModelError for damaged files, and UsageError if no layer remains.
    """
    with errors_name(source.name):
        network = read(source)
        _check(network, (*(wanted or ()), *left))
        importer = NetworkImporter(FoldingBuilder("main"), network, LAYERS, Given(shapes=shapes))
        importer.declare()
        by_key: dict[tuple[object, ...], Replaced] = {}
        for layer in network.layers:
            importer.layer(layer)
            own = {layer.kind, layer.name}
            if own.intersection(left) or (wanted is not None and not own.intersection(wanted)):
                continue
            ends = [importer.slot(name) for name in (*layer.inputs, *layer.outputs)]
            values = [v for v in ends if isinstance(v, Value)]
            if layer.kind in KINDS and len(values) == len(ends) and all(map(_is_plain, values)):
                key, made = _replaced(network, layer, values)
                if key in by_key:
                    made = replace(made, names=by_key[key].names + made.names)
                by_key[key] = made
    if not by_key:
        raise UsageError(f"{source.name}: no layer of this model can be compiled for Tengine")
    return list(by_key.values())


def _check(network: Network, named: Collection[str]) -> None:
    known = KINDS | {layer.name for layer in network.layers}
    if unknown := sorted(set(named) - known):
        raise UsageError(
            f"layers: expected names of layers, or of {', '.join(sorted(KINDS))}; found "
            f"{', '.join(unknown)}"
        )


def _is_plain(value: Value) -> bool:
    return value.dtype is f32 and value.type.is_static and 1 <= value.type.rank <= 8


def _replaced(
    network: Network, layer: Layer, values: Sequence[Value]
) -> tuple[tuple[object, ...], Replaced]:
    """A layer, and what distinguishes it from others."""
    is_constant = tuple(name in network.weights for name in layer.inputs)
    inputs = [
        name if constant else f"input{i}"
        for i, (name, constant) in enumerate(zip(layer.inputs, is_constant, strict=True))
    ]
    declared = tuple(
        Declared(name, f32, v.type.static_shape)
        for name, v, constant in zip(inputs, values, is_constant, strict=False)
        if not constant
    )
    alone = replace(
        network, inputs=declared, outputs={"output": layer.outputs[0]},
        layers=(replace(layer, inputs=tuple(inputs)),), is_resizable=False,
    )  # fmt: skip
    params, total = _engine_params(layer, values), _constants_sum(network, layer)
    shapes = tuple(v.type.static_shape for v in values)
    graph = load_network(alone, LAYERS, Given())
    made = Replaced(layer.kind, (layer.name,), graph, params, is_constant, total)
    return (layer.kind, params, is_constant, shapes, total), made


def _constants_sum(network: Network, layer: Layer) -> int:
    """The sum that `tengine.c` computes of the constants of a node."""
    total = 0
    for i, name in enumerate(layer.inputs):
        if name in network.weights:
            stored = network.weights[name]
            array = np.asarray(stored() if callable(stored) else stored)
            raw = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
            total += weights_sum(raw) * (2 * i + 1)
    return total % (1 << 64)


def _engine_params(layer: Layer, values: Sequence[Value]) -> tuple[int | None, ...]:
    """The parameters of a layer after Tengine has inferred shapes."""
    stated: dict[str | None, int | float | None] = {_ANY: None, **layer.attributes}
    if layer.kind == "Pooling":
        whole = values[0].type.static_shape[2:] == (stated["kernel_h"], stated["kernel_w"])
        unpadded = not any(stated[f"pad_{side}"] for side in ("h0", "h1", "w0", "w1"))
        if stated["global"] or (whole and unpadded):  # the engine derives the window
            stated |= {"global": 1, **dict.fromkeys((*_WINDOW, "pad_h0", "pad_w0"))}
    return tuple(_bits(stated[name]) for name in _PARAMS[layer.kind])


def _bits(number: float | None) -> int | None:
    if isinstance(number, float):
        return int(struct.unpack("<i", struct.pack("<f", number))[0])
    return number
