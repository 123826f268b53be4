"""Element types shared by every level.

A `DType` is a small interned value: compare with `is` or `==`.  Its text form is its `name` (`f32`,
`i64`, `bool`).  NumPy has no bfloat16 of its own; `ml_dtypes` supplies it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import ml_dtypes
import numpy as np

Kind = Literal["bool", "int", "uint", "float"]


@dataclass(frozen=True, slots=True, eq=False)
class DType:
    """A scalar element type.  The only ones are those below, so they are compared and hashed by
    identity.

    name: its text form.
    kind: bool, signed or unsigned integer, or float.
    bits: width; a bool is stored in one byte.
    """

    name: str
    kind: Kind
    bits: int

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
    def numpy(self) -> np.dtype:
        return _TO_NUMPY[self.name]

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

    def __str__(self) -> str:
        return self.name

    def __repr__(self) -> str:
        return self.name


bool_ = DType("bool", "bool", 1)
i8, i16, i32, i64 = (DType(f"i{b}", "int", b) for b in (8, 16, 32, 64))
u8, u16, u32, u64 = (DType(f"u{b}", "uint", b) for b in (8, 16, 32, 64))
f16, f32, f64 = (DType(f"f{b}", "float", b) for b in (16, 32, 64))
bf16 = DType("bf16", "float", 16)

ALL: tuple[DType, ...] = (bool_, i8, i16, i32, i64, u8, u16, u32, u64, f16, bf16, f32, f64)
BY_NAME: dict[str, DType] = {d.name: d for d in ALL}

_TO_NUMPY: dict[str, np.dtype] = {
    "bool": np.dtype(np.bool_),
    "bf16": np.dtype(ml_dtypes.bfloat16),
    **{f"i{b}": np.dtype(f"int{b}") for b in (8, 16, 32, 64)},
    **{f"u{b}": np.dtype(f"uint{b}") for b in (8, 16, 32, 64)},
    **{f"f{b}": np.dtype(f"float{b}") for b in (16, 32, 64)},
}
_FROM_NUMPY: dict[np.dtype, DType] = {v: BY_NAME[k] for k, v in _TO_NUMPY.items()}


def dtype(spec: DType | str | np.dtype | type) -> DType:
    """The `DType` for a name (`"f32"`, `"float32"`), NumPy dtype or scalar type.

    Raises TypeError if there is none.
    """
    if isinstance(spec, DType):
        return spec
    if isinstance(spec, str) and spec in BY_NAME:
        return BY_NAME[spec]
    try:
        return _FROM_NUMPY[np.dtype(spec)]
    except (KeyError, TypeError):
        raise TypeError(f"no element type for {spec!r}; known: {', '.join(BY_NAME)}") from None
