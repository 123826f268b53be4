"""TVM's files of parameters, and the section of constants in Relay's text: both hold NDArrays."""

from __future__ import annotations

import base64
import binascii
import json
import math
import struct
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from tilesmith.frontend.common.limits import checked_shape
from tilesmith.ir.dtypes import DType, bool_, by_name
from tilesmith.support.cursor import Cursor
from tilesmith.support.errors import DAMAGED, ModelError

PARAMETERS, _ARRAY = 0xF7E58D4F05049CB7, 0xDD5E40F096B4A13F
"""The numbers at the beginning of a file of parameters, and of an array."""

_KINDS = ("i", "u", "f", "", "bf")
"""The letters that begin names of element types, by DLPack's type code."""

_HEADER = "QQiiiBBH"
_MOST_AXES = 32


def _array(file: Cursor) -> np.ndarray:
    magic, _, _, _, rank, code, bits, lanes = file.numbers(_HEADER, "an array's header")
    if magic != _ARRAY or not 0 <= rank <= _MOST_AXES:
        file.bad("an NDArray", "another header")
    kind = _KINDS[code] if code < len(_KINDS) else ""
    dtype = bool_ if (code, bits) in ((1, 1), (6, 8)) else by_name(f"{kind}{bits}")
    if dtype is None or lanes != 1 or (dtype.bits < 8 and dtype is not bool_):
        raise ModelError(
            f"{file.file}: element type {code} of {bits} bits and {lanes} lanes is not supported"
        )
    shape = checked_shape(file.numbers(f"{rank}q", "a shape"), f"an array of {file.file}")
    size, wanted = file.number("q", "an array's size"), math.prod(shape) * dtype.numpy.itemsize
    if size != wanted:
        file.bad(f"{wanted} bytes of an array", size)
    return file.array(dtype.numpy, shape, "an array")


def read_parameters(content: bytes | memoryview) -> dict[str, np.ndarray]:
    """The arrays of a file of parameters, by name.  Raises ModelError if it is damaged."""
    file = Cursor(content, "the file of parameters")
    magic, _, count = file.numbers("QQQ", "a header")
    if magic != PARAMETERS:
        file.bad(f"{PARAMETERS:#x}", f"{magic:#x}")
    texts = [bytes(file.bytes(file.number("Q", "a name's size"), "a name")) for _ in range(count)]
    arrays = file.number("Q", "the number of arrays")
    if arrays != count:
        raise ModelError(f"the file of parameters: found {count} names, but {arrays} arrays")
    return {text.decode(errors="replace"): _array(file) for text in texts}


def read_constants(text: str) -> list[np.ndarray]:
    """The constants of a text's section of constants; `meta[relay.Constant][i]` is array number i.

    Raises ModelError if the section is damaged.
    """
    try:
        return _constants(json.loads(text))
    except DAMAGED as e:
        raise ModelError(f"the section of constants: {type(e).__name__}: {e}") from None


def _constants(section: Any) -> list[np.ndarray]:
    nodes, stored = section["nodes"], section["b64ndarrays"]
    table = nodes[int(section["root"])]
    for kind, place in zip(table.get("keys", ()), table.get("data", ()), strict=True):
        if kind == "relay.Constant":
            numbers = [int(nodes[int(i)]["attrs"]["data"]) for i in nodes[int(place)]["data"]]
            return [_decoded(stored[i]) for i in numbers]
    return []


def _decoded(text: str) -> np.ndarray:
    try:
        return _array(Cursor(base64.b64decode(text, validate=True), "a constant"))
    except binascii.Error as e:
        raise ModelError(f"a constant: {e}") from None


def _code(dtype: DType) -> tuple[int, int]:
    if dtype is bool_:
        return 1, 1
    letters = dtype.name.rstrip("0123456789")
    if letters not in _KINDS or dtype.bits < 8:
        raise ModelError(f"Relay has no constants of type {dtype}")
    return _KINDS.index(letters), dtype.bits


def _encoded(array: np.ndarray, dtype: DType) -> bytes:
    head = struct.pack(f"<{_HEADER}", _ARRAY, 0, 1, 0, array.ndim, *_code(dtype), 1)
    content = np.ascontiguousarray(array).tobytes()
    return head + struct.pack(f"<{array.ndim + 1}q", *array.shape, len(content)) + content


def written_parameters(arrays: Mapping[str, tuple[np.ndarray, DType]]) -> bytes:
    """A file of parameters with these arrays."""
    names = b"".join(struct.pack("<Q", len(n.encode())) + n.encode() for n in arrays)
    contents = b"".join(_encoded(a, d) for a, d in arrays.values())
    count = struct.pack("<Q", len(arrays))
    return struct.pack("<QQ", PARAMETERS, 0) + count + names + count + contents


def written_constants(arrays: Sequence[tuple[np.ndarray, DType]]) -> str:
    """The section with these constants."""
    count = len(arrays)
    constants = [
        {
            "type_key": "relay.Constant",
            "attrs": {"_checked_type_": "0", "data": str(i), "span": "0"},
        }
        for i in range(count)
    ]
    nodes = [
        {"type_key": ""},
        {"type_key": "Map", "keys": ["relay.Constant"], "data": [2]},
        {"type_key": "Array", "data": [*range(3, 3 + count)]},
        *constants,
    ]
    stored = [base64.b64encode(_encoded(a, d)).decode() for a, d in arrays]
    section = {"root": 1, "nodes": nodes, "b64ndarrays": stored, "attrs": {"tvm_version": "0.9.0"}}
    return json.dumps(section, indent=2)
