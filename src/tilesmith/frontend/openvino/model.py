"""OpenVINO's files: layers and edges as XML, and the contents of constants in a second file.

The XML is not trusted.  A document that declares a type or an entity is refused before it is
parsed, so that no entity is expanded.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from functools import partial
from xml.etree import ElementTree

import numpy as np

from tilesmith.frontend.common.inputs import Declared
from tilesmith.frontend.common.networks import Layer, Network
from tilesmith.frontend.common.source import Source
from tilesmith.ir import dtypes as dt
from tilesmith.ir.dtypes import DType
from tilesmith.support.errors import ModelError, UnsupportedError

_DECLARATION = re.compile(r"<!(?:DOCTYPE|ENTITY)", re.IGNORECASE)
_LARGEST_TEXT = 1 << 28
"""Upper bound on the bytes of an XML file."""

TYPES: dict[str, DType] = {
    "f16": dt.f16, "f32": dt.f32, "f64": dt.f64, "bf16": dt.bf16, "i8": dt.i8, "i16": dt.i16,
    "i32": dt.i32, "i64": dt.i64, "u8": dt.u8, "u16": dt.u16, "u32": dt.u32, "u64": dt.u64,
    "boolean": dt.bool_, "i4": dt.i8, "u4": dt.u8, "u1": dt.u8,
}  # fmt: skip
"""Element types by name.  Integers of less than 8 bits become bytes."""

_PACKED = {"i4": 4, "u4": 4, "u1": 1}


def read(source: Source) -> Network:
    """The network.  Raises ModelError for damaged files."""
    assert source.content is not None
    root = _parsed(source.content)
    weights = source.companion(".bin")
    edges: dict[tuple[str, str], str] = {}
    for edge in root.iterfind("edges/edge"):
        made = f"{edge.get('from-layer')}:{edge.get('from-port')}"
        edges[str(edge.get("to-layer")), str(edge.get("to-port"))] = made
    layers: list[Layer] = []
    inputs: list[Declared] = []
    outputs: dict[str, str] = {}
    names: dict[str, str] = {}  # names of values, by layer and port
    stored: dict[str, Callable[[], np.ndarray]] = {}
    elements = root.findall("layers/layer")
    for element in elements:
        number, kind = str(element.get("id")), str(element.get("type"))
        name = str(element.get("name") or f"{kind}_{number}")
        data = element.find("data")
        options = {} if data is None else dict(data.attrib)
        ports = element.findall("output/port")
        made = tuple(f"{number}:{p.get('id')}" for p in ports)
        reads = element.findall("input/port")
        takes = tuple(edges.get((number, str(p.get("id"))), "") for p in reads)
        for port, value in zip(ports, made, strict=True):
            names[value] = (port.get("names") or name).split(",")[0]
        if kind == "Parameter" and made:
            inputs.append(Declared(made[0], _type(options, name), _dims(options.get("shape", ""))))
        elif kind == "Const" and made:
            if weights is None:
                raise ModelError("expected a file of weights: give the paths of .xml and .bin")
            stored[made[0]] = partial(_constant, weights, options, name)
        elif kind == "Result":
            if len(takes) != 1:
                raise ModelError(f"Result {name!r}: expected an input, found {len(takes)}")
            outputs[_unique(names.get(takes[0], name), outputs)] = takes[0]
        else:
            layers.append(Layer(kind, name, takes, made, options))
    return _named(
        Network(
            f"OpenVINO IR, version {root.get('version', '?')}",
            tuple(inputs),
            outputs,
            layers,
            stored,
            metadata={"name": root.get("name")},
            is_resizable=True,
        ),
        names,
    )


def _named(network: Network, names: Mapping[str, str]) -> Network:
    """The network in which inputs have their names instead of a layer's number and port."""
    new: dict[str, str] = {}
    for i in network.inputs:
        new[i.name] = _unique(names[i.name], dict.fromkeys(new.values(), ""))

    def layer(found: Layer) -> Layer:
        inputs = tuple(new.get(i, i) for i in found.inputs)
        return Layer(found.kind, found.name, inputs, found.outputs, found.attributes)

    return Network(
        network.format,
        tuple(Declared(new[i.name], i.dtype, i.dims) for i in network.inputs),
        {name: new.get(value, value) for name, value in network.outputs.items()},
        [layer(part) for part in network.layers],
        network.weights,
        metadata=network.metadata,
        is_resizable=True,
    )


def _unique(name: str, taken: Mapping[str, str]) -> str:
    free, count = name, 1
    while free in taken:
        count += 1
        free = f"{name}_{count}"
    return free


def _parsed(content: bytes | memoryview) -> ElementTree.Element:
    if len(content) > _LARGEST_TEXT:
        raise ModelError(f"expected at most {_LARGEST_TEXT} bytes of XML, found {len(content)}")
    try:
        text = bytes(content).decode("utf-8-sig")
        if _DECLARATION.search(text):
            raise ModelError("expected XML without declarations of types and entities")
        return ElementTree.fromstring(text.partition("?>")[2] if text.startswith("<?xml") else text)
    except (ElementTree.ParseError, UnicodeDecodeError) as e:
        raise ModelError(f"damaged XML: {e}") from None


def _type(options: Mapping[str, str], name: str) -> DType:
    text = options.get("element_type", "f32")
    if text not in TYPES:
        raise UnsupportedError(f"{name!r}: element type {text!r} is not supported")
    return TYPES[text]


def _dims(text: str) -> tuple[int | str, ...] | None:
    """A shape such as "?,3,1..8"; None for an open rank."""
    if "..." in text:
        return None
    parts = [p.strip() for p in text.split(",") if p.strip()]
    return tuple(int(p) if p.isdecimal() else "" for p in parts)


def _constant(weights: memoryview, options: Mapping[str, str], name: str) -> np.ndarray:
    """The contents of a constant."""
    text = options.get("element_type", "")
    dtype = _type(options, name)
    try:
        shape = [int(d) for d in options.get("shape", "").split(",") if d.strip()]
        start, size = int(options["offset"]), int(options["size"])
    except (KeyError, ValueError):
        raise ModelError(
            f"{name!r}: expected shape, offset and size, found {dict(options)}"
        ) from None
    count = int(np.prod(shape, dtype=object))
    bits = _PACKED.get(text, dtype.bits if text != "boolean" else 8)
    if (
        min([start, size, *shape]) < 0
        or start + size > len(weights)
        or -(-count * bits // 8) > size
    ):
        raise ModelError(
            f"{name!r}: expected {count} numbers of {bits} bits in {size} bytes from {start} on, "
            f"found {len(weights)} bytes"
        )
    raw = np.frombuffer(weights[start : start + size], np.uint8)
    if text in _PACKED:
        parts = raw.reshape(-1, 1) >> np.arange(0, 8, bits, dtype=np.uint8)
        if text == "u1":  # the first element is the highest bit
            parts = parts[:, ::-1]
        values = (parts & ((1 << bits) - 1)).reshape(-1)[:count].astype(np.int16)
        if text == "i4":
            values = np.where(values > 7, values - 16, values)
        return values.astype(dtype.numpy).reshape(shape)
    return raw[: count * bits // 8].view(dtype.numpy).reshape(shape)
