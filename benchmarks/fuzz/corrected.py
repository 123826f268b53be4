"""Operators that the reference evaluator computes otherwise than the specification says."""

from __future__ import annotations

from typing import Any

import numpy as np
from onnx.reference.op_run import OpRun
from onnx.reference.ops.op_resize import Resize as ResizeAsShipped

Array = np.ndarray


class LpNormalization(OpRun):
    """That of the evaluator adds numbers with their signs where p is 1."""

    op_domain = ""

    def _run(self, x: Array, axis: int | None = None, p: int | None = None) -> tuple[Array]:
        axis, p = -1 if axis is None else axis, p or 2
        norm = (np.abs(x) ** p).sum(axis=axis, keepdims=True) ** (1 / p)
        return (np.where(norm == 0, 0, x / norm).astype(x.dtype),)


class LRN(OpRun):
    """That of the evaluator sums the squares of as many channels as there are images."""

    op_domain = ""

    def _run(self, x: Array, alpha: float, beta: float, bias: float, size: int) -> tuple[Array]:
        before, after = (size - 1) // 2, size // 2
        squares = np.pad(x, [(0, 0), (before, after), *[(0, 0)] * (x.ndim - 2)]) ** 2
        sums = sum(squares[:, i : i + x.shape[1]] for i in range(size))
        return ((x / (bias + alpha / size * sums) ** beta).astype(x.dtype),)


class Resize(ResizeAsShipped):
    """With `pytorch_half_pixel`, the coordinate along an axis of one result is 0; that of the
    evaluator is -0.5.
    """

    op_domain = ""

    def _run(self, X: Array, roi: Any, scales: Any = None, sizes: Any = None, **more: Any) -> Any:
        if more["coordinate_transformation_mode"] == "pytorch_half_pixel":
            factors = np.asarray(sizes) / X.shape if scales is None else np.asarray(scales)
            single = factors * X.shape == 1
            if single.any():
                at_0 = more | {"coordinate_transformation_mode": "asymmetric"}
                (X,) = super()._run(X, roi, np.where(single, factors, 1.0), None, **at_0)
                scales, sizes = np.where(single, 1.0, factors), None
        return super()._run(X, roi, scales, sizes, **more)


CORRECTED = [LpNormalization, LRN, Resize]
