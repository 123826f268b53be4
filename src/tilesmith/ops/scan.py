"""Running sums, products and extremes, and linear recurrences."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from tilesmith.ir.dtypes import DType
from tilesmith.ir.dtypes import dtype as to_dtype
from tilesmith.ir.expr import Expr, cast, const, maximum, minimum, select
from tilesmith.ir.intrinsics import call
from tilesmith.ir.types import TensorType
from tilesmith.loop.builder import LoopBuilder
from tilesmith.loop.nodes import Func

from . import rules
from .base import Op


@dataclass(frozen=True)
class Scan(Op, abstract=True):
    """Base of the scans: sequential along `axis`, independent along the others.

    axis: axis of the lines that are scanned.
    exclusive: whether the element itself is omitted.
    reverse: whether the scan runs from the end.
    """

    axis: int
    exclusive: bool = False
    reverse: bool = False

    identity: ClassVar[Callable[[DType], int | float]]
    combine: ClassVar[Callable[..., Expr]]
    accumulate: ClassVar[Any]
    arity: ClassVar[int] = 1

    def infer(self, *types: TensorType) -> tuple[TensorType, ...]:
        rules.check_count(self.name, types, self.arity)
        x = types[0]
        rules.check_kind(self.name, x, rules.NUMBERS)
        rules.normalize_axis(self.name, self.axis, x.rank)
        return (x,)

    def loops(self, *types: TensorType) -> Func:
        shape, dtype = types[0].shape, types[0].dtype
        axis = self.axis % len(shape)
        b = LoopBuilder(self.name)
        operands = [b.input(f"x{n}" if n else "x", t) for n, t in enumerate(types)]
        y = b.output("y", types[0])
        wide = rules.accumulator(dtype)
        inner = shape[axis + 1 :]
        # The row of totals needs a constant size.  A single total is a scalar in a register.
        row = tuple(d for d in inner[-1:] if isinstance(d, int) and d != 1)
        lines = inner[: len(inner) - len(row)]
        with b.independent_nest(shape[:axis], "o") as o, b.independent_nest(lines, "m") as m:
            total = b.scratch("total", wide, row or (1,), "heap" if row else "register")
            with b.independent_nest(row) as i:
                total[i or 0] = const(type(self).identity(wide), wide)
            with b.loop(shape[axis], "t") as t, b.independent_nest(row) as i:
                point = (*o, shape[axis] - 1 - t if self.reverse else t, *m, *i)
                old = b.let("old", total[i or 0])
                new = b.let(
                    "new", type(self).combine(old, *(rules.widen(x[point]) for x in operands))
                )
                total[i or 0] = new
                y[point] = cast(old if self.exclusive else new, dtype)
        return b.finish()

    def reference(self, *inputs: np.ndarray) -> np.ndarray:
        x = np.moveaxis(inputs[0], self.axis, 0)
        wide = x if x.dtype.kind in "iu" else x.astype(np.float64)
        if self.reverse:
            wide = np.flip(wide, 0)
        result = type(self).accumulate(wide, axis=0, dtype=wide.dtype)
        if self.exclusive:
            first = np.full_like(result[:1], type(self).identity(to_dtype(wide.dtype)))
            result = np.concatenate([first, result[:-1]])
        if self.reverse:
            result = np.flip(result, 0)
        return np.moveaxis(result, 0, self.axis).astype(inputs[0].dtype)


class CumSum(Scan):
    """Running sum along `axis`.

    exclusive: whether the element itself is omitted.
    reverse: whether the sum runs from the end.
    """

    identity = staticmethod(lambda _: 0)
    combine = staticmethod(lambda a, b: a + b)
    accumulate = staticmethod(np.cumsum)


class CumProd(Scan):
    """Running product along `axis`, with `exclusive` and `reverse` as for `cum_sum`."""

    identity = staticmethod(lambda _: 1)
    combine = staticmethod(lambda a, b: a * b)
    accumulate = staticmethod(np.cumprod)


class CumMax(Scan):
    """Running maximum along `axis`; `exclusive` and `reverse` as in `cum_sum`; NaN from the first
    NaN on.
    """

    identity = staticmethod(lambda dtype: dtype.min)
    combine = staticmethod(maximum)
    accumulate = staticmethod(np.maximum.accumulate)


class CumMin(Scan):
    """Running minimum along `axis`; `exclusive` and `reverse` as in `cum_sum`; NaN from the first
    NaN on.
    """

    identity = staticmethod(lambda dtype: dtype.max)
    combine = staticmethod(minimum)
    accumulate = staticmethod(np.minimum.accumulate)


def _log_of_sum(a: Expr, b: Expr) -> Expr:
    """log(exp(a) + exp(b)).  Equal infinities are special, because their difference is NaN."""
    rest = call("log1p", call("exp", -call("abs", a - b)))
    return select(a == b, a + math.log(2), maximum(a, b) + rest)


class CumLogSumExp(Scan):
    """Logarithm of a running sum of exponentials; `axis`, `exclusive`, `reverse`: see `cum_sum`."""

    identity = staticmethod(lambda _: -math.inf)
    combine = staticmethod(_log_of_sum)
    accumulate = staticmethod(np.logaddexp.accumulate)

    def infer(self, *types: TensorType) -> tuple[TensorType, ...]:
        types_of_result = super().infer(*types)
        rules.check_kind(self.name, types[0], rules.FLOATS)
        return types_of_result


class LinearRecurrence(Scan):
    """y[t] = a[t] y[t - 1] + x[t] along `axis`, with y = 0 before the first element.

    Inputs: a, x, floats of one type and shape.  `exclusive` and `reverse` as in `cum_sum`, so the
    result of `exclusive` is y[t - 1].
    """

    arity = 2
    identity = staticmethod(lambda _: 0)
    combine = staticmethod(lambda y, a, x: a * y + x)

    def infer(self, *types: TensorType) -> tuple[TensorType, ...]:
        types_of_result = super().infer(*types)
        a, x = types
        rules.check_kind(self.name, a, rules.FLOATS)
        if a.dtype is not x.dtype or not rules.equal_shapes(self.name, a.shape, x.shape):
            rules.reject(self.name, "a and x of one type and shape", f"{a} and {x}")
        return types_of_result

    def reference(self, *inputs: np.ndarray) -> np.ndarray:
        a, x = (np.moveaxis(v, self.axis, 0).astype(np.float64) for v in inputs)
        order = range(len(x))[::-1] if self.reverse else range(len(x))
        y, total = np.zeros_like(x), np.zeros_like(x[:1].sum(0))
        for t in order:
            before, total = total, a[t] * total + x[t]
            y[t] = before if self.exclusive else total
        return np.moveaxis(y, 0, self.axis).astype(inputs[0].dtype)
