"""Quantisation: `q = saturate(round(x / scale) + zero)` and back, `x = (q - zero) * scale`.

A scale is one number, one per index of an axis, or one per block of indices along an axis.  Zero
points have the shape of the scales and the element type of q; left out, they are 0.  Both
operators are composite: products of integers are recognised by their expansions.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from tilesmith.ir.dtypes import DType, f32, i32, u8
from tilesmith.ir.types import Dim, TensorType, same_shape

from . import rules
from .base import GraphBuilder, Op
from .functions import clip, maximum, minimum, rint
from .packed import DequantizeBlocks
from .slicing import Slice


@dataclass(frozen=True)
class Quantize(Op):
    """x [...] f32, its scales and optional zero points, to integers; ties are rounded to even.

    to: element type of the result, at most 16 bits.
    axis: the axis along which scales vary.
    block: number of indices along `axis` that share a scale; 0: one index, or all if there is a
        single scale.
    """

    to: DType = u8
    axis: int = 0
    block: int = 0

    def decompose(self, b: GraphBuilder, *inputs: Any) -> Any:
        x, *parameters = _checked(self.name, inputs, self.to)
        scale, *zero = (_spread(self.name, b, v, x, self.axis, self.block) for v in parameters)
        q = rint(x / scale)
        if zero:
            q = q + zero[0].cast(f32)
        return clip(q, float(self.to.min), float(self.to.max)).cast(self.to)

    def reference(self, *inputs: np.ndarray) -> np.ndarray:
        x, *parameters = inputs
        s, *z = (spread_array(v, x.shape, self.axis, self.block) for v in parameters)
        q = np.rint(x / s) + (z[0].astype(np.float32) if z else 0)
        return np.clip(q, self.to.min, self.to.max).astype(self.to.numpy)


@dataclass(frozen=True)
class Dequantize(Op):
    """Integers q [...], their scales (f32) and optional zero points, back to f32.

    axis: the axis along which scales vary.
    block: number of indices along `axis` that share a scale; 0: one index, or all if there is a
        single scale.
    """

    axis: int = 0
    block: int = 0

    def decompose(self, b: GraphBuilder, *inputs: Any) -> Any:
        rules.check_count(self.name, inputs, 2, 3)
        q, *parameters = _checked(self.name, inputs, inputs[0].type.dtype)
        if self.block:
            return b.add(DequantizeBlocks(self.axis, self.block), q, *parameters)
        scale, *zero = (_spread(self.name, b, v, q, self.axis, self.block) for v in parameters)
        wide = q.cast(i32) - zero[0].cast(i32) if zero else q.cast(i32)
        return wide.cast(f32) * scale

    def reference(self, *inputs: np.ndarray) -> np.ndarray:
        q, *parameters = inputs
        s, *z = (spread_array(v, q.shape, self.axis, self.block) for v in parameters)
        wide = q.astype(np.int32) - (z[0].astype(np.int32) if z else 0)
        return wide.astype(np.float32) * s


@dataclass(frozen=True)
class DynamicQuantize(Op):
    """x [...] f32 to u8 with the range of its values, extended to include 0.  The results are
    integers, the scale f32[] and the zero point u8[]; a range of zero has scale 1.
    """

    def decompose(self, b: GraphBuilder, *inputs: Any) -> Any:
        rules.check_count(self.name, inputs, 1)
        (x,) = inputs
        zero = b.constant(np.zeros((), np.float32))
        low = minimum(x.min(), zero)
        high = maximum(x.max(), zero)
        scale = (high - low) / 255
        scale = scale + scale.equals(zero).cast(f32)
        point = clip(rint(-low / scale), 0.0, 255.0).cast(u8)
        return b.add(Quantize(u8), x, scale, point), scale, point

    def reference(self, *inputs: np.ndarray) -> tuple[np.ndarray, ...]:
        (x,) = inputs
        low, high = (np.float32(f(x, initial=0)) for f in (np.min, np.max))
        scale = (high - low) / np.float32(255) or np.float32(1)
        point = np.uint8(np.clip(np.rint(-low / scale), 0, 255))
        q = np.clip(np.rint(x / scale) + np.float32(point), 0, 255).astype(np.uint8)
        return q, np.asarray(scale, np.float32), np.asarray(point)


def spread_array(v: np.ndarray, shape: tuple[int, ...], axis: int, block: int) -> np.ndarray:
    """Scales or zero points in a shape that broadcasts to `shape`."""
    if block:
        return np.repeat(v, block, axis).take(range(shape[axis]), axis)
    return (
        v.reshape(()) if v.size == 1 else v.reshape(-1, *[1] * (len(shape) - axis % len(shape) - 1))
    )


def takes(x: TensorType, scale: TensorType, zero: TensorType | None, q: DType, axis: int) -> bool:
    """Whether `Quantize` and `Dequantize`, without blocks, take these operands and integers."""
    is_one = scale.rank <= 1 and scale.is_static and scale.size == 1
    is_row = x.is_static and scale.rank == 1 and same_shape(scale.shape, x.shape[axis : axis + 1])
    is_typed = zero is None or zero == TensorType(q, scale.shape)
    return q.is_int and q.bits <= 16 and is_typed and (is_one or is_row)


def _checked(name: str, inputs: tuple[Any, ...], to: DType) -> tuple[Any, ...]:
    """The operands.  Raises ModelError unless their types fit."""
    rules.check_count(name, inputs, 2, 3)
    scale = inputs[1]
    if not to.is_int or to.bits > 16:
        rules.reject(name, "integers of at most 16 bits", to)
    if scale.type.dtype is not f32:
        rules.reject(name, "scales of f32", scale.type)
    wanted = TensorType(to, scale.type.shape)
    if len(inputs) == 3 and inputs[2].type != wanted:
        rules.reject(name, f"zero points of type {wanted}", inputs[2].type)
    return inputs


def _spread(name: str, b: GraphBuilder, v: Any, x: Any, axis: int, block: int) -> Any:
    """Scales or zero points in a shape that broadcasts to x."""
    shape: tuple[Dim, ...] = x.type.shape
    axis = rules.normalize_axis(name, axis, len(shape)) if shape else 0
    if v.type.is_static and v.type.size == 1 and not block:
        return v.reshape() if v.type.rank else v
    extent = rules.static(name, shape[axis], "the axis along which scales vary")
    if not block:
        if not same_shape(v.type.shape, (extent,)):
            rules.reject(name, f"{extent} scales along axis {axis}", v.type)
        return v.reshape(extent, *[1] * (len(shape) - axis - 1))
    blocks = -(-extent // block)
    wanted = (*shape[:axis], blocks, *shape[axis + 1 :])
    if not same_shape(v.type.shape, wanted):
        rules.reject(name, f"scales of shape {rules.shape_text(wanted)}", v.type)
    before, after = v.type.shape[: axis + 1], v.type.shape[axis + 1 :]
    wide = v.reshape(*before, 1, *after).expand(*before, block, *after)
    wide = wide.reshape(*shape[:axis], blocks * block, *after)
    if blocks * block == extent:
        return wide
    return b.add(Slice((0,), (extent,), (axis,), (1,)), wide)
