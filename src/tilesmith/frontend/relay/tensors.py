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
from tilesmith.support.errors import ModelError

PARAMETERS, _ARRAY = 0xF7E58D4F05049CB7, 0xDD5E40F096B4A13F
"""The numbers at the beginning of a file of parameters, and of an array."""

_KINDS = ("i", "u", "f", "", "bf")
"""The letters that begin names of element types, by DLPack's type code."""

_HEADER = struct.Struct("<QQiiiBBH")
_MOST_AXES = 32


class _Bytes:
    """Reads bytes from front to back.  Raises ModelError if they end too early."""

    def __init__(self, content: bytes | memoryview, what: str) -> None:
        self._content, self._at, self._what = memoryview(content), 0, what

    def take(self, count: int) -> memoryview:
        taken = self._content[self._at : self._at + count]
        if len(taken) < count:
            raise ModelError(
                f"{self._what}: expected {count} bytes at {self._at}, found {len(taken)}"
            )
        self._at += count
        return taken

    def numbers(self, layout: struct.Struct | str) -> tuple[Any, ...]:
        layout = struct.Struct(layout) if isinstance(layout, str) else layout
        return layout.unpack(self.take(layout.size))

    def array(self) -> np.ndarray:
        magic, _, _, _, rank, code, bits, lanes = self.numbers(_HEADER)
        if magic != _ARRAY or not 0 <= rank <= _MOST_AXES:
            raise ModelError(f"{self._what}: expected an NDArray before byte {self._at}")
        kind = _KINDS[code] if code < len(_KINDS) else ""
        dtype = bool_ if (code, bits) in ((1, 1), (6, 8)) else by_name(f"{kind}{bits}")
        if dtype is None or lanes != 1 or (dtype.bits < 8 and dtype is not bool_):
            raise ModelError(
                f"{self._what}: element type {code} of {bits} bits and {lanes} lanes is not "
                "supported"
            )
        shape = checked_shape(self.numbers(f"<{rank}q"), f"an array of {self._what}")
        (size,) = self.numbers("<q")
        item = np.dtype(dtype.numpy).itemsize
        if size != math.prod(shape) * item:
            raise ModelError(
                f"{self._what}: expected {math.prod(shape) * item} bytes, found {size}"
            )
        return np.frombuffer(self.take(size), dtype.numpy).reshape(shape)


def read_parameters(content: bytes | memoryview) -> dict[str, np.ndarray]:
    """The arrays of a file of parameters, by name.  Raises ModelError if it is damaged."""
    file = _Bytes(content, "the file of parameters")
    magic, _, count = file.numbers("<QQQ")
    if magic != PARAMETERS:
        raise ModelError(
            f"the file of parameters: expected {PARAMETERS:#x} first, found {magic:#x}"
        )
    names = [bytes(file.take(*file.numbers("<Q"))).decode(errors="replace") for _ in range(count)]
    (arrays,) = file.numbers("<Q")
    if arrays != count:
        raise ModelError(f"the file of parameters: found {count} names, but {arrays} arrays")
    return {name: file.array() for name in names}


def read_constants(text: str) -> list[np.ndarray]:
    """The constants of a text's section of constants; `meta[relay.Constant][i]` is array number i.

    Raises ModelError if the section is damaged.
    """
    try:
        return _constants(json.loads(text))
    except (AttributeError, IndexError, KeyError, TypeError, ValueError) as e:
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
        return _Bytes(base64.b64decode(text, validate=True), "a constant").array()
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
    head = _HEADER.pack(_ARRAY, 0, 1, 0, array.ndim, *_code(dtype), 1)
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
