"""Writes small Paddle models for tests: programs of both forms, and files of parameters."""

from __future__ import annotations

import json
import struct

from tilesmith.frontend.paddle.schema import SCHEMA

from .protobuf import encode

KINDS = {"float32": "FP32", "int64": "INT64", "float16": "FP16", "int32": "INT32"}


FIELDS = {int: ("LONG", "l"), float: ("FLOAT", "f"), str: ("STRING", "s"), bool: ("BOOLEAN", "b")}


def tensor(dtype, dims):
    return {"data_type": KINDS[dtype], "dims": list(dims)}


def parameter_file(arrays):
    parts = []
    for name in sorted(arrays):
        a = arrays[name]
        described = encode(SCHEMA, "TensorDesc", tensor(a.dtype.name, a.shape))
        parts.append(struct.pack("<IQII", 0, 0, 0, len(described)) + described + a.tobytes())
    return b"".join(parts)


def variable(name, dtype, dims, stored=False):
    type_ = {"type": "LOD_TENSOR", "lod_tensor": {"tensor": tensor(dtype, dims)}}
    return {"name": name, "type": type_, "persistable": stored}


def attribute(name, value):
    if name == "sub_block":
        return {"name": name, "type": "BLOCK", "block_idx": value}
    if isinstance(value, (list, tuple)):
        is_text = len(value) and isinstance(value[0], float)
        kind, field = ("FLOATS", "floats") if is_text else ("LONGS", "longs")
        return {"name": name, "type": kind, field: list(value)}
    kind, field = FIELDS[type(value)]
    return {"name": name, "type": kind, field: value}


def operator(type_, inputs, outputs, **attributes):
    def slots(given):
        return [{"parameter": k, "arguments": v.split()} for k, v in given.items()]

    attrs = [attribute(k, v) for k, v in attributes.items()]
    return {"type": type_, "inputs": slots(inputs), "outputs": slots(outputs), "attrs": attrs}


def program(folder, operators, inputs, results, weights=None, blocks=()):
    """The path of a model: `inputs` has (element type, dims) by name, and `blocks` the operators of
    the blocks 1, 2 and so on.
    """
    weights = weights or {}
    given = [variable(k, *v) for k, v in inputs.items()]
    stored = [variable(k, v.dtype.name, v.shape, True) for k, v in weights.items()]
    feeds = [operator("feed", {"X": "feed"}, {"Out": k}) for k in inputs]
    fetches = [operator("fetch", {"X": k}, {"Out": "fetch"}) for k in results]
    block = {"idx": 0, "parent_idx": -1, "vars": [*given, *stored]}
    block["ops"] = [*feeds, *operators, *fetches]
    path = folder / "net.pdmodel"
    inner = [{"idx": i, "parent_idx": 0, "vars": [], "ops": o} for i, o in enumerate(blocks, 1)]
    whole = {"blocks": [block, *inner], "version": {"version": 2_006_000}}
    path.write_bytes(encode(SCHEMA, "ProgramDesc", whole))
    if weights:
        (folder / "net.pdiparams").write_bytes(parameter_file(weights))
    return path


def typed(number, kind="f32", dims=()):
    held = [{"#": f"0.t_{kind}"}, list(dims), "NCHW", [], 0]
    return {"%": number, "TT": {"#": "0.t_dtensor", "D": held}}


def named(name, kind, value):
    return {"N": name, "AT": {"#": kind, "D": value}}


def pir(folder, ops, weights):
    body = {"#": "program", "regions": [{"#": "r", "blocks": [{"#": "b", "args": [], "ops": ops}]}]}
    path = folder / "net.json"
    base = {"magic": "pir", "trainable": False, "version": 4}
    path.write_text(json.dumps({"base_code": base, "program": body}))
    if weights:
        (folder / "net.pdiparams").write_bytes(parameter_file(weights))
    return path


def op(kind, inputs, outputs, *attributes, blocks=()):
    """An operator.  `blocks` has the arguments and the operators of each block inside of it."""
    regions = [
        {"#": "r", "blocks": [{"#": "b", "args": [{"#": a} for a in arguments], "ops": ops}]}
        for arguments, ops in blocks
    ]
    inside = {"regions": regions} if regions else {}
    of = [{"%": i} for i in inputs]
    return {"#": kind, "A": list(attributes), "I": of, "O": outputs, **inside}
