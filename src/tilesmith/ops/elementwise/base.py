"""The base of the elementwise operators."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

import numpy as np

from tilesmith.ir.expr import Expr
from tilesmith.ops import rules
from tilesmith.ops.base import Op
from tilesmith.te import tensor as te


class Elementwise(Op, abstract=True):
    """Base of the elementwise operators.

    arity: number of inputs.
    kinds: kinds of element types that the operator accepts.
    same: whether all inputs have one dtype.
    """

    arity: ClassVar[int] = 1
    kinds: ClassVar[tuple[str, ...]] = rules.FLOATS
    same: ClassVar[bool] = True

    element: ClassVar[Callable[..., Expr]]
    """The output element for the input elements."""
    numpy: ClassVar[Callable[..., Any]]
    """The output array for the input arrays, in NumPy."""

    def check(self, *inputs: te.Tensor) -> None:
        rules.check_count(self.name, inputs, self.arity)
        if self.same:
            rules.check_same_dtype(self.name, inputs)
        for x in inputs:
            rules.check_kind(self.name, x, self.kinds)

    def compute(self, *inputs: te.Tensor) -> te.Tensor:
        self.check(*inputs)
        shape = rules.broadcast_shapes(self.name, *(x.shape for x in inputs))
        return te.compute(
            shape,
            lambda *i: self.element(*(rules.broadcast_load(x, i, shape) for x in inputs)),
            self.name,
        )

    def reference(self, *inputs: np.ndarray) -> np.ndarray:
        with np.errstate(all="ignore"):
            return np.asarray(self.numpy(*inputs))
