"""Reductions over axes, and running sums."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import TypeAlias

from tilesmith.frontend.aten.node import AtenNode
from tilesmith.frontend.aten.promotion import Number
from tilesmith.frontend.aten.registry import aten_op
from tilesmith.graph.nodes import Value
from tilesmith.ir import extents
from tilesmith.ir.dtypes import DType, bf16, f32, i32, i64, u8
from tilesmith.ops import elementwise as ew
from tilesmith.ops import reduce, scan
from tilesmith.ops.base import Op
from tilesmith.ops.functions import clip, maximum, sqrt
from tilesmith.ops.norm import moments

Axes: TypeAlias = "Sequence[int] | int | None"
"""Axes to reduce.  None and an empty list mean all axes."""

Unbiased: TypeAlias = "Number | None"
"""The number subtracted from the count of elements in a variance.  None means 1."""

_EXPONENT = 0x7F800000
"""Mask of the exponent bits of an f32.  A normal number with all other bits 0 is a power of two."""
_LEAST, _MOST = 1 << 23, 253 << 23
"""Bits of 2^-126 and 2^126: the extreme powers of two that are normal and have a normal inverse."""

_Reduction: TypeAlias = Callable[[tuple[int, ...], bool], Op]


def axes_of(n: AtenNode, x: Value, dim: Axes) -> tuple[int, ...]:
    if dim is None or (not isinstance(dim, int) and not len(dim)):
        return tuple(range(x.type.rank))
    dims = (dim,) if isinstance(dim, int) else tuple(dim)
    if x.type.rank == 0:
        return ()
    return n.axes(dims, x.type.rank, "dim")


def reduced(n: AtenNode, x: Value, dim: Axes, keepdim: bool, make: _Reduction) -> Value:
    """A reduction of a tensor.  A tensor of rank 0 counts as a tensor with a single element."""
    axes = axes_of(n, x, dim)
    return n.add(make(axes, keepdim), x) if axes else x


def _wide(n: AtenNode, x: Value, dtype: DType | None) -> Value:
    """The operand of a sum: integers and bools become i64."""
    if dtype is not None:
        return n.cast(x, dtype)
    return x if x.dtype.is_float else n.cast(x, i64)


@aten_op("aten.sum.dim_IntList")
def sum_(
    n: AtenNode, self: Value, dim: Axes = None, keepdim: bool = False, dtype: DType | None = None
) -> Value:
    return reduced(n, _wide(n, self, dtype), dim, keepdim, reduce.ReduceSum)


@aten_op("aten.mean.dim")
def mean(
    n: AtenNode, self: Value, dim: Axes = None, keepdim: bool = False, dtype: DType | None = None
) -> Value:
    return reduced(n, n.cast(self, dtype), dim, keepdim, reduce.ReduceMean)


@aten_op("aten.prod.dim_int")
def prod(
    n: AtenNode, self: Value, dim: Axes = None, keepdim: bool = False, dtype: DType | None = None
) -> Value:
    if dtype is not None and dtype.is_bool:
        bits = n.cast(n.truth(self), u8)
        return n.truth(reduced(n, bits, dim, keepdim, reduce.ReduceProd))
    return reduced(n, _wide(n, self, dtype), dim, keepdim, reduce.ReduceProd)


def _of_all(
    n: AtenNode, self: Value, dtype: DType | None = None, *, reduction: Callable[..., Value]
) -> Value:
    return reduction(n, self, dtype=dtype)


for _name, _reduction in (("sum", sum_), ("mean", mean), ("prod", prod)):
    aten_op(f"aten.{_name}.default")(partial(_of_all, reduction=_reduction))


def _extreme(
    n: AtenNode, self: Value, dim: Axes = (), keepdim: bool = False, *, make: _Reduction
) -> Value:
    return reduced(n, self, dim, keepdim, make)


aten_op("aten.amax.default", "aten.max.default")(partial(_extreme, make=reduce.ReduceMax))
aten_op("aten.amin.default", "aten.min.default")(partial(_extreme, make=reduce.ReduceMin))


def _truths(
    n: AtenNode, self: Value, dim: Axes = None, keepdim: bool = False, *, make: _Reduction
) -> Value:
    """A reduction of a tensor's truth values.  As in PyTorch, the result is u8 if the operand is
    u8.
    """
    truths = reduced(n, n.truth(self), dim, keepdim, make)
    return n.cast(truths, u8) if self.dtype is u8 else truths


for _name, _make in (("any", reduce.ReduceMax), ("all", reduce.ReduceMin)):
    aten_op(f"aten.{_name}.default", f"aten.{_name}.dim", f"aten.{_name}.dims")(
        partial(_truths, make=_make)
    )


def _place(
    n: AtenNode, self: Value, dim: int | None = None, keepdim: bool = False, *,
    make: Callable[[int, bool], Op],
) -> Value:  # fmt: skip
    x = n.cast(self, i32) if self.dtype.is_bool else self
    if x.type.rank == 0:
        return n.const(0, i64)
    if dim is None:
        flat = n.reshape(x, (extents.product(x.type.shape),))
        position = n.add(make(0, False), flat)
        return n.reshape(position, [1] * x.type.rank) if keepdim else position
    return n.add(make(n.axis(dim, x.type.rank, "dim"), keepdim), x)


def _place_of_number(
    n: AtenNode, self: Value, dim: int | None = None, keepdim: bool = False, *,
    make: Callable[[int, bool], Op],
) -> Value:  # fmt: skip
    if self.dtype.is_bool:  # torch.export accepts bools, but PyTorch's kernels do not
        n.unsupported("PyTorch has it for numbers only, found bool; convert the tensor")
    return _place(n, self, dim, keepdim, make=make)


aten_op("aten.argmax.default")(partial(_place_of_number, make=reduce.ArgMax))
aten_op("aten.argmin.default")(partial(_place_of_number, make=reduce.ArgMin))


def _extreme_and_place(
    n: AtenNode, self: Value, dim: int, keepdim: bool = False, *,
    make: _Reduction, find: Callable[[int, bool], Op],
) -> tuple[Value, Value]:  # fmt: skip
    return (
        reduced(n, self, dim, keepdim, make),
        _place(n, self, dim, keepdim, make=find),
    )


aten_op("aten.max.dim")(partial(_extreme_and_place, make=reduce.ReduceMax, find=reduce.ArgMax))
aten_op("aten.min.dim")(partial(_extreme_and_place, make=reduce.ReduceMin, find=reduce.ArgMin))


@aten_op("aten.var.correction")
def variance(
    n: AtenNode, self: Value, dim: Axes = None, correction: Unbiased = None, keepdim: bool = False
) -> Value:
    """The variance.  It is computed on the tensor divided by a power of two, because the sum of
    squares may overflow or underflow in f32 although the mean of squares does not.
    """
    scaled, scale = _scaled_variance(n, self, dim, correction, keepdim)
    if scale is not None:
        scaled = scaled * scale * scale
    return n.cast(scaled, self.dtype)


def _scaled_variance(
    n: AtenNode, self: Value, dim: Axes, correction: Unbiased, keepdim: bool
) -> tuple[Value, Value | None]:
    """The variance of `self / scale`, and `scale`, where None stands for 1."""
    axes = axes_of(n, self, dim)
    if self.dtype not in (f32, bf16) or not axes:
        return variance_and_mean(n, self, dim, correction, keepdim)[0], None
    x = n.cast(self, f32)
    largest = abs(x).max(axes, keepdims=True)
    bits = n.add(ew.Bitcast(i32), largest) & n.tensor(_EXPONENT, i32)
    bits = clip(bits, _LEAST, _MOST)
    inverse = n.add(ew.Bitcast(f32), n.tensor(_LEAST + _MOST, i32) - bits)
    result = variance_and_mean(n, x * inverse, dim, correction, keepdim)[0]
    return result, n.reshape(n.add(ew.Bitcast(f32), bits), result.type.shape)


@aten_op("aten.var.dim")
def variance_unbiased(
    n: AtenNode, self: Value, dim: Axes = None, unbiased: bool = True, keepdim: bool = False
) -> Value:
    return variance(n, self, dim, int(unbiased), keepdim)


@aten_op("aten.var.default")
def variance_of_all(n: AtenNode, self: Value, unbiased: bool = True) -> Value:
    return variance(n, self, None, int(unbiased))


@aten_op("aten.std.correction")
def deviation(
    n: AtenNode, self: Value, dim: Axes = None, correction: Unbiased = None, keepdim: bool = False
) -> Value:
    """The standard deviation: the root of the scaled variance, multiplied by the scale.  So it
    stays in range even where the variance does not.
    """
    scaled, scale = _scaled_variance(n, self, dim, correction, keepdim)
    root = sqrt(scaled)
    return n.cast(root if scale is None else root * scale, self.dtype)


@aten_op("aten.std.dim")
def deviation_unbiased(
    n: AtenNode, self: Value, dim: Axes = None, unbiased: bool = True, keepdim: bool = False
) -> Value:
    return deviation(n, self, dim, int(unbiased), keepdim)


@aten_op("aten.std.default")
def deviation_of_all(n: AtenNode, self: Value, unbiased: bool = True) -> Value:
    return deviation(n, self, None, int(unbiased))


@aten_op("aten.std_mean.correction")
def deviation_and_mean(
    n: AtenNode, self: Value, dim: Axes = None, correction: Unbiased = None, keepdim: bool = False
) -> tuple[Value, Value]:
    mean_ = reduced(n, self, dim, keepdim, reduce.ReduceMean)
    return deviation(n, self, dim, correction, keepdim), mean_


@aten_op("aten.var_mean.correction")
def variance_and_mean(
    n: AtenNode, self: Value, dim: Axes = None, correction: Unbiased = None, keepdim: bool = False
) -> tuple[Value, Value]:
    axes = axes_of(n, self, dim)
    by = 1 if correction is None else n.number(correction, "correction")
    mean_, _, variance_ = moments(self, axes) if axes else (self, None, self - self)
    kept = variance_.type.shape
    if by:
        count = n.tensor(extents.product(self.type.shape[a] for a in axes), self.dtype)
        rest = maximum(count - by, 0)
        variance_ = variance_ * (count / rest)
    if not keepdim:
        kept = tuple(d for a, d in enumerate(kept) if a not in axes)
    return n.reshape(variance_, kept), n.reshape(mean_, kept)


def _running(
    n: AtenNode, self: Value, dim: int, dtype: DType | None = None, *, make: Callable[[int], Op]
) -> Value:
    x = _wide(n, self, dtype)
    return n.add(make(n.axis(dim, x.type.rank, "dim")), x) if x.type.rank else x


aten_op("aten.cumsum.default")(partial(_running, make=scan.CumSum))
aten_op("aten.cumprod.default")(partial(_running, make=scan.CumProd))


@aten_op("aten.logcumsumexp.default")
def running_logsumexp(n: AtenNode, self: Value, dim: int) -> Value:
    axis = n.axis(dim, max(self.type.rank, 1), "dim")
    return n.add(scan.CumLogSumExp(axis), self) if self.type.rank else self


@aten_op("aten.linalg_vector_norm.default")
def vector_norm(
    n: AtenNode,
    self: Value,
    ord: Number = 2,
    dim: Axes = None,
    keepdim: bool = False,
    dtype: DType | None = None,
) -> Value:
    x, p = n.cast(self, dtype), n.number(ord, "ord")
    size = abs(x)
    if p == math.inf:
        return reduced(n, size, dim, keepdim, reduce.ReduceMax)
    if p == -math.inf:
        return reduced(n, size, dim, keepdim, reduce.ReduceMin)
    if p == 0:
        return reduced(n, n.cast(n.truth(x), x.dtype), dim, keepdim, reduce.ReduceSum)
    if p == 1:
        return reduced(n, size, dim, keepdim, reduce.ReduceSum)
    if p == 2:
        return sqrt(reduced(n, x * x, dim, keepdim, reduce.ReduceSum))
    total = reduced(n, size**p, dim, keepdim, reduce.ReduceSum)
    return total ** (1 / p)


@aten_op("aten.logsumexp.default")
def logsumexp(n: AtenNode, self: Value, dim: Axes, keepdim: bool = False) -> Value:
    return reduced(n, n.floating(self), dim, keepdim, reduce.ReduceLogSumExp)
