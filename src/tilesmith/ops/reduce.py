"""Reductions over axes.  `axes=None` means all.  With `keepdims` reduced axes stay with extent 1.

A reduction is one reduce stage; for the mean a second stage divides.  16-bit floats are summed in
f32.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from tilesmith.ir import expr as ir
from tilesmith.ir import extents
from tilesmith.ir.dtypes import dtype as to_dtype
from tilesmith.ir.dtypes import i32, i64
from tilesmith.ir.expr import Expr, cast, const, select
from tilesmith.ir.intrinsics import call
from tilesmith.ir.types import Dim, TensorType, same_dim
from tilesmith.te import tensor as te

from . import rules
from .base import GraphBuilder, Op
from .elementwise import IsInf
from .functions import exp, log, sqrt, where


def _reduced(
    op: str, x: te.Tensor, axes: Sequence[int] | None, keepdims: bool
) -> tuple[tuple[Dim, ...], list[te.IterVar], Callable[..., Expr]]:
    """The shape of the result, the reduction axes, and a function that maps an index of the result
    to the element of x that is reduced.
    """
    gone = rules.normalize_axes(op, axes, x.rank)
    reduce_axes = {a: te.reduce_axis(x.shape[a], f"k{i}") for i, a in enumerate(gone)}
    kept = [a for a in range(x.rank) if keepdims or a not in reduce_axes]
    shape = tuple(1 if a in reduce_axes else x.shape[a] for a in kept)

    def element(*index: Expr) -> Expr:
        place = dict(zip(kept, index, strict=True))
        return x[tuple(reduce_axes[a] if a in reduce_axes else place[a] for a in range(x.rank))]

    return shape, list(reduce_axes.values()), element


@dataclass(frozen=True)
class Reduction(Op, abstract=True):
    """Base of the reductions over `axes`.  With `keepdims` these axes stay, with extent 1."""

    axes: tuple[int, ...] | None = None
    keepdims: bool = True

    kinds: ClassVar[tuple[str, ...]] = rules.NUMBERS

    def _stage(self, x: te.Tensor, combine: Callable[..., Expr], wide: bool) -> te.Tensor:
        """The reduction of x by `combine` over the axes; in the accumulation type if `wide`."""
        rules.check_kind(self.name, x, self.kinds)
        shape, axes, element = _reduced(self.name, x, self.axes, self.keepdims)
        names = [f"i{i}" for i in range(len(shape))]
        if not axes:
            return te.compute(
                shape, lambda *i: rules.widen(element(*i)) if wide else element(*i), self.name
            )

        def body(*i: Expr) -> Expr:
            value = element(*i)
            return combine(rules.widen(value) if wide else value, axis=axes)

        return te.compute(shape, body, self.name, names)

    def _numpy_axes(self, x: np.ndarray) -> tuple[int, ...]:
        return rules.normalize_axes(self.name, self.axes, x.ndim)


def _exact(ufunc: np.ufunc, x: np.ndarray, axes: tuple[int, ...], keepdims: bool) -> np.ndarray:
    """The exact result: floats are combined in f64, integers wrap in their type."""
    dtype = np.float64 if x.dtype.kind not in "iu" else x.dtype
    return np.asarray(ufunc.reduce(x, axis=axes, keepdims=keepdims, dtype=dtype))


class _Total(Reduction, abstract=True):
    """A reduction in the accumulation type."""

    combine: ClassVar[Any]
    ufunc: ClassVar[Any]

    def compute(self, *inputs: te.Tensor) -> te.Tensor:
        x = rules.only(self.name, inputs)
        return rules.narrow(self._stage(x, type(self).combine, wide=True), x.dtype)

    def reference(self, *inputs: np.ndarray) -> np.ndarray:
        x = inputs[0]
        with np.errstate(all="ignore"):
            return _exact(self.ufunc, x, self._numpy_axes(x), self.keepdims).astype(x.dtype)


class ReduceSum(_Total):
    """Sum over `axes`."""

    combine: ClassVar[Any] = staticmethod(te.sum)
    ufunc: ClassVar[Any] = np.add


class ReduceMean(Reduction):
    """The sum, then a division by the count; integers round toward zero."""

    def compute(self, *inputs: te.Tensor) -> te.Tensor:
        x = rules.only(self.name, inputs)
        total = self._stage(x, te.sum, wide=True)
        count = rules.product(
            x.shape[a] for a in rules.normalize_axes(self.name, self.axes, x.rank)
        )
        divide = "div" if x.dtype.is_float else "truncdiv"
        by = cast(ir.as_expr(count), total.dtype)
        if isinstance(count, int):
            by = const(count, total.dtype)
        return te.compute(
            total.shape, lambda *i: cast(ir.binary(divide, total[i], by), x.dtype), "mean"
        )

    def reference(self, *inputs: np.ndarray) -> np.ndarray:
        x = inputs[0]
        axes = self._numpy_axes(x)
        count = int(np.prod([x.shape[a] for a in axes], dtype=np.int64))
        with np.errstate(all="ignore"):
            total = _exact(np.add, x, axes, self.keepdims)
            if x.dtype.kind in "iu":
                by = x.dtype.type(count)
                return np.asarray((total - np.fmod(total, by)) // by).astype(x.dtype)
            return np.asarray(total / count).astype(x.dtype)


class ReduceProd(_Total):
    """Product over `axes`."""

    combine: ClassVar[Any] = staticmethod(te.prod)
    ufunc: ClassVar[Any] = np.multiply


class _Extreme(Reduction, abstract=True):
    """Minimum or maximum; over bools it is `all` or `any`.  A NaN gives NaN."""

    kinds: ClassVar[tuple[str, ...]] = rules.ANY
    combine: ClassVar[Any]
    ufunc: ClassVar[Any]
    is_max: ClassVar[bool]

    def compute(self, *inputs: te.Tensor) -> te.Tensor:
        x = rules.only(self.name, inputs)
        rules.check_arithmetic(self.name, x)
        return self._stage(x, type(self).combine, wide=False)

    def reference(self, *inputs: np.ndarray) -> np.ndarray:
        x = inputs[0]
        dtype = to_dtype(x.dtype)
        start = dtype.min if self.is_max else dtype.max
        initial = np.asarray(start).astype(x.dtype)[()]
        return np.asarray(
            type(self).ufunc.reduce(
                x, axis=self._numpy_axes(x), keepdims=self.keepdims, initial=initial
            )
        )


class ReduceMin(_Extreme):
    """Minimum over `axes`; of bools, whether all are true.  A NaN gives NaN."""

    combine: ClassVar[Any] = staticmethod(te.min)
    ufunc: ClassVar[Any] = np.minimum
    is_max: ClassVar[bool] = False


class ReduceMax(_Extreme):
    """Maximum over `axes`; of bools, whether any is true.  A NaN gives NaN."""

    combine: ClassVar[Any] = staticmethod(te.max)
    ufunc: ClassVar[Any] = np.maximum
    is_max: ClassVar[bool] = True


class ReduceL1(Reduction):
    """Sum of absolute values."""

    def decompose(self, b: GraphBuilder, *inputs: Any) -> Any:
        return abs(rules.only(self.name, inputs)).sum(self.axes, self.keepdims)

    def reference(self, *inputs: np.ndarray) -> np.ndarray:
        x = rules.exact(inputs[0])
        total = np.sum(np.abs(x), self._numpy_axes(x), x.dtype, keepdims=self.keepdims)
        return np.asarray(total).astype(inputs[0].dtype)


class ReduceSumSquare(Reduction):
    """Sum of squares over `axes`."""

    def decompose(self, b: GraphBuilder, *inputs: Any) -> Any:
        x = rules.only(self.name, inputs)
        return (x * x).sum(self.axes, self.keepdims)

    def reference(self, *inputs: np.ndarray) -> np.ndarray:
        x = rules.exact(inputs[0])
        total = np.sum(x**2, self._numpy_axes(x), x.dtype, keepdims=self.keepdims)
        return np.asarray(total).astype(inputs[0].dtype)


class ReduceL2(Reduction):
    """Square root of the sum of squares."""

    def decompose(self, b: GraphBuilder, *inputs: Any) -> Any:
        return sqrt(b.add(ReduceSumSquare(self.axes, self.keepdims), *inputs))

    def reference(self, *inputs: np.ndarray) -> np.ndarray:
        x = rules.exact(inputs[0])
        total = np.sum(x**2, self._numpy_axes(x), keepdims=self.keepdims)
        return np.asarray(np.sqrt(total)).astype(inputs[0].dtype)


class ReduceLogSum(Reduction):
    """log(sum(x)) over `axes`."""

    def decompose(self, b: GraphBuilder, *inputs: Any) -> Any:
        return log(b.add(ReduceSum(self.axes, self.keepdims), *inputs))

    def reference(self, *inputs: np.ndarray) -> np.ndarray:
        x = rules.exact(inputs[0])
        total = np.sum(x, self._numpy_axes(x), keepdims=self.keepdims)
        return np.asarray(np.log(total)).astype(inputs[0].dtype)


class ReduceLogSumExp(Reduction):
    """log(sum(exp(x))), shifted by the maximum so that it does not overflow."""

    def decompose(self, b: GraphBuilder, *inputs: Any) -> Any:
        x = rules.only(self.name, inputs)
        top = x.max(self.axes, keepdims=True)
        shift = where(b.add(IsInf(), top), 0, top)  # otherwise inf - inf would give NaN
        total = exp(x - shift).sum(self.axes, self.keepdims)
        if not self.keepdims:
            # The shift keeps the reduced axes with extent 1.  A maximum over these axes drops the
            # axes.
            shift = shift.max(self.axes)
        return log(total) + shift

    def reference(self, *inputs: np.ndarray) -> np.ndarray:
        y, axes = rules.exact(inputs[0]), self._numpy_axes(inputs[0])
        for axis in axes:
            y = np.logaddexp.reduce(y, axis, keepdims=True)
        return (y if self.keepdims else np.squeeze(y, axes)).astype(inputs[0].dtype)


@dataclass(frozen=True)
class _ArgExtreme(Op, abstract=True):
    """Index (i64) of the extreme along `axis`; the first or the last of equal extremes or NaNs."""

    axis: int = 0
    keepdims: bool = True
    select_last_index: bool = False

    is_max: ClassVar[bool]

    def slack(self, *types: TensorType) -> tuple[Dim, ...]:
        return (extents.difference(types[0].shape[self.axis], 1),)

    def compute(self, *inputs: te.Tensor) -> te.Tensor:
        x = rules.only(self.name, inputs)
        rules.check_kind(self.name, x, rules.NUMBERS)
        axis = rules.normalize_axis(self.name, self.axis, x.rank)
        if same_dim(x.shape[axis], 0):
            rules.reject(self.name, f"at least one element along axis {axis}", "none")
        # two passes, each a plain extreme: first the value, then the index of that value
        shape, (k,), element = _reduced(self.name, x, (axis,), self.keepdims)
        extreme = te.max if self.is_max else te.min
        best = te.compute(shape, lambda *i: extreme(element(*i), axis=k), self.name)
        shape, (k,), element = _reduced(self.name, x, (axis,), self.keepdims)
        extent = x.shape[axis]
        index = i32 if isinstance(extent, int) and extent <= i32.max else i64
        first_or_last = te.max if self.select_last_index else te.min
        nowhere = const(-1 if self.select_last_index else index.max, index)

        def place(*i: Expr) -> Expr:
            value = element(*i)
            is_extreme = value == best[i]
            if x.dtype.is_float:  # the extreme may be NaN, which equals nothing
                is_extreme = ir.any_of(is_extreme, call("isnan", value))
            return first_or_last(select(is_extreme, cast(k.var, index), nowhere), axis=k)

        places = te.compute(shape, place, "place")
        return te.compute(shape, lambda *i: cast(places[i], i64), "index")

    def reference(self, *inputs: np.ndarray) -> np.ndarray:
        x = rules.widen_array(inputs[0])
        axis = rules.normalize_axis(self.name, self.axis, x.ndim)
        find = np.argmax if self.is_max else np.argmin
        if self.select_last_index:
            flipped = find(np.flip(x, axis), axis=axis, keepdims=self.keepdims)
            return np.asarray(x.shape[axis] - 1 - flipped).astype(np.int64)
        return np.asarray(find(x, axis=axis, keepdims=self.keepdims)).astype(np.int64)


class ArgMax(_ArgExtreme):
    """Index (i64) of the maximum along `axis`; of equal maxima the first, or the last."""

    is_max: ClassVar[bool] = True


class ArgMin(_ArgExtreme):
    """Index (i64) of the minimum along `axis`; of equal minima the first, or the last."""

    is_max: ClassVar[bool] = False
