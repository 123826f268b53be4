"""Divisors, with a check that none is 0."""

from __future__ import annotations

import numpy as np

from tilesmith.ir.expr import Expr
from tilesmith.ir.intrinsics import checked_divisor
from tilesmith.te import tensor as te

from . import rules
from .base import Op
from .gather import linear


class Divisor(Op):
    """Integers, unchanged, for use as divisors.  A zero raises ModelError at run time."""

    def compute(self, *inputs: te.Tensor) -> te.Tensor:
        y = rules.only(self.name, inputs)
        rules.check_kind(self.name, y, rules.INTEGERS)

        def checked(*i: Expr) -> Expr:
            return checked_divisor(y[i], linear(i, y.shape))

        return te.compute(y.shape, checked, self.name)

    def reference(self, *inputs: np.ndarray) -> np.ndarray:
        zeros = np.flatnonzero(inputs[0] == 0)
        if zeros.size:
            rules.reject(self.name, "divisors other than 0", f"0 at position {zeros[0]}")
        return inputs[0]
