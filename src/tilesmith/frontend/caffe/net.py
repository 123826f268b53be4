"""Caffe's nets: a `.prototxt` with its `.caffemodel`, or a `.caffemodel` alone."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from tilesmith.frontend.caffe import is_text
from tilesmith.frontend.caffe.schema import PARAMS, SCHEMA
from tilesmith.frontend.common.inputs import Declared
from tilesmith.frontend.common.networks import Layer, Network
from tilesmith.frontend.common.protobuf import Message
from tilesmith.frontend.common.protobuf_text import parse
from tilesmith.frontend.common.source import Source
from tilesmith.ir.dtypes import f32
from tilesmith.support.errors import ModelError

_NAMES = {
    "ABSVAL": "AbsVal", "ARGMAX": "ArgMax", "BNLL": "BNLL", "ELU": "ELU", "IM2COL": "Im2col",
    "LRN": "LRN", "MVN": "MVN", "RELU": "ReLU", "TANH": "TanH", "SOFTMAX_LOSS": "SoftmaxWithLoss",
}  # fmt: skip
"""New types of V1 layers.  For others, the words of the old type are joined in camel case."""

_SPECIAL_PARAMS = {
    "Deconvolution": "convolution_param",
    "Normalize": "norm_param",
    "RNN": "recurrent_param",
    "LSTM": "recurrent_param",
}
_DATA = ("Input", "Data", "DummyData", "MemoryData", "ImageData", "HDF5Data", "WindowData",
         "AnnotatedData")  # fmt: skip


def read(source: Source) -> Network:
    """The net for inference.

    Raises ModelError for files that are damaged or do not fit each other.
    """
    assert source.content is not None
    first = memoryview(source.content)
    second = source.companion(".caffemodel" if is_text(first) else ".prototxt")
    parts = [first, *([] if second is None else [second])]
    texts = [p for p in parts if is_text(p)]
    binaries = [p for p in parts if not is_text(p)]
    if len(texts) > 1 or len(binaries) > 1:
        raise ModelError("expected a net in text and its blobs, found two files of one kind")
    stored = SCHEMA.decode(binaries[0], "Net") if binaries else None
    net = _parsed(texts[0]) if texts else stored
    assert net is not None
    weights = {} if stored is None else _weights(stored)
    inputs = _declared(net)
    layers: list[Layer] = []
    for message in _layers(net):
        kind = _kind(message)
        if kind in _DATA:
            inputs |= _data_inputs(kind, message, _attributes(kind, message))
        else:
            own = weights.get(message.name, {})
            layers.append(_layer(kind, message, tuple(own)))
    used = {name for layer in layers for name in layer.inputs}
    kept = [Declared(name, f32, dims) for name, dims in inputs.items() if name in used]
    return Network(
        "Caffe",
        tuple(kept),
        {name: name for name in _outputs(layers)},
        layers,
        {name: blob for own in weights.values() for name, blob in own.items()},
        metadata={"name": net.name} if net.name else {},
        is_resizable=True,
    )


def _parsed(text: memoryview) -> Message:
    try:
        return parse(SCHEMA, bytes(text).decode(), "Net")
    except UnicodeDecodeError as e:
        raise ModelError(f"expected UTF-8 text, found {e}") from None


def _layers(net: Message) -> list[Message]:
    """The layers of the phase TEST."""
    if len(net.layer) and len(net.layers):
        raise ModelError("expected fields 'layer' or fields 'layers', found both")
    return [m for m in (*net.layers, *net.layer) if _is_included(m)]


def _is_included(layer: Message) -> bool:
    """Whether the layer is part of the net for inference: phase TEST, level 0, no stages."""
    if len(layer.include) and len(layer.exclude):
        raise ModelError(
            f"layer {layer.name!r}: expected rules to include or to exclude, found both"
        )
    if len(layer.include):
        return any(map(_holds, layer.include))
    return not any(map(_holds, layer.exclude))


def _holds(rule: Message) -> bool:
    is_phase = not rule.has("phase") or rule.phase == "TEST"
    is_level = rule.min_level <= 0 and (not rule.has("max_level") or rule.max_level >= 0)
    return is_phase and is_level and not len(rule.stage)


def _kind(layer: Message) -> str:
    if layer.message_name == "Layer":
        return layer.type
    words = layer.type
    return _NAMES.get(words) or "".join(
        w if w == "HDF5" else w.capitalize() for w in words.split("_")
    )


def _attributes(kind: str, layer: Message) -> dict[str, Any]:
    """The fields that are given in the layer's message of parameters, such as pooling_param."""
    plain = kind.lower()
    own = _SPECIAL_PARAMS.get(kind) or next(
        (p for p in PARAMS if p.removesuffix("_param").replace("_", "") == plain), None
    )
    message = getattr(layer, own) if own else None
    if message is None:
        return {}
    return {name: getattr(message, name) for name in SCHEMA.fields(own) if message.has(name)}


