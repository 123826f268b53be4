"""Writes TFLite files for tests and campaigns: FlatBuffers from plain objects by our schema."""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from tilesmith.frontend.common.flatbuffer import Schema
from tilesmith.frontend.tflite import IDENTIFIER
from tilesmith.frontend.tflite.schema import ELEMENT_TYPES, OPERATORS, SCHEMA

_FORMATS = {"bool": "?", "i8": "b", "u8": "B", "i16": "h", "u16": "H", "i32": "i", "u32": "I"}
_FORMATS |= {"i64": "q", "u64": "Q", "f32": "f"}

TYPES = {np.dtype(t.lower() if t != "BOOL" else "bool"): i for i, t in enumerate(ELEMENT_TYPES)
         if t.rstrip("0123456789") in ("FLOAT", "INT", "UINT", "BOOL") and t not in
         ("INT4", "UINT4", "INT2")}  # fmt: skip
"""Numbers of element types by NumPy's types."""


class _Writer:
    """Bytes are appended; an object stands behind what refers to it."""

    def __init__(self, schema: Schema) -> None:
        self.data, self.schema = bytearray(8), schema

    def align(self, size: int) -> None:
        self.data += bytes(-len(self.data) % size)

    def point(self, at: int, to: int) -> None:
        struct.pack_into("<I", self.data, at, to - at)

    def table(self, kind: str, values: Mapping[str, Any]) -> int:
        fields = self.schema.fields(kind)
        unknown = set(values) - set(fields) - {f"{n}_kind" for n in fields}
        assert not unknown, f"{kind} has no fields {unknown}"
        given = {n: v for n, v in values.items() if n in fields and v is not None}
        for name in fields:
            if f"{name}_kind" in values:  # a union: the number of its kind
                kinds = self.schema.unions[name]
                given[f"{name}_type"] = kinds.index(values[f"{name}_kind"])
        places: dict[int, int] = {}
        size, order = 4, []
        for name, value in given.items():
            field = fields[name]
            is_scalar = field.type in _FORMATS and not field.is_vector
            width = struct.calcsize(_FORMATS[field.type]) if is_scalar else 4
            size += -size % width
            places[field.slot] = size
            order.append((name, value, size, is_scalar))
            size += width
        self.align(8)
        slots = max(places) + 1 if places else 0
        vtable = len(self.data)
        entries = [places.get(s, 0) for s in range(slots)]
        self.data += struct.pack(f"<HH{slots}H", 4 + 2 * slots, size, *entries)
        self.align(8)
        at = len(self.data)
        self.data += struct.pack("<i", at - vtable) + bytes(size - 4)
        for name, value, place, is_scalar in order:
            field = fields[name]
            if is_scalar:
                struct.pack_into("<" + _FORMATS[field.type], self.data, at + place, value)
                continue
            kind = values.get(f"{name}_kind", field.type)
            write = self.string if kind == "string" else lambda v, k=kind: self.table(k, v)
            made = self.vector(kind, value) if field.is_vector else write(value)
            self.point(at + place, made)
        return at

    def string(self, text: str | bytes) -> int:
        raw = text.encode() if isinstance(text, str) else text
        self.align(4)
        at = len(self.data)
        self.data += struct.pack("<I", len(raw)) + raw + b"\0"
        return at

    def vector(self, kind: str, items: Any) -> int:
        if kind in _FORMATS:
            dtype = np.dtype("u1" if kind == "bool" else np.dtype(_FORMATS[kind]))
            raw = np.asarray(items, dtype).tobytes()
            self.data += bytes((-len(self.data) - 4) % 16)
            at = len(self.data)
            self.data += struct.pack("<I", len(raw) // dtype.itemsize) + raw
            return at
        self.align(4)
        at = len(self.data)
        self.data += struct.pack("<I", len(items)) + bytes(4 * len(items))
        for i, item in enumerate(items):
            made = self.string(item) if kind == "string" else self.table(kind, item)
            self.point(at + 4 + 4 * i, made)
        return at


def flatbuffer(
    root: str, values: Mapping[str, Any], schema: Schema = SCHEMA, identifier: bytes = IDENTIFIER
) -> bytes:
    """A file with this root table: fields by name, tables as mappings, `NAME_kind` for a union."""
    writer = _Writer(schema)
    writer.data[4:8] = identifier
    writer.point(0, writer.table(root, values))
    return bytes(writer.data)


class ModelWriter:
    """A TFLite model of one or more subgraphs."""

    def __init__(self) -> None:
        self.buffers: list[dict[str, Any]] = [{}]
        self.codes: list[dict[str, Any]] = []
        self.graphs: list[GraphWriter] = []
        self.signatures: list[dict[str, Any]] = []
        self.metadata: list[dict[str, Any]] = []

    def graph(self, name: str = "main") -> GraphWriter:
        self.graphs.append(GraphWriter(self, name))
        return self.graphs[-1]

    def code(self, name: str, version: int = 1) -> int:
        """The number of an operator's code; a name that is no builtin operator is custom."""
        is_builtin = name in OPERATORS
        number = OPERATORS.index(name if is_builtin else "CUSTOM")
        code = {
            "deprecated_builtin_code": min(number, 127),
            "builtin_code": number,
            "version": version,
            "custom_code": None if is_builtin else name,
        }
        if code not in self.codes:
            self.codes.append(code)
        return self.codes.index(code)

    def bytes(self) -> bytes:
        return flatbuffer(
            "Model",
            {
                "version": 3,
                "operator_codes": self.codes,
                "subgraphs": [g.table for g in self.graphs],
                "buffers": self.buffers,
                "signature_defs": self.signatures,
                "metadata": self.metadata,
            },
        )

    def describe(self, name: str, content: bytes) -> None:
        """Add an entry of metadata."""
        self.metadata.append({"name": name, "buffer": len(self.buffers)})
        self.buffers.append({"data": np.frombuffer(content, np.uint8)})


class GraphWriter:
    """A subgraph of a model."""

    def __init__(self, model: ModelWriter, name: str) -> None:
        self.model = model
        self.table: dict[str, Any] = {
            "name": name, "tensors": [], "inputs": [], "outputs": [], "operators": [],
        }  # fmt: skip

    def tensor(
        self,
        shape: Sequence[int],
        dtype: Any = np.float32,
        name: str = "",
        data: Any = None,
        scale: Any = None,
        zero: Any = 0,
        axis: int = 0,
        **fields: Any,
    ) -> int:
        """A tensor's number; an extent of -1 is open.  `scale` and `zero` quantise it."""
        tensors = self.table["tensors"]
        number, buffer = len(tensors), 0
        if data is not None:
            buffer = len(self.model.buffers)
            raw = data if isinstance(data, bytes) else np.ascontiguousarray(data).tobytes()
            self.model.buffers.append({"data": np.frombuffer(raw, np.uint8)})
        quantization = None
        if scale is not None:
            quantization = {
                "scale": np.atleast_1d(scale),
                "zero_point": np.broadcast_to(zero, np.shape(np.atleast_1d(scale))),
                "quantized_dimension": axis,
            }
        is_open = any(d < 0 for d in shape)
        tensors.append(
            {
                "shape": [abs(d) for d in shape],
                "shape_signature": list(shape) if is_open else None,
                "type": TYPES[np.dtype(dtype)] if not isinstance(dtype, str) else
                ELEMENT_TYPES.index(dtype),
                "buffer": buffer,
                "name": name or f"t{number}",
                "quantization": quantization,
                **fields,
            }
        )  # fmt: skip
        return number

    def const(self, array: Any, **fields: Any) -> int:
        """A stored tensor's number."""
        array = np.asarray(array)
        return self.tensor(array.shape, array.dtype, data=array, **fields)

    def input(self, *args: Any, **fields: Any) -> int:
        """A new input's number."""
        self.table["inputs"].append(self.tensor(*args, **fields))
        return self.table["inputs"][-1]

    def op(
        self,
        name: str,
        inputs: Sequence[int],
        outputs: Sequence[int],
        options: str = "",
        version: int = 1,
        custom: bytes | None = None,
        **values: Any,
    ) -> None:
        """An operator; `options` names the kind of `values`."""
        self.table["operators"].append(
            {
                "opcode_index": self.model.code(name, version),
                "inputs": list(inputs),
                "outputs": list(outputs),
                "custom_options": None if custom is None else np.frombuffer(custom, np.uint8),
                **(_union(options, values) if options else {}),
            }
        )

    def output(self, *numbers: int) -> None:
        self.table["outputs"] += numbers


def _union(options: str, values: Mapping[str, Any]) -> dict[str, Any]:
    name = "builtin_options" if options in SCHEMA.unions["builtin_options"] else "builtin_options2"
    return {name: values, f"{name}_kind": options}
