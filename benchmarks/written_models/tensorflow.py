"""Writes small TensorFlow models for tests: nodes, functions, frozen graphs and SavedModels."""

from __future__ import annotations

import struct
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from tilesmith.frontend.tensorflow.schema import SCHEMA

from .protobuf import encode, varint

TYPES = {"f4": 1, "f8": 2, "i4": 3, "i8": 9, "b1": 10}
FLOAT, INT, RESOURCE, VARIANT = 1, 3, 20, 21


class Type(int):
    """The number of an element type, as an attribute."""


class Called(str):
    """The name of a function, as an attribute."""

    __slots__ = ()


def shape(dims: Any) -> dict[str, Any]:
    return {"dim": [{"size": d} for d in dims]}


def tensor(array: Any) -> dict[str, Any]:
    if isinstance(array, list):  # strings
        return {"dtype": 7, "tensor_shape": shape((len(array),)), "string_val": array}
    array = np.asarray(array)
    return {
        "dtype": TYPES[array.dtype.str[1:]],
        "tensor_shape": shape(array.shape),
        "tensor_content": array.tobytes(),
    }


def attribute(value: Any) -> dict[str, Any]:
    """An AttrValue of the kind that the Python value has."""
    match value:
        case Type():
            return {"type": value}
        case bool():
            return {"b": value}
        case int():
            return {"i": value}
        case float():
            return {"f": value}
        case Called():
            return {"func": {"name": value}}
        case str():
            return {"s": value}
        case np.ndarray():
            return {"tensor": tensor(value)}
        case tuple():
            return {"shape": shape(value)}
        case [str(), *_]:
            is_call = isinstance(value[0], Called)
            named = {"func": [{"name": v} for v in value]} if is_call else {"s": value}
            return {"list": named}
        case _:
            return {"list": {"i": value}}


def node(name: str, op: str, *inputs: str, **attributes: Any) -> dict[str, Any]:
    stated = {n: attribute(a) for n, a in attributes.items()}
    return {"name": name, "op": op, "input": inputs, "attr": stated}


def placeholder(name: str, *dims: int, dtype: int = FLOAT) -> dict[str, Any]:
    return node(name, "Placeholder", dtype=Type(dtype), shape=dims)


def const(name: str, array: Any, *controls: str) -> dict[str, Any]:
    stated = {"value": {"tensor": tensor(array)}}
    return {"name": name, "op": "Const", "input": controls, "attr": stated}


def function(
    name: str, inputs: Mapping[str, int], results: Mapping[str, str], *nodes: dict[str, Any]
) -> dict[str, Any]:
    declared = {
        "name": name,
        "input_arg": [{"name": n, "type": t} for n, t in inputs.items()],
        "output_arg": [{"name": n, "type": FLOAT} for n in results],
    }
    return {"signature": declared, "node_def": nodes, "ret": results}


def graph(*nodes: dict[str, Any], functions: tuple[dict[str, Any], ...] = ()) -> dict[str, Any]:
    return {"node": nodes, "library": {"function": functions}}


def frozen(*nodes: dict[str, Any], functions: tuple[dict[str, Any], ...] = ()) -> bytes:
    return encode(SCHEMA, "GraphDef", graph(*nodes, functions=functions))


def info(name: str, *dims: int) -> dict[str, Any]:
    return {"name": name, "dtype": FLOAT, "tensor_shape": shape(dims)}


def block(pairs: list[tuple[bytes, bytes]]) -> bytes:
    """A block of a sorted table; keys share their beginnings with those before."""
    out, before = b"", b""
    for key, value in pairs:
        shared = 0
        while shared < min(len(key), len(before)) and key[shared] == before[shared]:
            shared += 1
        out += varint(shared) + varint(len(key) - shared) + varint(len(value))
        out += key[shared:] + value
        before = key
    return out + struct.pack("<II", 0, 1)


def packed(raw: bytes) -> bytes:
    """Snappy's form of bytes, with a copy for a run of equal bytes at the end."""
    head = len(raw)
    while head > 1 and raw[head - 1] == raw[head - 2] and len(raw) - head < 60:
        head -= 1
    out = varint(len(raw)) + bytes([61 << 2]) + struct.pack("<H", head - 1) + raw[:head]
    rest = len(raw) - head
    return out + (bytes([(rest - 1) << 2 | 2]) + struct.pack("<H", 1) if rest else b"")


