"""Storage types of the factors of an integer product.

    matmul(i16(q - z), i16(w), to=i32)                        pairs of 16 bits
    matmul(i16(q - z), w, to=i32)                             the same with weights of bytes
    matmul(q - 128, w, to=i32) - (z - 128) * sum(w)           signed bytes
    matmul(q, w, to=i32) - z * sum(w)                         unsigned bytes

Bytes take half the memory, and some instructions multiply more of them at a time.  A byte minus its
zero point has 9 bits.  So if both factors are bytes the zero point is left out of the product, and
its contribution is subtracted from the result: a constant per channel for constant weights.  The
border of a padded convolution is then filled with the zero point.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from tilesmith.graph.nodes import Value
from tilesmith.graph.passes.rewriter import Rewriter
from tilesmith.ir.dtypes import DType, i8, i16, i32
from tilesmith.ir.types import Dim
from tilesmith.ops.conv import Conv
from tilesmith.ops.elementwise import Cast, Mul, Sub
from tilesmith.ops.matmul import MatMul
from tilesmith.ops.reduce import ReduceSum
from tilesmith.ops.shape import Reshape, Transpose
from tilesmith.ops.slicing import Pad

SHIFT = 128
"""Difference between an unsigned byte and the signed byte that replaces it."""


@dataclass(frozen=True, slots=True)
class Factors:
    """The storage types of a product's factors.

    x, w: element types of the first and of the second factor.
    joined: the number of products that one instruction adds.  Input channels are padded to a
        multiple of this number.
    """

    x: DType
    w: DType
    joined: int = 1


PAIRS = Factors(i16, i16, joined=2)

Choice = Callable[[MatMul | Conv, tuple[Dim, ...], tuple[Dim, ...]], Factors]
"""Chooses the storage types of a product whose weights are constant bytes.  Arguments: the operator
and the shapes of both factors.
"""


def always_pairs(op: MatMul | Conv, x: tuple[Dim, ...], w: tuple[Dim, ...]) -> Factors:
    """The choice for every target: pairs of 16 bits."""
    return PAIRS


def product(
    r: Rewriter, op: MatMul | Conv, x: Value, w: Value, bounds: tuple[int, int], choice: Choice
) -> Value:
    """The product `op` of `x` and `w`.  The elements of both factors have type i32 and fit 16 bits.

    bounds: bounds of the elements of `w`.
    choice: chooses the storage types if `w` is computed from constants.
    """
    factors = PAIRS
    if _is_fixed(r, w) and _has_channels(op, w):
        chosen = choice(op, x.shape, w.shape)
        fits = chosen.w.min <= bounds[0] and bounds[1] <= chosen.w.max
        if fits and chosen.x is i16:
            factors = chosen
        elif fits:
            bytes_and_zero = _byte(r, x)
            made = None if bytes_and_zero is None else _of_bytes(r, op, *bytes_and_zero, w, chosen)
            if made is not None:
                return made
    a, b = r.add(Cast(factors.x), x), r.add(Cast(factors.w), w)
    return r.add(replace(op, to=i32), *with_channels(r, op, a, b, factors.joined))


def _of_bytes(
    r: Rewriter, op: MatMul | Conv, q: Value, zero: Value | None, w: Value, factors: Factors
) -> Value | None:
    """The product of `q - zero` and `w`, where `q` are bytes and `zero` is their zero point."""
    shift = 0
    if q.dtype is not factors.x:
        shift = SHIFT if factors.x is i8 else -SHIFT
        wide = r.add(Sub(), r.add(Cast(i32), q), r.constant(np.asarray(shift, np.int32)))
        q = r.add(Cast(factors.x), wide)
    number = 0 if zero is None else _number(r, zero)
    point = None if number is None else number - shift
    if isinstance(op, Conv) and any(op.pads):
        if point is None:
            return None  # the value of the padding is known at run time only
        if point:
            begins, ends = op.pads[: len(op.pads) // 2], op.pads[len(op.pads) // 2 :]
            q = r.add(Pad((0, 0, *begins, 0, 0, *ends), value=point), q)
            op = replace(op, pads=())
    narrow = r.add(Cast(factors.w), w)
    op = replace(op, to=i32)
    made = r.add(op, *with_channels(r, op, q, narrow, factors.joined))
    if point == 0:
        return made
    if point is not None:
        less = r.constant(np.asarray(point, np.int32))
    else:
        assert zero is not None
        less = r.add(Sub(), zero, r.constant(np.asarray(shift, np.int32)))
    return r.add(Sub(), made, r.add(Mul(), _sums(r, op, w), less))


def _sums(r: Rewriter, op: MatMul | Conv, w: Value) -> Value:
    """The sum of the weights of each channel, in a shape that broadcasts to the result."""
    if isinstance(op, MatMul):
        return r.add(ReduceSum((1 if op.transpose_b else 0,), False), w)
    sums = r.add(ReduceSum(tuple(range(1, w.type.rank)), False), w)
    return r.add(Reshape((w.shape[0], *(1,) * (w.type.rank - 2))), sums)


def _byte(r: Rewriter, v: Value) -> tuple[Value, Value | None] | None:
    """The bytes and their zero point (an i32 scalar, or None for 0) whose difference is `v`."""
    sub = r.producer(v, Sub)
    zero = None if sub is None else sub.inputs[1]
    if zero is not None and (not zero.type.is_static or zero.type.size != 1):
        return None
    cast = r.producer(v if sub is None else sub.inputs[0], Cast)
    if cast is None or v.dtype is not i32:
        return None
    (q,) = cast.inputs
    return (q, zero) if q.dtype.is_int and q.dtype.bits == 8 else None


def _number(r: Rewriter, v: Value) -> int | None:
    """The value of the scalar `v`; None if it is not constant."""
    node = r.producer(v, Cast, Reshape)
    while node is not None:
        v = node.inputs[0]
        node = r.producer(v, Cast, Reshape)
    return r.splat(v)


def _is_fixed(r: Rewriter, v: Value) -> bool:
    """Whether `v` is computed from constants, as dequantised weights are, so that folding replaces
    it.
    """
    left, seen = [v], {v}
    while left:
        v = left.pop()
        node = r.producer(v, Cast, Sub, Reshape, Transpose)
        if node is not None:
            left += {*node.inputs} - seen
            seen.update(node.inputs)
        elif not r.is_constant(v):
            return False
    return True


def _has_channels(op: MatMul | Conv, w: Value) -> bool:
    """Whether each sum of weights belongs to one output channel, and the number of channels is
    known.
    """
    return w.type.is_static and (isinstance(op, Conv) or w.type.rank == 2)


def with_channels(
    r: Rewriter, op: MatMul | Conv, x: Value, w: Value, joined: int
) -> tuple[Value, Value]:
    """The factors with input channels padded to a multiple of `joined`, so that joined terms are
    adjacent.
    """
    if not isinstance(op, Conv) or op.groups != 1:
        return x, w
    channels = w.shape[1]
    if not isinstance(channels, int) or channels == 1 or channels % joined == 0:
        return x, w
    missing = math.ceil(channels / joined) * joined - channels
    return _with_more_channels(r, x, missing), _with_more_channels(r, w, missing)


def _with_more_channels(r: Rewriter, v: Value, count: int) -> Value:
    array, rank = r.array(v), v.type.rank
    if array is not None:
        zeros = [(0, count if n == 1 else 0) for n in range(rank)]
        return r.constant(np.pad(array, zeros), v.name)
    return r.add(Pad(tuple(count if n == rank + 1 else 0 for n in range(2 * rank))), v)
