"""Writes small Core ML programs for tests."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from tilesmith.frontend.coreml.schema import schema

from .protobuf import encode

_NAMES = {"f": "FLOAT", "i": "INT", "u": "UINT"}
_BLOBS = {"float16": 1, "float32": 2, "uint8": 3, "int8": 4}


def data_type(dtype: np.dtype) -> str:
    return "BOOL" if dtype.kind == "b" else f"{_NAMES[dtype.kind]}{dtype.itemsize * 8}"


def tensor_type(dtype: np.dtype, shape: Sequence[int | None]) -> dict[str, Any]:
    """A type; None for an open dimension."""
    dims = [{"unknown": {}} if d is None else {"constant": {"size": d}} for d in shape]
    kind = {"dataType": data_type(dtype), "rank": len(shape), "dimensions": dims}
    return {"tensorType": kind}


def value(stored: Any) -> dict[str, Any]:
    """A stored array or text."""
    if isinstance(stored, str):
        text = {"dataType": "STRING", "rank": 0}
        return {
            "type": {"tensorType": text},
            "immediateValue": {"tensor": {"strings": {"values": [stored]}}},
        }
    array = np.asarray(stored)
    array = array.astype(
        {"int64": "int32", "float64": "float32"}.get(array.dtype.name, array.dtype)
    )
    fields = {"float32": "floats", "int32": "ints", "bool": "bools"}
    field = fields.get(array.dtype.name, "bytes")
    values = array.tobytes() if field == "bytes" else array.reshape(-1).tolist()
    return {
        "type": tensor_type(array.dtype, array.shape),
        "immediateValue": {"tensor": {field: {"values": values}}},
    }


def argument(given: Any) -> dict[str, Any]:
    """A name that begins with %, a list of names, or a stored value."""
    names = given if isinstance(given, list) and isinstance(given[0], str) else [given]
    bound = [
        {"name": n[1:]} if isinstance(n, str) and n.startswith("%") else {"value": value(n)}
        for n in names
    ]
    return {"arguments": bound}


def operation(kind: str, outputs: str, blocks: Sequence[Any] = (), **arguments: Any) -> dict:
    """An operation with outputs (names with spaces between them)."""
    return {
        "type": kind,
        "inputs": {k: argument(v) for k, v in arguments.items()},
        "outputs": [{"name": name} for name in outputs.split()],
        "blocks": list(blocks),
    }


def block(operations: Sequence[Any], outputs: str, inputs: str = "") -> dict[str, Any]:
    return {
        "inputs": [{"name": name} for name in inputs.split()],
        "outputs": outputs.split(),
        "operations": list(operations),
    }


def program(
    inputs: Mapping[str, tuple[Any, Sequence[int | None]]],
    operations: Sequence[Any],
    outputs: str,
    description: Mapping[str, Any] | None = None,
    states: Mapping[str, Sequence[int]] | None = None,
) -> bytes:
    """A model of one function, whose inputs are element types and shapes."""
    declared = [
        {"name": name, "type": tensor_type(np.dtype(dtype), shape)}
        for name, (dtype, shape) in inputs.items()
    ]
    for name, shape in (states or {}).items():
        kept = {"stateType": {"wrappedType": tensor_type(np.dtype("float32"), shape)}}
        declared.append({"name": name, "type": kept})
    function = {
        "inputs": declared,
        "opset": "CoreML8",
        "block_specializations": {"CoreML8": block(operations, outputs)},
    }
    features = {"input": [{"name": name, "type": {}} for name in inputs]}
    return encode(
        schema(),
        "Model",
        {
            "specificationVersion": 9,
            "description": description or features,
            "mlProgram": {"version": 1, "functions": {"main": function}},
        },
    )


def weight_file(arrays: Sequence[np.ndarray]) -> tuple[bytes, list[int]]:
    """A file of weights, and the places of the arrays' records."""
    content, records = bytearray(np.array([len(arrays), 2], "<u4").tobytes().ljust(64, b"\0")), []
    for array in arrays:
        records.append(len(content))
        head = np.array([0xDEADBEEF, _BLOBS[array.dtype.name]], "<u4").tobytes()
        place = np.array([array.nbytes, len(content) + 64], "<u8").tobytes()
        content += (head + place).ljust(64, b"\0") + array.tobytes()
        content += b"\0" * (-len(content) % 64)
    return bytes(content), records


def write_package(folder: Path, model: bytes, weights: bytes = b"") -> Path:
    """A package with a manifest, the model and its weights."""
    inner = folder / "Data" / "com.apple.CoreML"
    (inner / "weights").mkdir(parents=True)
    (inner / "model.mlmodel").write_bytes(model)
    (inner / "weights" / "weight.bin").write_bytes(weights)
    entries = {"A": {"path": "com.apple.CoreML/model.mlmodel"}}
    manifest = {
        "fileFormatVersion": "1.0.0",
        "itemInfoEntries": entries,
        "rootModelIdentifier": "A",
    }
    (folder / "Manifest.json").write_text(json.dumps(manifest))
    return folder


# Neural networks


def array(shape: Sequence[int]) -> dict[str, Any]:
    return {"multiArrayType": {"shape": list(shape), "dataType": "FLOAT32"}}


def model(kind: str, body: Any, inputs: Mapping[str, Any], outputs: str, **more: Any) -> bytes:
    """A model with features (name -> type) and outputs (names with spaces between them)."""
    made = {"specificationVersion": 4, **message(kind, body, inputs, outputs, **more)}
    return encode(schema(), "Model", made)


def message(
    kind: str, body: Any, inputs: Mapping[str, Any], outputs: str, **more: Any
) -> dict[str, Any]:
    features = [{"name": name, "type": type_} for name, type_ in inputs.items()]
    results = [{"name": name, "type": {"multiArrayType": {}}} for name in outputs.split()]
    return {"description": {"input": features, "output": results, **more}, kind: body}


def layer(kind: str, output: str, inputs: str, **parameters: Any) -> dict[str, Any]:
    names = {"name": output, "input": inputs.split(), "output": output.split()}
    return names | {kind: parameters}


def network(layers: Sequence[Any], shape: Sequence[int], **more: Any) -> bytes:
    body = {"layers": list(layers), "arrayInputShapeMapping": "EXACT_ARRAY_MAPPING", **more}
    return model("neuralNetwork", body, {"x": array(shape)}, "y")
