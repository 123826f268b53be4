"""Element types shared by every level.

A `DType` is a small interned value: compare with `is` or `==`.  Its text form is its `name` (`f32`,
`i64`, `bool`).  NumPy lacks bfloat16, 8-bit floats and types of fewer than 8 bits; `ml_dtypes`
supplies them.

Types of 8-bit floats and of fewer than 8 bits are storage types: values are moved and converted,
and arithmetic is done on the converted values.  Each element takes one byte, the code in its low
bits and zeros above, as in NumPy.  (Integers of fewer than 8 bits are named
`int4` to `uint2`, so that loop variables can have the names `i2` and `i4`.)
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Literal

import ml_dtypes
import numpy as np

from tilesmith.support.arguments import shown, stand_ins
from tilesmith.support.errors import ExpressionError

Kind = Literal["bool", "int", "uint", "float", "host"]
Form = Literal["tensor", "seq", "optional", "map"]


@dataclass(frozen=True, slots=True, eq=False)
class DType:
    """A scalar element type.  The only instances are those below and the results of `host_type`, so
    they are compared and hashed by identity.

    name: its text form.
    kind: bool, signed or unsigned integer, float, or an object of the host.
    bits: width; a bool, or a type of fewer bits than 8, is stored in one byte.
    is_storage: whether only moves and conversions are defined on it, no arithmetic.
    form: for a host type, the kind of object: a tensor of unknown rank, a list, an optional value
        or a dict; None for strings and for unknown objects.
    of: element types of such an object; for a dict, the types of keys and values.
    """

    name: str
    kind: Kind
    bits: int
    is_storage: bool = False
    form: Form | None = None
    of: tuple[DType, ...] = ()

    @property
    def bytes(self) -> int:
        """Size of one element in memory, in bytes."""
        return max(self.bits // 8, 1)

    @property
    def is_float(self) -> bool:
        return self.kind == "float"

    @property
    def is_int(self) -> bool:
        """True for signed and unsigned integers, not for bool."""
        return self.kind in ("int", "uint")

    @property
    def is_bool(self) -> bool:
        return self.kind == "bool"

    @property
    def is_host(self) -> bool:
        """True for objects that only host functions read."""
        return self.kind == "host"

    @property
    def numpy(self) -> np.dtype:
        return _OBJECT if self.is_host else _TO_NUMPY[self.name]

    @property
    def dtype(self) -> np.dtype:
        """The NumPy type.  NumPy accepts an object with this attribute as a type, so
        `x.astype(f32)` works.
        """
        return self.numpy

    @property
    def min(self) -> int | float:
        """Smallest value; minus infinity for floats."""
        if self.is_float:
            return float("-inf")
        return -(1 << (self.bits - 1)) if self.kind == "int" else 0

    @property
    def max(self) -> int | float:
        """Largest value; infinity for floats."""
        if self.is_float:
            return float("inf")
        if self.is_bool:
            return 1
        return (1 << (self.bits - 1)) - 1 if self.kind == "int" else (1 << self.bits) - 1

    @property
    def largest(self) -> float:
        """The largest finite value of a float type."""
        return float(ml_dtypes.finfo(self.numpy).max)

    def __str__(self) -> str:
        return self.name

    def __repr__(self) -> str:
        return self.name


bool_ = DType("bool", "bool", 1)
i8, i16, i32, i64 = (DType(f"i{b}", "int", b) for b in (8, 16, 32, 64))
u8, u16, u32, u64 = (DType(f"u{b}", "uint", b) for b in (8, 16, 32, 64))
f16, f32, f64 = (DType(f"f{b}", "float", b) for b in (16, 32, 64))
bf16 = DType("bf16", "float", 16)

_FOREIGN: dict[str, type] = {
    "f8e4m3fn": ml_dtypes.float8_e4m3fn,
    "f8e4m3fnuz": ml_dtypes.float8_e4m3fnuz,
    "f8e5m2": ml_dtypes.float8_e5m2,
    "f8e5m2fnuz": ml_dtypes.float8_e5m2fnuz,
    "f8e8m0": ml_dtypes.float8_e8m0fnu,
    "f6e2m3": ml_dtypes.float6_e2m3fn,
    "f6e3m2": ml_dtypes.float6_e3m2fn,
    "f4e2m1": ml_dtypes.float4_e2m1fn,
    "int4": ml_dtypes.int4,
    "uint4": ml_dtypes.uint4,
    "int2": ml_dtypes.int2,
    "uint2": ml_dtypes.uint2,
}
"""The scalar classes by which NumPy arrays hold the storage types."""

f8e4m3fn, f8e4m3fnuz, f8e5m2, f8e5m2fnuz, f8e8m0, f6e2m3, f6e3m2, f4e2m1 = (
    DType(name, "float", int(name[1]), True) for name in _FOREIGN if name.startswith("f")
)
int4, int2 = (DType(f"int{b}", "int", b, True) for b in (4, 2))
uint4, uint2 = (DType(f"uint{b}", "uint", b, True) for b in (4, 2))

ARITHMETIC: tuple[DType, ...] = (bool_, i8, i16, i32, i64, u8, u16, u32, u64, f16, bf16, f32, f64)
STORAGE: tuple[DType, ...] = (
    f8e4m3fn, f8e4m3fnuz, f8e5m2, f8e5m2fnuz, f8e8m0, f6e2m3, f6e3m2, f4e2m1,
    int4, uint4, int2, uint2,
)  # fmt: skip
string, unknown = DType("string", "host", 64), DType("unknown", "host", 64)
"""Strings, and objects of an unknown type."""

ALL: tuple[DType, ...] = ARITHMETIC + STORAGE
BY_NAME: dict[str, DType] = {d.name: d for d in (*ALL, string, unknown)}
_LONGEST = 256
"""Upper bound on the length of a type's name.  It also limits the nesting of types."""
_OBJECT = np.dtype(object)