def write_bundle(folder: Path, arrays: Mapping[str, np.ndarray], is_packed: bool = False) -> None:
    """Write variables.index and variables.data-00000-of-00001."""
    data, entries = b"", [(b"", encode(SCHEMA, "BundleHeaderProto", {"num_shards": 1}))]
    for key, array in sorted(arrays.items()):
        entry = {
            "dtype": TYPES[array.dtype.str[1:]],
            "shape": shape(array.shape),
            "offset": len(data),
            "size": array.nbytes,
        }
        entries.append((key.encode(), encode(SCHEMA, "BundleEntryProto", entry)))
        data += array.tobytes()
    table = b""
    handles = []
    for pairs in (entries[:2], entries[2:]):
        raw = block(pairs)
        stored = packed(raw) if is_packed else raw
        handles.append((pairs[-1][0] if pairs else b"~", varint(len(table)) + varint(len(stored))))
        table += stored + bytes([is_packed]) + b"\0\0\0\0"
    index = block(handles)
    footer = varint(0) + varint(0) + varint(len(table)) + varint(len(index))
    table += index + b"\0\0\0\0\0" + footer.ljust(40, b"\0")
    table += struct.pack("<Q", 0xDB4775248B80FB57)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "variables.index").write_bytes(table)
    (folder / "variables.data-00000-of-00001").write_bytes(data)


def write_saved(
    folder: Path,
    stated: dict[str, Any],
    signatures: Mapping[str, Any],
    arrays: Mapping[str, np.ndarray],
    restore: str = "",
    is_packed: bool = False,
) -> Path:
    """Write a SavedModel."""
    meta = {
        "meta_info_def": {"tags": ["serve"], "tensorflow_version": "2.21.0"},
        "graph_def": stated,
        "saver_def": {"restore_op_name": restore},
        "signature_def": signatures,
    }
    model = {"saved_model_schema_version": 1, "meta_graphs": [meta]}
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "saved_model.pb").write_bytes(encode(SCHEMA, "SavedModel", model))
    write_bundle(folder / "variables", arrays, is_packed)
    return folder


def dense(folder: Path, w: np.ndarray, b: np.ndarray, is_packed: bool = False) -> Path:
    """A model that computes x @ w + b in a function, with two variables that another restores."""
    step = function(
        "step", {"a": FLOAT, "w": RESOURCE, "b": RESOURCE}, {"out": "sum:z:0"},
        node("read_w", "ReadVariableOp", "w", dtype=Type(FLOAT)),
        node("read_b", "ReadVariableOp", "b", dtype=Type(FLOAT)),
        node("product", "MatMul", "a", "read_w:value:0"),
        node("sum", "AddV2", "product:product:0", "read_b:value:0"),
    )  # fmt: skip
    restore = function(
        "restore", {"path": 7, "first": RESOURCE, "second": RESOURCE}, {},
        const("keys", ["layer/0/bias", "layer/0/kernel"]),
        node("stored", "RestoreV2", "path", "keys:output:0"),
        node("set_b", "AssignVariableOp", "first", "stored:tensors:0"),
        node("passed", "Identity", "stored:tensors:1"),
        node("set_w", "AssignVariableOp", "second", "passed:output:0"),
    )  # fmt: skip
    stated = graph(
        placeholder("in_x", -1, 3), placeholder("path"),
        node("kernel", "VarHandleOp", shared_name="dense/kernel", dtype=Type(FLOAT)),
        node("bias", "VarHandleOp", shared_name="dense/bias", dtype=Type(FLOAT)),
        node("call", "StatefulPartitionedCall", "in_x", "kernel", "bias", f=Called("step")),
        node("twice", "Mul", "call", "two"), const("two", np.float32(2)),
        node("restored", "StatefulPartitionedCall", "path", "bias", "kernel", f=Called("restore")),
        functions=(step, restore),
    )  # fmt: skip
    inputs = {"x": info("in_x:0", -1, 3)}
    signatures = {
        "serving_default": {"inputs": inputs, "outputs": {"y": info("call:0", -1, 2)}},
        "twice": {"inputs": inputs, "outputs": {"z": info("twice:0", -1, 2)}},
        "__saved_model_init_op": {"outputs": {"op": info("noop")}},
    }  # fmt: skip
    arrays = {"layer/0/kernel": w, "layer/0/bias": b, "unused": np.zeros(40, np.float32)}
    return write_saved(folder, stated, signatures, arrays, "restored", is_packed)
