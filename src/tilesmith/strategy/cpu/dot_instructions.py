"""Dot-product instructions for contractions of narrow types.

A dot-product instruction adds the products of several neighbouring reduction steps to each lane:
`acc[l] += sum over q of x[q] * w[l, q]`.  `w` is packed so that these steps are contiguous.  Types
and target determine the instruction; the operator does not matter.
"""

from __future__ import annotations

from tilesmith.ir.dtypes import DType, f32
from tilesmith.ir.expr import vars_of
from tilesmith.ir.target import Target
from tilesmith.ir.tensor_intrinsics import TensorIntrinsic, matches
from tilesmith.ir.types import Dim
from tilesmith.strategy.intrinsics import available
from tilesmith.te.tensor import IterVar, Reduce

from .contraction import Contraction, reduction_order


def dot_for(c: Contraction, target: Target) -> TensorIntrinsic | None:
    """The fastest dot-product instruction for `c`; None if there is none, or if f32 multiply-adds
    are as fast.

    The instruction may round differently from a loop.  Targets for strict results hide such
    instructions (`intrinsics.exact_target`).
    """
    last = joined_axis(c)
    if last is None or c.vector is None:
        return None
    columns, steps = c.vector.extent, last.extent
    if not isinstance(columns, int) or not isinstance(steps, int):
        return None
    source = c.op.body[0]
    assert isinstance(source, Reduce)
    fitting: list[TensorIntrinsic] = []
    for i in available(target).values():
        if not _is_dot(i) or i.result.size > columns or i.extents[-1] > steps:
            continue
        if i.result.size * i.result.dtype.bytes * 8 != target.vector_bits:
            continue
        for binding in matches(i, source.sources[0]):
            reads = {load: i.strides(operand)[0] for operand, load in binding.items()}
            shares = reads.get(c.x) == 0 and reads.get(c.w)
            if shares or (not i.result.shape and {*reads} == {c.x, c.w}):
                fitting.append(i)
    best = max(fitting, key=lambda i: products_per_time(i, target), default=None)
    return best if best is not None and products_per_time(best, target) > 1 else None


def lane_products_for(c: Contraction, target: Target) -> TensorIntrinsic | None:
    """The instruction that adds one product of `x` and `w` in each lane, for depthwise convolutions
    of integers.  None if there is none, or if the channels are not a multiple of its lanes.
    """
    if not c.is_batched or c.vector is None or not isinstance(c.vector.extent, int):
        return None
    source = c.op.body[0]
    assert isinstance(source, Reduce)
    if not source.sources[0].dtype.is_int:
        return None
    for i in available(target).values():
        full = i.result.size * i.result.dtype.bytes * 8 == target.vector_bits
        is_own = i.is_reduced == (False,) and all(i.strides(o) == (1,) for o in i.operands)
        if not (full and is_own and i.accumulates) or c.vector.extent % i.result.size:
            continue
        for binding in matches(i, source.sources[0]):
            if {*binding.values()} == {c.x, c.w}:
                return i
    return None


def products_per_fma(element: DType, target: Target) -> float:
    """Products of factors of type `element` that one lane adds in the time of an f32 multiply-add.
    The best dot-product instruction for this type, or for wider integers, counts.  1 if there is no
    such instruction.
    """
    rates = [
        products_per_time(i, target)
        for i in available(target).values()
        if _is_dot(i) and all(_takes(o.dtype, element) for o in i.operands)
    ]
    return max(rates, default=1.0)


def products_per_time(dot: TensorIntrinsic, target: Target) -> float:
    """Products that `dot` adds in one lane in the time of an f32 multiply-add."""
    return dot.extents[-1] / dot.time(target.model)


def _takes(operand: DType, element: DType) -> bool:
    if element.is_int:
        return operand.is_int and operand.bits >= element.bits
    return operand is element


def joinable(channels: Dim, element: DType) -> Dim:
    """`channels` rounded up to a multiple of the elements per 4-byte lane, as dot products need."""
    # Each lane adds as many adjacent elements as fit into its bytes.
    depth = max(f32.bytes // element.bytes, 1)
    if not isinstance(channels, int) or channels == 1:
        return channels
    return -(-channels // depth) * depth


def joined_axis(c: Contraction) -> IterVar | None:
    """The innermost reduction axis, if one instruction may add several of its neighbouring steps.
    None unless both factors depend on this axis and all lanes read the same element of `x`.
    """
    steps = reduction_order(c)
    if not steps or c.is_batched or c.vector is None:
        return None
    last, in_x, in_w = steps[-1], vars_of(c.x.indices), vars_of(c.w.indices)
    fits = last.var in in_x and last.var in in_w and c.vector.var not in in_x
    return last if fits and isinstance(last.extent, int) else None


def _is_dot(i: TensorIntrinsic) -> bool:
    """Whether `i` is a dot product: a lane, or a scalar result, adds products of neighbours in two
    operands.  Each lane has its own row of one operand, and all lanes share the other operand.
    """
    if i.accumulates and i.is_reduced == (True,):
        return len(i.operands) == 2
    if not i.accumulates or i.is_reduced != (False, True):
        return False
    depth = i.extents[-1]
    return sorted(i.strides(o) for o in i.operands) == [(0, 1), (depth, 1)]
