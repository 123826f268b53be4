"""Types and literals in LLVM's textual IR.

An element has two types: in memory and as a value.  Bools are `i8` in memory and `i1` as values.
`f16` and `bf16` are `i16` in memory and `float` as values, since the semantics of `ir.expr` allow
rounding after every operation.  The `float` is always a number that the narrow type can represent
exactly.  Elements of storage types are their codes, as `i8`, both in memory and as values.
"""

from __future__ import annotations

import struct
from functools import lru_cache

from tilesmith.ir.dtypes import STORAGE, DType
from tilesmith.ir.storage import code_of

_CODES = dict.fromkeys((d.name for d in STORAGE), "i8")
_VALUE = _CODES | {"bool": "i1", "f16": "float", "bf16": "float", "f32": "float", "f64": "double"}
_MEMORY = _CODES | {"bool": "i8", "f16": "i16", "bf16": "i16", "f32": "float", "f64": "double"}

NONTEMPORAL = "!nontemporal !0"
"""Metadata that marks a streaming store.  `NONTEMPORAL_NODE` defines `!0`."""

NONTEMPORAL_NODE = "!0 = !{i32 1}"


def vector(element: str, lanes: int) -> str:
    """The LLVM type of a vector; for one lane, `element` itself."""
    return element if lanes == 1 else f"<{lanes} x {element}>"


@lru_cache(maxsize=1024)
def value_type(dtype: DType, lanes: int = 1) -> str:
    """The type of values of `dtype`."""
    return vector(_VALUE.get(dtype.name) or f"i{dtype.bits}", lanes)


@lru_cache(maxsize=1024)
def memory_type(dtype: DType, lanes: int = 1) -> str:
    """The type of elements of `dtype` in memory."""
    return vector(_MEMORY.get(dtype.name) or f"i{dtype.bits}", lanes)


def is_narrow(dtype: DType) -> bool:
    """True for the 16-bit floats, which are computed in 32 bits."""
    return dtype.is_float and dtype.bits == 16


@lru_cache(maxsize=4096)
def _literal(dtype: DType, bits: bytes) -> str:
    # LLVM's literals of float and double are both the bits of a double
    return f"0x{struct.unpack('<Q', bits)[0]:016X}"


def literal(value: int | float | bool, dtype: DType, lanes: int = 1) -> str:
    """The constant `value` of `dtype`, in every lane."""
    if dtype.is_storage:
        text = str(code_of(value, dtype))
    elif dtype.is_float:
        text = _literal(dtype, struct.pack("<d", value))
    elif dtype.is_bool:
        text = "true" if value else "false"
    else:
        text = str(int(value))
    return text if lanes == 1 else splat(value_type(dtype), text, lanes)


def splat(element: str, text: str, lanes: int) -> str:
    """A constant vector with the literal `text` in every lane."""
    return f"splat ({element} {text})"


@lru_cache(maxsize=256)
def lane_numbers(element: str, lanes: int, stride: int = 1) -> str:
    """The constant vector 0, stride, 2 * stride, ..."""
    return "<" + ", ".join(f"{element} {i * stride}" for i in range(lanes)) + ">"


@lru_cache(maxsize=256)
def shuffle_mask(lanes: tuple[int, ...]) -> str:
    """The last operand of a shufflevector: the numbers of the lanes to pick. -1 stands for any
    lane.
    """
    picks = ", ".join(f"i32 {i}" if i >= 0 else "i32 poison" for i in lanes)
    return f"<{len(lanes)} x i32> <{picks}>"
