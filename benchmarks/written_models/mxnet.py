"""Writes small MXNet models for tests: symbols and files of arrays."""

from __future__ import annotations

import json
import struct

V1, V2, V3 = 0xF993FAC8, 0xF993FAC9, 0xF993FACA


TYPES = {"float32": 0, "float64": 1, "float16": 2, "uint8": 3, "int32": 4, "int8": 5, "int64": 6}


def shape(dims, code="q"):
    return struct.pack(f"<I{len(dims)}{code}", len(dims), *dims)


def dense(array, magic=V2):
    """An array as MXNet stores it; `magic` 0 is the oldest version."""
    device, kind = struct.pack("<ii", 1, 0), struct.pack("<i", TYPES[array.dtype.name])
    rest = device + kind + array.tobytes()
    if not magic:
        return shape(array.shape, "I") + rest
    stype = struct.pack("<i", 0) if magic in (V2, V3) else b""
    return struct.pack("<I", magic) + stype + shape(array.shape) + rest


def sparse(stype, dims, stored, *places):
    head = struct.pack("<Ii", V2, stype) + shape(stored.shape) + shape(dims)
    head += struct.pack("<iii", 1, 0, TYPES[stored.dtype.name])
    for p in places:
        head += struct.pack("<i", TYPES[p.dtype.name]) + shape(p.shape)
    return head + stored.tobytes() + b"".join(p.tobytes() for p in places)


def array_file(arrays):
    names = b"".join(struct.pack("<Q", len(n)) + n.encode() for n in arrays)
    count = struct.pack("<Q", len(arrays))
    return struct.pack("<QQ", 0x112, 0) + count + b"".join(arrays.values()) + count + names


def node(op, name, inputs=(), key="attrs", **attributes):
    made = {"op": op, "name": name, "inputs": [[i, 0, 0] for i in inputs]}
    return made | ({key: {k: str(v) for k, v in attributes.items()}} if attributes else {})


def symbol(nodes, heads, **others):
    others = others or {"attrs": {"mxnet_version": ["int", 10901]}}
    arguments = [i for i, n in enumerate(nodes) if n["op"] == "null"]
    head = [[h, 0, 0] if isinstance(h, int) else h for h in heads]
    return json.dumps({"nodes": nodes, "arg_nodes": arguments, "heads": head, **others})


def network(folder, nodes, heads, arrays=None, **others):
    """The path of a model in a folder."""
    path = folder / "net-symbol.json"
    path.write_text(symbol(nodes, heads, **others))
    stored = {f"arg:{k}": dense(v) for k, v in (arrays or {}).items()}
    (folder / "net-0003.params").write_bytes(array_file(stored))
    return path
