"""Halide's element types."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from tilesmith.ir.dtypes import DType
from tilesmith.ir.dtypes import dtype as to_dtype
from tilesmith.ir.expr import Const, const
from tilesmith.support.errors import UsageError


@dataclass(frozen=True)
class Type:
    """An element type.

    dtype: Tilesmith's element type.
    """

    dtype: DType

    def bits(self) -> int:
        return self.dtype.bits

    def bytes(self) -> int:
        return self.dtype.bytes

    def is_float(self) -> bool:
        return self.dtype.is_float

    def is_int(self) -> bool:
        return self.dtype.kind == "int"

    def is_uint(self) -> bool:
        return self.dtype.kind in ("uint", "bool")

    def max(self) -> Const:
        """The largest finite value."""
        d = self.dtype
        return const(d.largest if d.is_float else d.max, d)

    def min(self) -> Const:
        """The smallest finite value."""
        d = self.dtype
        return const(-d.largest if d.is_float else d.min, d)

    def __repr__(self) -> str:
        return f"<{self.dtype}>"


def _of_width(kind: str, bits: int, lanes: int, known: tuple[int, ...]) -> Type:
    if lanes != 1:
        raise UsageError(f"a type of {lanes} lanes: expected 1; vectorize a loop of the Func")
    if bits not in known:
        raise UsageError(f"expected {', '.join(map(str, known))} bits, found {bits}")
    return Type(to_dtype("bool" if bits == 1 else f"{kind}{bits}"))


def Int(bits: int, lanes: int = 1) -> Type:
    """A signed integer of 8, 16, 32 or 64 bits."""
    return _of_width("i", bits, lanes, (8, 16, 32, 64))


def UInt(bits: int, lanes: int = 1) -> Type:
    """An unsigned integer of 8, 16, 32 or 64 bits, or a bool (1)."""
    return _of_width("u", bits, lanes, (1, 8, 16, 32, 64))


def Float(bits: int, lanes: int = 1) -> Type:
    """A float of 16, 32 or 64 bits."""
    return _of_width("f", bits, lanes, (16, 32, 64))


def Bool(lanes: int = 1) -> Type:
    return UInt(1, lanes)


def as_type(value: Any) -> Type:
    """A `Type`, or what NumPy takes for an element type.  Raises UsageError for other objects."""
    if isinstance(value, Type):
        return value
    try:
        return Type(to_dtype(np.dtype(value)))
    except TypeError:
        raise UsageError(f"expected a type such as UInt(8), found {value!r}") from None


def promoted(a: DType, b: DType) -> DType:
    """The type of an operation on values of types `a` and `b`, by Halide's rules: floats before
    integers, signed before unsigned, the wider of both widths.
    """
    if a is b:
        return a
    if a.is_float or b.is_float:
        floats = [d for d in (a, b) if d.is_float]
        return max(floats, key=lambda d: d.bits)
    bits = max(a.bits, b.bits)
    return to_dtype(f"{'i' if 'int' in (a.kind, b.kind) else 'u'}{bits}")
