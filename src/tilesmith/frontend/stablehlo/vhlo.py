"""Attributes and types of VHLO, StableHLO's portable form, in MLIR's bytecode.

Source of the numbers: StableHLO's `VhloBytecode.cpp` and `VhloEnums.td`, which never change them;
for operations' dictionaries MLIR's `BuiltinDialectBytecode.td`.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np

from tilesmith.frontend.common.limits import MAX_DEPTH
from tilesmith.support.errors import ModelError, UnsupportedError

from .bytecode import Bytecode, Entry, Stream
from .syntax import OPEN, Tensor, Type
from .types import ELEMENTS, of_bytes, tensor

_DICTIONARY, _STRING = 1, 2
"""Attributes of MLIR's own dialect."""

ENUMS: dict[int, dict[int, str]] = {
    3: dict(enumerate(("EQ", "NE", "GE", "GT", "LE", "LT"))),
    4: dict(enumerate(("NOTYPE", "FLOAT", "TOTALORDER", "SIGNED", "UNSIGNED"))),
    7: dict(enumerate(("FFT", "IFFT", "RFFT", "IRFFT"))),
    11: dict(enumerate(("DEFAULT", "HIGH", "HIGHEST"))),
    12: dict(enumerate(("DEFAULT", "THREE_FRY", "PHILOX"))),
    13: {1: "UNIFORM", 2: "NORMAL"},
    16: dict(enumerate(("TRANSPOSE_INVALID", "NO_TRANSPOSE", "TRANSPOSE", "ADJOINT"))),
}
"""The words of attributes that choose one, by the attribute's code."""

PLAIN_TYPES = {
    0: "i1", 2: "bf16", 3: "f16", 4: "f32", 5: "f64", 6: "f8E4M3FN", 7: "f8E5M2", 9: "index",
    10: "i4", 11: "i8", 12: "i16", 13: "i32", 14: "i64", 15: "ui4", 16: "ui8", 17: "ui16",
    18: "ui32", 19: "ui64", 22: "!stablehlo.token", 23: "tuple", 24: "quantized", 26: "witness",
    27: "f8E4M3FNUZ", 28: "f8E5M2FNUZ", 29: "f8E4M3B11FNUZ", 30: "quantized", 31: "i2",
    32: "ui2", 33: "none", 34: "tf32", 35: "f8E4M3", 36: "f8E3M4", 37: "f4E2M1FN",
    38: "f6E2M3FN", 39: "f6E3M2FN", 40: "f8E8M0FNU", 41: "buffer", 42: "future",
}  # fmt: skip
"""The types that are a word, by code."""

_RANKED_WITH_ENCODING = 21
_OPEN = -(1 << 63)
_MOST_MEMBERS = 1 << 16
"""Upper bound on what an attribute holds, with what its members hold.  Members are shared, so a
small file could state a list of any size.
"""


@dataclass(frozen=True, slots=True)
class Signature:
    """The type of a function.

    inputs: types of its arguments.
    results: types of its results.
    """

    inputs: tuple[Type, ...]
    results: tuple[Type, ...]


