"""Tensors reinterpreted as tensors of another element type, bit for bit."""

from __future__ import annotations

import numpy as np

from tilesmith.frontend.aten.node import AtenNode
from tilesmith.frontend.aten.registry import aten_op
from tilesmith.graph.nodes import Value
from tilesmith.ir import extents
from tilesmith.ir.dtypes import DType, u8, u16, u32, u64
from tilesmith.ops import elementwise as ew

_UNSIGNED = {8: u8, 16: u16, 32: u32, 64: u64}
"""Unsigned types by their width in bits."""


@aten_op("aten.view.dtype", "aten.view_copy.dtype")
def view_as_type(n: AtenNode, self: Value, dtype: DType) -> Value:
    """The bits of `self` as elements of `dtype`.  The last axis becomes longer if `dtype` is
    narrower, and shorter if `dtype` is wider.

    The order of bits is little-endian, as on every target.
    """
    if self.dtype is dtype:
        return self
    parts = _bits(n, self)
    narrow, wide = sorted((parts.dtype.bits, _width(dtype)))
    if narrow == wide:
        return _of_bits(n, parts, dtype)
    if not self.type.rank:
        n.unsupported(f"a tensor without axes of {self.dtype} as {dtype}")
    count, (*rest, last) = wide // narrow, self.type.shape
    places = n.const(np.arange(0, wide, narrow), _UNSIGNED[wide])
    if parts.dtype.bits == wide:
        parts = n.reshape(parts, (*self.type.shape, 1))
        split = n.cast(n.add(ew.BitShift("right"), parts, places), _UNSIGNED[narrow])
        joined = n.reshape(split, (*rest, extents.product((last, count))))
    else:
        groups = extents.quotient(last, count)
        if groups is None:
            n.unsupported(f"a last axis of {last} elements of {self.dtype} as {dtype}")
        split = n.cast(n.reshape(parts, (*rest, groups, count)), _UNSIGNED[wide])
        joined = n.add(ew.BitShift("left"), split, places)
        joined = joined.sum((len(rest) + 1,))
    return _of_bits(n, joined, dtype)


def _width(dtype: DType) -> int:
    return 8 if dtype.is_bool else dtype.bits


def _bits(n: AtenNode, x: Value) -> Value:
    """The bits of a tensor, as unsigned integers."""
    if x.dtype.is_bool:
        return n.cast(x, u8)
    to = _UNSIGNED[x.dtype.bits]
    return x if x.dtype is to else n.add(ew.Bitcast(to), x)


def _of_bits(n: AtenNode, bits: Value, dtype: DType) -> Value:
    if dtype.is_bool:
        return n.truth(bits)
    return bits if bits.dtype is dtype else n.add(ew.Bitcast(dtype), bits)
