"""Quantisation: `q = saturate(round(x / scale) + zero)` and back, `x = (q - zero) * scale`.

There is one scale, one per index of an axis, or one per block of indices along an axis.  Zero
points, numbers of any type, vary in the same way, or there is one; without zero points they are 0.
Both operators are composite.  Passes recognise products of integers by these compositions.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from tilesmith.ir.dtypes import DType, f32, i32, u8
from tilesmith.ir.storage import convert_array
from tilesmith.ir.types import Dim, same_dim

from . import rules
from .base import GraphBuilder, Op
from .functions import clip, maximum, minimum, rint
from .gather import Gather
from .packed import DequantizeBlocks, blocks_of
from .sizes import Iota
from .slicing import Slice


@dataclass(frozen=True)
class Quantize(Op):
    """Converts x [...] f32, with its scales and optional zero points, to integers or to floats of
    few bits.  Ties round to even for integers.

    to: element type of the result, at most 16 bits.
    axis: the axis along which scales vary.
    block: number of indices along `axis` that share a scale; 0: all indices if there is a single
        scale, else one.
    saturates: whether values beyond the range of an 8-bit float type become its largest number.
    """

    to: DType = u8
    axis: int = 0
    block: int = 0
    saturates: bool = True

    def decompose(self, b: GraphBuilder, *inputs: Any) -> Any:
        x, *parameters = _checked(self.name, inputs, self.to, 16)
        scale, *zero = (_spread(self.name, b, v, x, self.axis, self.block) for v in parameters)
        q = x / scale if self.to.is_float else rint(x / scale)
        if zero:
            q = q + zero[0].cast(f32)
        if self.to.is_int:
            q = clip(q, float(self.to.min), float(self.to.max))
        return saturated(q, self.to) if self.saturates else q.cast(self.to)

    def reference(self, *inputs: np.ndarray) -> np.ndarray:
        x, *parameters = inputs
        s, *z = (spread_array(v, x.shape, self.axis, self.block) for v in parameters)
        q = x / s if self.to.is_float else np.rint(x / s)
        q = q + (z[0].astype(np.float32) if z else 0)
        if self.to.is_int:
            return np.clip(q, self.to.min, self.to.max).astype(self.to.numpy)
        if self.saturates and self.to.bits == 8:
            q = np.clip(q, -self.to.largest, self.to.largest)
        return convert_array(q, self.to)


@dataclass(frozen=True)
class Dequantize(Op):
    """Converts numbers q [...] of few bits, with their scales and optional zero points, back to
    floats of the scales' type.

    axis: the axis along which scales vary.
    block: number of indices along `axis` that share a scale; 0: all indices if there is a single
        scale, else one.
    """

    axis: int = 0
    block: int = 0

    def decompose(self, b: GraphBuilder, *inputs: Any) -> Any:
        rules.check_count(self.name, inputs, 2, 3)
        q, *parameters = _checked(self.name, inputs, inputs[0].type.dtype, 32)
        if self.block and q.type.dtype.is_int and q.type.is_static:
            return b.add(DequantizeBlocks(self.axis, self.block), q, *parameters)
        scale, *zero = (_spread(self.name, b, v, q, self.axis, self.block) for v in parameters)
        is_exact = q.type.dtype.is_int and not (zero and zero[0].type.dtype.is_float)
        wide = q.cast(i32 if is_exact else f32)
        if zero:
            wide = wide - zero[0].cast(wide.type.dtype)
        return (wide.cast(f32) * scale.cast(f32)).cast(scale.type.dtype)

    def reference(self, *inputs: np.ndarray) -> np.ndarray:
        q, *parameters = inputs
        s, *z = (spread_array(v, q.shape, self.axis, self.block) for v in parameters)
        is_exact = all(v.dtype.kind in "iu" for v in (q, *z))
        wide = q.astype(np.int32 if is_exact else np.float32)
        wide = wide - (z[0].astype(wide.dtype) if z else 0)
        return (wide.astype(np.float32) * s.astype(np.float32)).astype(s.dtype)


@dataclass(frozen=True)
class DynamicQuantize(Op):
    """Converts x [...] f32 to u8 by the range of its values, extended to include 0.  The results
    are the integers, the scale f32[] and the zero point u8[].  If all of x is 0, the scale is 1.
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
        return v if v.shape[axis] == 1 else v.take(np.arange(shape[axis]) // block, axis)
    return (
        v.reshape(()) if v.size == 1 else v.reshape(-1, *[1] * (len(shape) - axis % len(shape) - 1))
    )


def saturated(x: Any, to: DType) -> Any:
    """x converted to `to`.  For floats of 8 bits, x is first limited to the largest number."""
    if to.is_storage and to.is_float and to.bits == 8:
        if not x.type.dtype.is_float or x.type.dtype.is_storage:
            x = x.cast(f32)
        x = clip(x, -to.largest, to.largest)
    return x.cast(to)


def _checked(name: str, inputs: tuple[Any, ...], to: DType, bits: int) -> tuple[Any, ...]:
    """The operands.  Raises ModelError unless their types fit."""
    rules.check_count(name, inputs, 2, 3)
    if not (to.is_int or to.is_storage) or to.bits > bits:
        rules.reject(name, f"integers of at most {bits} bits, or floats of few", to)
    rules.check_kind(name, inputs[1].type, rules.FLOATS, "a scale")
    return inputs


def _spread(name: str, b: GraphBuilder, v: Any, x: Any, axis: int, block: int) -> Any:
    """Scales or zero points in a shape that broadcasts to x."""
    shape: tuple[Dim, ...] = x.type.shape
    dims: tuple[Dim, ...] = v.type.shape
    if not block and len(dims) <= 1 and all(same_dim(d, 1) for d in dims):
        return v.reshape() if dims else v
    axis = rules.normalize_axis(name, axis, len(shape)) if shape else 0
    extent = shape[axis] if shape else 1
    if not block:
        if not rules.equal_shapes(name, dims, (extent,)):
            rules.reject(
                name,
                f"one scale, or {extent} along axis {axis} of {x.type}",
                rules.shape_text(dims),
            )
        return v.reshape(extent, *[1] * (len(shape) - axis - 1))
    blocks = blocks_of(extent, block)
    if len(dims) == len(shape) and same_dim(dims[axis], 1):
        return v
    if len(dims) != len(shape) or not rules.equal(name, dims[axis], blocks):
        wanted = (*shape[:axis], blocks, *shape[axis + 1 :])
        rules.reject(name, f"scales of shape {rules.shape_text(wanted)}", rules.shape_text(dims))
    if not isinstance(extent, int):
        return b.add(Gather(axis), v, b.add(Iota(extent)) / block)
    before, after = dims[:axis], dims[axis + 1 :]
    wide = v.reshape(*before, blocks, 1, *after).expand(*before, blocks, block, *after)
    whole = -(-extent // block) * block
    wide = wide.reshape(*before, whole, *after)
    if whole == extent:
        return wide
    return b.add(Slice((0,), (extent,), (axis,), (1,)), wide)