class Values:
    """The attributes and types of a file, by their numbers.  They are read at their first use."""

    def __init__(self, code: Bytecode) -> None:
        self._code = code
        self._attributes: dict[int, Any] = {}
        self._sizes: dict[int, int] = {}
        self._types: dict[int, Any] = {}
        self._depth = 0

    def attribute(self, stream: Stream) -> Any:
        """The attribute whose number is next, as `syntax` describes attributes."""
        return self._attribute(stream.index(len(self._code.attributes), "an attribute's number"))

    def properties(self, stream: Stream, names: tuple[str, ...]) -> dict[str, Any]:
        """The attributes of an operation, by their names, whose number is next."""
        held = self._code.properties(stream)
        return {name: self.attribute(held) for name in names}

    def type(self, stream: Stream) -> Type:
        """The type of a value, whose number is next."""
        return self.type_of(stream, stream.varint("a type's number"))

    def type_of(self, stream: Stream, number: int) -> Type:
        """The type of a value, by its number."""
        end = len(self._code.types)
        made = self._type(stream.bounded(number, end, f"a type's number less than {end}"))
        if isinstance(made, Signature):
            stream.bad("the type of a value", "the type of a function")
        return made

    def _attribute(self, number: int) -> Any:
        if number not in self._attributes:
            self._sizes[number] = 1
            with self._nested():
                made = self._read_attribute(self._code.attributes[number], number)
            self._attributes[number] = made
        return self._attributes[number]

    def _type(self, number: int) -> Type | Signature:
        if number not in self._types:
            with self._nested():
                self._types[number] = self._read_type(self._code.types[number])
        return self._types[number]

    @contextmanager
    def _nested(self) -> Iterator[None]:
        if self._depth >= MAX_DEPTH:
            raise ModelError(
                f"the bytecode: attributes and types are nested more than {MAX_DEPTH} deep"
            )
        self._depth += 1
        try:
            yield
        finally:
            self._depth -= 1

    # Attributes

    def _read_attribute(self, entry: Entry, number: int) -> Any:
        if entry.is_text:
            return self._code.text(entry)
        stream = self._code.entry(entry)
        code = stream.varint("an attribute's code")
        if entry.dialect == "builtin" and code == _DICTIONARY:
            return self._dictionary(stream, number)
        if entry.dialect == "builtin" and code == _STRING:
            return self._code.string(stream)
        if entry.dialect != "vhlo":
            return f"attribute {code} of the dialect {entry.dialect}"  # of the module, not read
        if code in ENUMS:
            choice = stream.varint("a choice")
            if choice not in ENUMS[code]:
                stream.bad(f"one of {', '.join(ENUMS[code].values())}", f"choice {choice}")
            return ENUMS[code][choice]
        match code:
            case 1:
                return [self._member(stream, number) for _ in range(stream.count("members"))]
            case 2:
                return bool(stream.index(2, "a bool"))
            case 6:
                return self._dictionary(stream, number)
            case 8:
                return self._number(stream, is_float=True)
            case 9:
                return self._number(stream, is_float=False)
            case 14:
                return self._code.string(stream)
            case 15:
                return self._array(stream)
            case 17:
                return self._type(stream.index(len(self._code.types), "a type's number"))
        return f"attribute {code}"  # of meshes, accuracies and the like, which we do not read

    def _member(self, stream: Stream, owner: int) -> Any:
        number = stream.index(len(self._code.attributes), "an attribute's number")
        made = self._attribute(number)
        self._sizes[owner] += self._sizes[number]
        if self._sizes[owner] > _MOST_MEMBERS:
            stream.bad(f"an attribute of at most {_MOST_MEMBERS} members", "more")
        return made

    def _dictionary(self, stream: Stream, owner: int) -> dict[str, Any]:
        made: dict[str, Any] = {}
        for _ in range(stream.count("members")):
            name = self._member(stream, owner)
            if not isinstance(name, str):
                stream.bad("an attribute's name", type(name).__name__)
            made[name] = self._member(stream, owner)
        return made

    def _number(self, stream: Stream, is_float: bool) -> int | float:
        """A number of the type that comes first: a byte, or a signed number of its bits."""
        name = str(self.type(stream))
        dtype = ELEMENTS.get("i64" if name == "index" else name)
        if dtype is None or dtype.is_float is not is_float or dtype.is_bool:
            stream.bad("the type of a float" if is_float else "the type of an integer", name)
        small = dtype.bits <= 8
        bits = stream.bytes(1, "a number")[0] if small else stream.signed("a number")
        size = dtype.numpy.itemsize
        stored = (bits & (1 << 8 * size) - 1).to_bytes(size, "little")
        return np.frombuffer(stored, dtype.numpy)[0].item()

    def _array(self, stream: Stream) -> np.ndarray:
        type_ = self.type(stream)
        if not isinstance(type_, Tensor) or type_.dims is None or OPEN in type_.dims:
            stream.bad("a constant of a known shape", type_)
        content = stream.bytes(stream.varint("an array's size"), "an array")
        count = int(np.prod(type_.dims, dtype=object))
        is_same = bytes(content) in (b"\0", b"\xff")
        if type_.dtype.is_bool and 1 < count <= 8 and len(content) == 1 and not is_same:
            # a bit for each element
            bits = np.unpackbits(np.frombuffer(content, np.uint8), count=count, bitorder="little")
            content = memoryview(bits.tobytes())
        try:
            return np.broadcast_to(of_bytes(content, type_), type_.dims)
        except ValueError as e:
            raise ModelError(f"the bytecode: {e}, before offset {stream.at}") from None

    # Types

    def _read_type(self, entry: Entry) -> Type | Signature:
        if entry.is_text:
            return self._code.text(entry)
        stream = self._code.entry(entry)
        code = stream.varint("a type's code")
        if entry.dialect != "vhlo":
            raise UnsupportedError(f"type {code} of the dialect {entry.dialect!r} in bytecode")
        match code:
            case 1:
                return f"complex<{self.type(stream)}>"
            case 8:
                return Signature(self._all(stream), self._all(stream))
            case 20 | 21:
                if code == _RANKED_WITH_ENCODING:
                    stream.varint("an encoding")
                dims = [stream.signed("an extent") for _ in range(stream.count("extents"))]
                extents = tuple(OPEN if d == _OPEN else d for d in dims)
                if any(d < 0 and d != _OPEN for d in dims):
                    stream.bad("extents >= 0", dims)
                return tensor(str(self.type(stream)), extents, f"byte {entry.start}")
            case 25:
                return tensor(str(self.type(stream)), None, f"byte {entry.start}")
        if code not in PLAIN_TYPES:
            stream.bad("a known type", f"type {code}")
        return PLAIN_TYPES[code]

    def _all(self, stream: Stream) -> tuple[Type, ...]:
        return tuple(self.type(stream) for _ in range(stream.count("types")))
