"""Exponential activations keep their digits near zero, where exp(x) - 1 cancels."""

from __future__ import annotations

import mpmath
import numpy as np
import pytest

from tilesmith import driver
from tilesmith.graph.builder import Builder
from tilesmith.ir.dtypes import DType, f32, f64
from tilesmith.ir.types import TensorType
from tilesmith.ops.activation import Celu, Elu, Selu
from tilesmith.support.options import Options

X = np.concatenate([-np.logspace(-30, 1.5, 400), -np.linspace(0.2, 0.3, 101), [0.0, -0.0, 0.5]])
SELU = Selu()


@pytest.mark.parametrize("dtype", (f32, f64), ids=str)
@pytest.mark.parametrize(
    ("op", "scale"), [(Elu(1.3), 1.3), (Celu(1.0), 1.0), (SELU, SELU.alpha * SELU.gamma)]
)
def test_digits_near_zero(op: Elu | Celu | Selu, scale: float, dtype: DType) -> None:
    x = X.astype(dtype.numpy)
    b = Builder("net")
    graph = b.finish([b.add(op, b.input("x", TensorType(dtype, x.shape)))], ["y"])
    found = driver.compile(graph, options=Options(use_cache=False)).run({"x": x})["y"]
    negative = x < 0
    with mpmath.workdps(40):
        right = [mpmath.expm1(mpmath.mpf(float(v))) * scale for v in x[negative]]
        off = [abs((mpmath.mpf(float(f)) - r) / r) for f, r in zip(found[negative], right)]
    assert max(off) < 6 * np.finfo(dtype.numpy).eps
