"""Fixed-point arithmetic of integers, with the roundings of gemmlowp, which TFLite follows.

A real factor between 0 and 1 is `m / 2^31` for an integer `m`, times a power of two.  A product
with the factor rounds twice: in `DoublingHighMul`, then in `RoundingShift`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from tilesmith.ir import expr as ir
from tilesmith.ir.dtypes import i32, i64
from tilesmith.ir.expr import Expr, cast, const
from tilesmith.te import tensor as te

from . import rules
from .elementwise import Elementwise


class _OfWords(Elementwise, abstract=True):
    """Two broadcast inputs of i32."""

    arity: ClassVar[int] = 2
    kinds: ClassVar[tuple[str, ...]] = rules.INTEGERS

    def check(self, *inputs: te.Tensor) -> None:
        super().check(*inputs)
        if inputs[0].dtype is not i32:
            rules.reject(self.name, "inputs of element type i32", inputs[0].dtype)


@dataclass(frozen=True)
class DoublingHighMul(_OfWords):
    """a * b / 2^31 of i32 numbers, rounded to the nearest; ties round up.  If a and b are both the
    smallest number, the result saturates (ARM's SQRDMULH).

    saturates: whether a and b may both be the smallest number.
    """

    saturates: bool = True

    def element(self, a: Expr, b: Expr) -> Expr:
        high = cast((cast(a, i64) * cast(b, i64) + (1 << 30)) >> 31, i32)
        if not self.saturates:
            return high
        low = const(int(i32.min), i32)
        # the product 2^31 has wrapped to the smallest number; subtracting 1 gives the largest
        return high - cast(ir.all_of(a == low, b == low), i32)

    def numpy(self, a: np.ndarray, b: np.ndarray) -> Any:
        high = (a.astype(np.int64) * b.astype(np.int64) + (1 << 30)) >> 31
        return np.minimum(high, i32.max).astype(np.int32)


class RoundingShift(_OfWords):
    """x / 2^bits of i32 numbers, rounded to the nearest; ties round away from zero.

    `bits` is from 0 to 31; only its five lowest bits count.
    """

    def element(self, x: Expr, bits: Expr) -> Expr:
        bits = bits & 31
        mask = (const(1, i32) << bits) - 1
        half = (mask >> 1) + cast(x < 0, i32)
        return (x >> bits) + cast(half < (x & mask), i32)

    def numpy(self, x: np.ndarray, bits: np.ndarray) -> Any:
        wide, bits = x.astype(np.int64), bits & 31
        half = (np.int64(1) << bits) >> 1
        shifted = np.where(wide < 0, -((half - wide) >> bits), (half + wide) >> bits)
        return shifted.astype(np.int32)
