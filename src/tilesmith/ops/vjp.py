"""The vector-Jacobian product of a primitive operator, derived from its tensor expression."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tilesmith.ir.dtypes import dtype as to_dtype
from tilesmith.ir.types import TensorType
from tilesmith.loop.interpret import interpret
from tilesmith.te import tensor as te
from tilesmith.te.gradient import gradient
from tilesmith.te.lower import lower
from tilesmith.te.schedule import create_schedule

from . import rules
from .base import Op


@dataclass(frozen=True)
class Vjp(Op):
    """The gradient of operand number `operand` of the primitive operator `of` (`te.gradient`).

    Inputs: the operands of `of` with the numbers `read`, then the cotangents of its results with
    the numbers `results`.  Cotangents of other results are zero.

    types: types of all operands of `of`.
    read: numbers of the operands on which the gradient depends.
    results: numbers of the results of `of` that have a cotangent.
    """

    heavy_reference = True

    of: Op
    types: tuple[TensorType, ...]
    operand: int
    read: tuple[int, ...]
    results: tuple[int, ...] = (0,)

    def __post_init__(self) -> None:
        # the name of a user's operator does not determine the gradient
        object.__setattr__(self, "custom", self.of.custom)

    @staticmethod
    def derived(
        of: Op, types: tuple[TensorType, ...], operand: int, results: tuple[int, ...]
    ) -> Vjp | None:
        """The operator that computes the gradient.  Its inputs are the operands, and the cotangents
        of `results`, on which the gradient depends.  None for a gradient of zero.  Raises
        ExpressionError if `of` has no derivative.
        """
        tensors = of.tensors(*types)
        outputs = [tensors.outputs[n] for n in results]
        cotangents = [te.placeholder(y.shape, y.dtype) for y in outputs]
        (result,) = gradient(outputs, [tensors.inputs[operand]], cotangents)
        used = te.producers_first([result.op])
        needed = tuple(n for n, g in zip(results, cotangents, strict=True) if g.op in used)
        read = tuple(n for n, x in enumerate(tensors.inputs) if x.op in used)
        return Vjp(of, types, operand, read, needed) if needed else None

    def compute(self, *inputs: te.Tensor) -> te.Tensor:
        rules.check_count(self.name, inputs, len(self.read) + len(self.results))
        values = dict(zip(self.read, inputs, strict=False))
        operands = [
            values[n] if n in values else te.placeholder(t.shape, t.dtype)
            for n, t in enumerate(self.types)
        ]
        x = operands[self.operand]
        if sum(x is other for other in operands) > 1:  # differentiate by this occurrence only
            x = operands[self.operand] = te.compute(x.shape, lambda *i, x=x: x[i], "operand")
        result = self.of.compute(*operands)
        outputs = result if isinstance(result, tuple) else (result,)
        chosen = [outputs[n] for n in self.results]
        cotangents = inputs[len(self.read) :]
        wanted = (*(self.types[n] for n in self.read), *chosen)
        for x_, w in zip(inputs, wanted, strict=True):
            if x_.dtype is not w.dtype or not rules.equal_shapes(self.name, x_.shape, w.shape):
                rules.reject(self.name, f"an input {w}", repr(x_))
        return gradient(chosen, [x], cotangents)[0]

    def reference(self, *inputs: np.ndarray) -> np.ndarray:
        tensors = self.tensors(*_types(inputs))
        func = lower(create_schedule(tensors.outputs[0].op), [*tensors.inputs, *tensors.outputs])
        (t,) = self.infer(*_types(inputs))
        result = np.zeros(t.static_shape, t.dtype.numpy)
        interpret(func, [*(np.asarray(x, order="C") for x in inputs), result])
        return result


def _types(arrays: tuple[np.ndarray, ...]) -> tuple[TensorType, ...]:
    return tuple(TensorType(to_dtype(a.dtype), a.shape) for a in arrays)
