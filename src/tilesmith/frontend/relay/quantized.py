"""Relay's quantised operators (qnn), with TVM's rounding of fixed-point products."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from tilesmith.frontend.common.arithmetic import rounded_away
from tilesmith.frontend.common.multipliers import quantize_multiplier
from tilesmith.frontend.common.slots import Result
from tilesmith.frontend.relay.elementwise import along
from tilesmith.frontend.relay.layers import convolved
from tilesmith.frontend.relay.node import RelayNode, relay_op
from tilesmith.graph.nodes import Value
from tilesmith.ir.dtypes import DType, f32, i8, i32, i64
from tilesmith.ops import elementwise as ew
from tilesmith.ops import functions as fn
from tilesmith.ops import matmul as mm
from tilesmith.ops import slicing
from tilesmith.ops.quantize import Dequantize


def _along(n: RelayNode, v: Value, x: Value, axis: int) -> Value:
    """A scale or zero point for all of `x` or for each index of `axis`, reshaped to broadcast."""
    if v.type.rank == 0 or v.type.size == 1:
        return n.reshape(v, ())
    return along(n, v, n.axis(axis, x.type.rank), x.type.rank)


def _clipped(x: Value, to: DType) -> Value:
    return fn.clip(x, int(to.min), int(to.max)).cast(to) if x.dtype is not to else x


@relay_op("qnn.quantize")
def quantize(n: RelayNode) -> Result:
    x, scale, zero = n.inputs
    axis, to = n.int("axis", -1), n.dtype("out_dtype", i8)
    q = rounded_away(x / _along(n, scale, x, axis)) + _along(n, zero, x, axis).cast(f32)
    return fn.clip(q, float(to.min), float(to.max)).cast(to)


@relay_op("qnn.dequantize")
def dequantize(n: RelayNode) -> Result:
    x, scale, zero = n.inputs
    axis = n.axis(n.int("axis", -1), x.type.rank) if x.type.rank else 0
    n.dtype("out_dtype", f32)
    if x.dtype.bits <= 8:
        scale, zero = (n.reshape(v, ()) if v.type.size == 1 else v for v in (scale, zero))
        return n.add(Dequantize(axis), x, scale, zero.cast(x.dtype))
    return (x - _along(n, zero, x, axis).cast(x.dtype)).cast(f32) * _along(n, scale, x, axis)


def _scales(n: RelayNode, v: Value) -> np.ndarray:
    return n.array(v, "a scale").astype(np.float64).reshape(-1)


def _requantized(
    n: RelayNode, x: Value, scales: Sequence[Value], zeros: Sequence[Value], axis: int, to: DType
) -> Value:
    """`x`, integers with scales[0] and zeros[0], as integers with scales[1] and zeros[1]."""
    rounding = n.text("rounding", "UPWARD", ("UPWARD", "TONEAREST", "None"))
    n.text("compute_dtype", "int64", ("int64", "None"))
    source, target = (_scales(n, s) for s in scales)
    if not all((np.isfinite(s) & (s > 0)).all() for s in (source, target)):
        n.bad(f"expected finite scales above 0, found {source.tolist()} and {target.tolist()}")
    ratios = source / target
    wide = x.cast(i64) - _along(n, zeros[0], x, axis).cast(i64)
    if not np.array_equal(source, np.broadcast_to(target, source.shape)):
        pairs = [quantize_multiplier(float(r)) for r in ratios]
        axis = n.axis(axis, x.type.rank) if len(pairs) > 1 else 0

        def spread(numbers: list[int]) -> Value:
            return _along(n, n.const(np.array(numbers, np.int64)), x, axis)

        bits = [31 - max(s, -31) for _, s in pairs]
        nudge = spread([1 << (b - 1) if b > 0 else 0 for b in bits])
        wide = wide * spread([m for m, _ in pairs])
        if rounding == "TONEAREST":
            nudge = fn.where(wide < 0, nudge - 1, nudge)
        wide = n.add(ew.BitShift("right"), wide + nudge, n.expand(spread(bits), wide.type.shape))
    return _clipped(wide + n.reshape(zeros[1], ()).cast(i64), to)


@relay_op("qnn.requantize")
def requantize(n: RelayNode) -> Result:
    x, scale, zero, to_scale, to_zero = n.inputs
    to = n.dtype("out_dtype", i8)
    return _requantized(n, x, (scale, to_scale), (zero, to_zero), n.int("axis", -1), to)


def _centred(n: RelayNode, x: Value, zero: Value, axis: int) -> Value:
    """`x` minus its zero point."""
    known = n.known(zero)
    if known is not None and not known.any():
        return x
    return x.cast(i32) - _along(n, zero, x, axis).cast(i32)


@relay_op("qnn.conv2d")
def conv2d(n: RelayNode) -> Result:
    x, w, x_zero, w_zero, _, _ = n.inputs
    channels = n.text("kernel_layout", "OIHW").index("O")
    x, w = _centred(n, x, x_zero, 0), _centred(n, w, w_zero, channels)
    return convolved(n, x, w, i32)


@relay_op("qnn.dense", "qnn.batch_matmul")
def dense(n: RelayNode) -> Result:
    a, b, a_zero, b_zero, _, _ = n.inputs
    op = mm.MatMul(transpose_b=True)
    return n.add(replace(op, to=i32), _centred(n, a, a_zero, 0), _centred(n, b, b_zero, -2))


@relay_op("qnn.add", "qnn.subtract")
def add(n: RelayNode) -> Result:
    a, b, a_scale, a_zero, b_scale, b_zero, scale, zero = n.inputs
    left = _requantized(n, a, (a_scale, scale), (a_zero, zero), n.int("lhs_axis", -1), i32)
    right = _requantized(n, b, (b_scale, scale), (b_zero, zero), n.int("rhs_axis", -1), i32)
    shift = n.reshape(zero, ()).cast(i32)
    return _clipped(
        left + right - shift if n.operator == "qnn.add" else left - right + shift, a.dtype
    )


@relay_op("qnn.mul")
def multiply(n: RelayNode) -> Result:
    a, b, a_scale, a_zero, b_scale, b_zero, scale, zero = n.inputs
    for unused in ("lhs_axis", "rhs_axis"):  # the axis matters only for scales per channel
        n.get(unused)
    product = _centred(n, a, a_zero, -1).cast(i32) * _centred(n, b, b_zero, -1).cast(i32)
    own = n.const((n.array(a_scale, "a scale") * n.array(b_scale, "a scale")).astype(np.float32))
    return _requantized(n, product, (own, scale), (n.const(0, i32), zero), -1, a.dtype)


@relay_op("qnn.concatenate")
def concatenate(n: RelayNode) -> Result:
    parts, scales, zeros = (n.items(i) for i in range(3))
    scale, zero = n.input(3), n.input(4)
    same = [
        _requantized(n, p, (s, scale), (z, zero), -1, p.dtype)
        for p, s, z in zip(parts, scales, zeros, strict=True)
    ]
    return n.add(slicing.Concat(n.axis(n.int("axis", 0), parts[0].type.rank)), *same)
