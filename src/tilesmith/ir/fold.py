"""Constant folding: the value of one operation on literals, exactly as `ir.expr` defines it.

Functions return None where the result is undefined (an integer division by zero): then nothing is
folded.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import numpy as np

from .dtypes import DType
from .expr import Const, const
from .functions import INTRINSICS
from .storage import convert_array, truncated


def _divide(round_down: bool, remainder: bool) -> Callable[[int, int], int | None]:
    def divide(a: int, b: int) -> int | None:
        if b == 0:
            return None
        q = a // b
        if not round_down and q < 0 and q * b != a:
            q += 1
        return a - q * b if remainder else q

    return divide


def _shift(left: bool) -> Callable[[int, int], int | None]:
    def shift(a: int, b: int) -> int | None:
        if not 0 <= b < 64:
            return None
        return a << b if left else a >> b

    return shift


INTEGER: dict[str, Callable[[int, int], int | None]] = {
    "add": operator.add, "sub": operator.sub, "mul": operator.mul,
    "floordiv": _divide(True, False), "floormod": _divide(True, True),
    "truncdiv": _divide(False, False), "truncmod": _divide(False, True),
    "min": min, "max": max,
    "and": operator.and_, "or": operator.or_, "xor": operator.xor,
    "shl": _shift(True), "shr": _shift(False),
}  # fmt: skip
"""Integer operations before wrapping to the width."""


def float_min(a: Any, b: Any) -> Any:
    """The minimum; NaN if an operand is NaN.  If the operands are equal, such as two zeros, the
    first.
    """
    return a if a != a or a <= b else b


def float_max(a: Any, b: Any) -> Any:
    """The maximum; NaN if an operand is NaN.  If the operands are equal, such as two zeros, the
    first.
    """
    return a if a != a or a >= b else b


FLOAT: dict[str, Callable[[Any, Any], Any]] = {
    "add": operator.add, "sub": operator.sub, "mul": operator.mul, "div": np.divide,
    "min": float_min, "max": float_max,
}  # fmt: skip
"""Float operations on NumPy scalars of the type."""

COMPARE: dict[str, Callable[[Any, Any], bool]] = {
    "eq": operator.eq, "ne": operator.ne, "lt": operator.lt, "le": operator.le,
}  # fmt: skip


def fold_binary(op: str, a: Const, b: Const) -> Const | None:
    """The literal `a op b`."""
    dtype = a.type
    if dtype.is_float:
        if op not in FLOAT:
            return None
        with np.errstate(all="ignore"):
            scalar = dtype.numpy.type
            return const(float(FLOAT[op](scalar(a.value), scalar(b.value))), dtype)
    if op in ("shl", "shr") and not 0 <= b.value < dtype.bits:
        return None
    if op == "div" or (dtype.is_bool and op not in ("and", "or", "xor", "min", "max")):
        return None
    value = INTEGER[op](int(a.value), int(b.value))
    return None if value is None else const(value, dtype)


def fold_compare(op: str, a: Const, b: Const) -> Const:
    """The bool literal `a op b`."""
    return const(bool(COMPARE[op](a.value, b.value)))


def fold_cast(a: Const, to: DType) -> Const | None:
    """The literal converted to `to`."""
    if to.is_bool:
        return const(a.value != 0)
    if to.is_float:
        with np.errstate(all="ignore"):
            # A conversion through f64 would round a 64-bit integer twice.
            return const(float(convert_array(np.asarray(a.value, a.type.numpy), to)), to)
    if a.type.is_float:
        return const(int(truncated(np.asarray(a.value, np.float64), to)), to)
    return const(int(a.value), to)


def fold_call(name: str, args: tuple[Const, ...], dtype: DType) -> Const | None:
    """The literal for an intrinsic of literals, correctly rounded as far as float64 allows."""
    source = args[0].type
    if name == "bitcast":
        if source.bytes != dtype.bytes or source.is_bool or dtype.is_bool:
            return None
        bits = np.asarray(args[0].value, source.numpy).reshape(1).view(dtype.numpy)[0]
        # a NaN loses its payload in a literal: don't fold
        return None if dtype.is_float and np.isnan(bits) else const(bits.item(), dtype)
    if name not in INTRINSICS or (name == "fma" and source.is_float):
        return None  # a fused multiply-add rounds once, NumPy's would round twice
    wide = np.dtype(np.float64) if source.is_float else source.numpy
    with np.errstate(all="ignore"):
        result = INTRINSICS[name].evaluate(*(np.asarray(a.value, wide) for a in args))
    return const(np.asarray(result).item(), dtype)