def _layer(kind: str, message: Message, weights: tuple[str, ...]) -> Layer:
    tops = tuple(message.top)
    name = message.name or (tops[0] if tops else kind)
    return Layer(kind, name, tuple(message.bottom), tops, _attributes(kind, message), weights)


def _outputs(layers: Sequence[Layer]) -> list[str]:
    """The blobs that no later layer reads."""
    unread: dict[str, None] = {}
    for layer in layers:
        for name in layer.inputs:
            unread.pop(name, None)
        unread |= dict.fromkeys(layer.outputs)
    return list(unread)


# Inputs


def _declared(net: Message) -> dict[str, tuple[int | str, ...]]:
    """The inputs that the net itself lists."""
    names = list(net.input)
    shapes = [_dims(s) for s in net.input_shape]
    if not shapes:
        numbers = net.input_dim.tolist()
        shapes = [tuple(numbers[i : i + 4]) for i in range(0, len(numbers), 4)]
    shapes = shapes or [("",) * 4] * len(names)
    if len(shapes) != len(names):
        raise ModelError(f"expected a shape for each of {len(names)} inputs, found {len(shapes)}")
    return dict(zip(names, shapes, strict=True))


def _dims(shape: Message) -> tuple[int | str, ...]:
    return tuple(shape.dim.tolist())


def _data_inputs(
    kind: str, layer: Message, attributes: Mapping[str, Any]
) -> dict[str, tuple[int | str, ...]]:
    """Inputs that replace the results of a layer that reads data.

    If no sizes are known, the first result is images [N, C, H, W]; others are labels [N].
    """
    tops = list(layer.top)
    shapes = [_dims(s) for s in attributes.get("shape", ())]
    four = [attributes.get(name) for name in ("num", "channels", "height", "width")]
    if kind == "DummyData" and not shapes and four[0] is not None:
        lists = [numbers.tolist() for numbers in four]  # type: ignore[union-attr]  # all or none
        shapes = list(zip(*lists, strict=True))
    if kind == "MemoryData":
        names = ("batch_size", "channels", "height", "width")
        shapes = [tuple(attributes.get(name, "") for name in names)]
    if len(shapes) == 1 and kind in ("Input", "DummyData"):
        shapes *= len(tops)
    crop = (layer.transform_param and layer.transform_param.crop_size) or ""
    unknown: list[tuple[int | str, ...]] = [("", "", crop, crop)]
    shapes = [*shapes, *(unknown if not shapes else []), *[("",)] * len(tops)]
    return dict(zip(tops, shapes, strict=False))


# Blobs


def _weights(net: Message) -> dict[str, dict[str, Callable[[], np.ndarray]]]:
    """For each layer, functions that read its blobs, by name: layer, point and blob's number."""
    stored: dict[str, dict[str, Callable[[], np.ndarray]]] = {}
    for layer in (*net.layers, *net.layer):
        if len(layer.blobs):
            own = {f"{layer.name}.{i}": partial(_blob, b) for i, b in enumerate(layer.blobs)}
            stored.setdefault(layer.name, own)
    return stored


def _blob(blob: Message) -> np.ndarray:
    """The array of a blob.  Old files state four extents instead of a shape."""
    data = blob.data if len(blob.data) else blob.double_data.astype(np.float32)
    if len(blob.raw_data):
        dtype = {"DOUBLE": "<f8", "FLOAT": "<f4", "FLOAT16": "<f2"}.get(blob.raw_data_type)
        if dtype is None or len(blob.raw_data) % np.dtype(dtype).itemsize:
            raise ModelError(f"a blob of type {blob.raw_data_type} has {len(blob.raw_data)} bytes")
        data = np.frombuffer(blob.raw_data, dtype).astype(np.float32)
    shape: tuple[int, ...] = () if blob.shape is None else tuple(blob.shape.dim.tolist())
    if not shape and blob.which("num", "channels", "height", "width"):
        shape = (blob.num, blob.channels, blob.height, blob.width)
    if any(d < 0 for d in shape) or math.prod(shape) != data.size:
        raise ModelError(f"a blob of shape {list(shape)} has {data.size} numbers")
    return data.reshape(shape)