_TO_NUMPY: dict[str, np.dtype] = {
    "bool": np.dtype(np.bool_),
    "bf16": np.dtype(ml_dtypes.bfloat16),
    **{name: np.dtype(type_) for name, type_ in _FOREIGN.items()},
    **{f"i{b}": np.dtype(f"int{b}") for b in (8, 16, 32, 64)},
    **{f"u{b}": np.dtype(f"uint{b}") for b in (8, 16, 32, 64)},
    **{f"f{b}": np.dtype(f"float{b}") for b in (16, 32, 64)},
}
_FROM_NUMPY: dict[np.dtype, DType] = {v: BY_NAME[k] for k, v in _TO_NUMPY.items()}


@cache
def host_type(form: Form, *of: DType) -> DType:
    """The type of a tensor of unknown rank, of a list, of an optional value, or of a dict."""
    return DType("_".join((form, *(d.name for d in of))), "host", 64, form=form, of=of)


def by_name(name: str) -> DType | None:
    """The type with this text form, such as `f32` or `seq_f32`; None if there is none."""
    form, _, rest = name.partition("_")
    if len(name) > _LONGEST:
        return None
    if form == "map":
        key, _, rest = rest.partition("_")
        of = (by_name(key), by_name(rest))
        return host_type("map", of[0], of[1]) if of[0] is not None and of[1] is not None else None
    if form in ("tensor", "seq", "optional") and rest:
        inner = by_name(rest)
        return None if inner is None else host_type(form, inner)
    return BY_NAME.get(name)


def dtype(spec: DType | str | np.dtype | type) -> DType:
    """The `DType` for a name (`"f32"`, `"float32"`), NumPy dtype or scalar type.

    Raises ExpressionError if there is none.
    """
    if isinstance(spec, DType):
        return spec
    if isinstance(spec, str) and spec in BY_NAME:
        return BY_NAME[spec]
    try:
        if isinstance(spec, (str, np.dtype, type)):  # for other objects NumPy would read attributes
            return _FROM_NUMPY[np.dtype(spec)]
        raise TypeError
    except (KeyError, TypeError, ValueError):
        raise ExpressionError(
            f"no element type for {shown(spec)}; known: {', '.join(BY_NAME)}"
        ) from None


stand_ins(DType, "an element type", DType, str, np.dtype, type)
