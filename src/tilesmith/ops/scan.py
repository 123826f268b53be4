"""Running sums, written as reductions over the elements before."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from tilesmith.ir import expr as ir
from tilesmith.ir.expr import Expr, const
from tilesmith.te import tensor as te

from . import rules
from .base import Op

_SHORT = 64
"""Up to this many elements the work of one quadratic stage is less than that of three smaller ones.
"""


@dataclass(frozen=True)
class CumSum(Op):
    """Running sum along `axis`; `exclusive` leaves the element itself out, `reverse` runs from the
    end.

    Long axes are cut into blocks of about sqrt(n): a sum per block, the sums of the blocks before,
    and the running sum inside the block, n * sqrt(n) additions in all, every output element
    independent of the others.
    """

    axis: int
    exclusive: bool = False
    reverse: bool = False

    def compute(self, *inputs: te.Tensor) -> te.Tensor:
        rules.check_count(self.name, inputs, 1)
        x = inputs[0]
        rules.check_kind(self.name, x, rules.NUMBERS)
        axis = rules.normalize_axis(self.name, self.axis, x.rank)
        n = rules.static(self.name, x.shape[axis], "the axis of a running sum")
        if n <= _SHORT:
            k = te.reduce_axis(n, "k")

            def direct(*i: Expr) -> Expr:
                return te.sum(self._counted(x, i, axis, k.var, n, is_inside=True), axis=k)

            return rules.narrow(te.compute(x.shape, direct, self.name), x.dtype)
        block = math.isqrt(n - 1) + 1
        count = -(-n // block)
        lead = (*x.shape[:axis], count, *x.shape[axis + 1 :])
        t, m, u = te.reduce_axis(block, "t"), te.reduce_axis(count, "m"), te.reduce_axis(block, "u")

        def total(*i: Expr) -> Expr:
            at = i[axis] * block + t.var
            value = rules.widen(x[(*i[:axis], at, *i[axis + 1 :])])
            inside = te.if_then_else(at < n, value, const(0, value.dtype)) if n % block else value
            return te.sum(inside, axis=t)

        totals = te.compute(lead, total, "totals")

        def before(*i: Expr) -> Expr:
            value = totals[(*i[:axis], m.var, *i[axis + 1 :])]
            counts = m.var > i[axis] if self.reverse else m.var < i[axis]
            return te.sum(te.if_then_else(counts, value, const(0, value.dtype)), axis=m)

        sums = te.compute(lead, before, "before")

        def inside(*i: Expr) -> Expr:
            at = i[axis] // block * block + u.var
            return te.sum(self._counted(x, i, axis, at, n, is_inside=n % block == 0), axis=u)

        local = te.compute(x.shape, inside, "inside")

        def join(*i: Expr) -> Expr:
            return sums[(*i[:axis], i[axis] // block, *i[axis + 1 :])] + local[i]

        return rules.narrow(te.compute(x.shape, join, self.name), x.dtype)

    def _counted(
        self, x: te.Tensor, i: tuple[Expr, ...], axis: int, at: Expr, n: int, is_inside: bool
    ) -> Expr:
        """The element at position `at` if it counts for output `i`, else 0."""
        value = rules.widen(x[(*i[:axis], at, *i[axis + 1 :])])
        low, high = (i[axis], at) if self.reverse else (at, i[axis])
        counts = low < high if self.exclusive else low <= high
        if self.reverse and not is_inside:
            counts = ir.all_of(counts, at < n)
        return te.if_then_else(counts, value, const(0, value.dtype))

    def reference(self, *inputs: np.ndarray) -> np.ndarray:
        x = inputs[0]
        wide = x if x.dtype.kind in "iu" else x.astype(np.float64)
        if self.reverse:
            wide = np.flip(wide, self.axis)
        result = np.cumsum(wide, self.axis, dtype=wide.dtype)
        if self.exclusive:
            shifted = np.zeros_like(result)
            head = [slice(None)] * x.ndim
            tail = [slice(None)] * x.ndim
            head[self.axis], tail[self.axis] = slice(1, None), slice(None, -1)
            shifted[tuple(head)] = result[tuple(tail)]
            result = shifted
        return (np.flip(result, self.axis) if self.reverse else result).astype(x.dtype)
