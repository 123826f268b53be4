"""Intervals with a stride: the possible values of an integer expression.

`Interval(lo, hi, stride, offset)` stands for the integers `lo <= v <= hi` with `v ≡ offset (mod
stride)`; `None` is "unbounded".  A constant has stride 0 and itself as the offset.  The functions
here are exact on single operations and safe: the result contains every possible value.  They ignore
overflow, which callers handle.
"""

from __future__ import annotations

from math import gcd
from typing import NamedTuple

from .dtypes import DType


class Interval(NamedTuple):
    """The integers from `lo` to `hi`, both included, that are `offset` modulo `stride`."""

    lo: int | None
    hi: int | None
    stride: int = 1
    offset: int = 0

    @property
    def is_constant(self) -> bool:
        return self.lo is not None and self.lo == self.hi

    def contains(self, value: int) -> bool:
        """True if `value` is in the interval."""
        if (self.lo is not None and value < self.lo) or (self.hi is not None and value > self.hi):
            return False
        return (
            value == self.offset if self.stride == 0 else (value - self.offset) % self.stride == 0
        )

    def fits(self, dtype: DType) -> bool:
        """True if both ends are known and lie in the range of `dtype`."""
        return (
            self.lo is not None
            and self.hi is not None
            and self.lo >= dtype.min
            and self.hi <= dtype.max
        )


TOP = Interval(None, None)
BOOL = Interval(0, 1)


def constant(value: int) -> Interval:
    return Interval(value, value, 0, value)


def make(lo: int | None, hi: int | None, stride: int = 1, offset: int = 0) -> Interval:
    """The interval in normal form: finite ends are possible values; a constant has stride 0."""
    if stride == 0:
        return Interval(offset, offset, 0, offset)
    if stride > 1:
        offset %= stride
        if lo is not None:
            lo += (offset - lo) % stride
        if hi is not None:
            hi -= (hi - offset) % stride
    else:
        offset = 0
    if lo is not None and lo == hi:
        return Interval(lo, lo, 0, lo)
    return Interval(lo, hi, stride, offset)


def of_dtype(dtype: DType) -> Interval:
    """Every value of an integer or bool type."""
    return Interval(int(dtype.min), int(dtype.max))


def add(a: Interval, b: Interval) -> Interval:
    lo = None if a.lo is None or b.lo is None else a.lo + b.lo
    hi = None if a.hi is None or b.hi is None else a.hi + b.hi
    return make(lo, hi, gcd(a.stride, b.stride), a.offset + b.offset)


def scale(a: Interval, k: int) -> Interval:
    """`a * k` for a constant."""
    if k == 0:
        return constant(0)
    lo, hi = (a.lo, a.hi) if k > 0 else (a.hi, a.lo)
    return make(
        None if lo is None else lo * k,
        None if hi is None else hi * k,
        a.stride * abs(k),
        a.offset * k,
    )


def sub(a: Interval, b: Interval) -> Interval:
    return add(a, scale(b, -1))


def mul(a: Interval, b: Interval) -> Interval:
    if b.is_constant:
        return scale(a, b.offset)
    if a.is_constant:
        return scale(b, a.offset)
    # (s·x + o)(t·y + p) is o·p modulo gcd(s·t, s·p, t·o)
    stride = gcd(a.stride * b.stride, a.stride * b.offset, b.stride * a.offset)
    offset = a.offset * b.offset
    if a.lo is None or a.hi is None or b.lo is None or b.hi is None:
        low = 0 if a.lo is not None and b.lo is not None and a.lo >= 0 and b.lo >= 0 else None
        if low is not None and a.lo is not None and b.lo is not None:
            low = a.lo * b.lo
        return make(low, None, stride, offset)
    products = (a.lo * b.lo, a.lo * b.hi, a.hi * b.lo, a.hi * b.hi)
    return make(min(products), max(products), stride, offset)


def floordiv(a: Interval, b: Interval) -> Interval:
    if not b.is_constant or b.offset == 0:
        # no divisor is 0
        if b.lo is not None and b.lo >= 0 and a.lo is not None and a.lo >= 0:
            return make(0, None if a.hi is None else a.hi // max(b.lo, 1))
        return TOP
    c = b.offset
    lo, hi = (a.lo, a.hi) if c > 0 else (a.hi, a.lo)
    stride, offset = 1, 0
    if a.stride % c == 0 and a.offset % c == 0 and a.stride:
        stride, offset = abs(a.stride // c), a.offset // c
    return make(None if lo is None else lo // c, None if hi is None else hi // c, stride, offset)


def floormod(a: Interval, b: Interval) -> Interval:
    if not b.is_constant:
        if b.lo is not None and b.lo >= 0:
            if b.hi is None:
                return make(0, a.hi if a.lo is not None and a.lo >= 0 else None)
            return make(0, b.hi - 1)
        return TOP
    c = b.offset
    if c == 0:
        return TOP
    if c < 0:
        return Interval(c + 1, 0)
    if a.lo is not None and a.hi is not None and a.lo // c == a.hi // c:
        base = a.lo // c * c
        return make(a.lo - base, a.hi - base, a.stride, a.offset - base)
    return make(0, c - 1, gcd(a.stride, c), a.offset)


def minimum(a: Interval, b: Interval) -> Interval:
    lo = None if a.lo is None or b.lo is None else min(a.lo, b.lo)
    hi = b.hi if a.hi is None else a.hi if b.hi is None else min(a.hi, b.hi)
    return make(lo, hi, *_joined_stride(a, b))


def maximum(a: Interval, b: Interval) -> Interval:
    lo = b.lo if a.lo is None else a.lo if b.lo is None else max(a.lo, b.lo)
    hi = None if a.hi is None or b.hi is None else max(a.hi, b.hi)
    return make(lo, hi, *_joined_stride(a, b))


def union(a: Interval, b: Interval) -> Interval:
    """The smallest interval that contains both."""
    lo = None if a.lo is None or b.lo is None else min(a.lo, b.lo)
    hi = None if a.hi is None or b.hi is None else max(a.hi, b.hi)
    return make(lo, hi, *_joined_stride(a, b))


def intersect(a: Interval, b: Interval) -> Interval:
    """Values in both; the larger of the two strides is kept."""
    lo = b.lo if a.lo is None else a.lo if b.lo is None else max(a.lo, b.lo)
    hi = b.hi if a.hi is None else a.hi if b.hi is None else min(a.hi, b.hi)
    best = a if a.stride == 0 or (b.stride != 0 and a.stride >= b.stride) else b
    return make(lo, hi, best.stride, best.offset)


def _joined_stride(a: Interval, b: Interval) -> tuple[int, int]:
    if a.stride == b.stride == 0 and a.offset == b.offset:
        return 0, a.offset
    stride = gcd(a.stride, b.stride, a.offset - b.offset)
    return stride, a.offset
