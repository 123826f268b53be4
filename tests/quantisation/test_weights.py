"""Weights in integers, and the rounding that makes up for its errors."""

from __future__ import annotations

import numpy as np
import pytest

from tilesmith.graph.builder import Builder
from tilesmith.ir.dtypes import f32
from tilesmith.ir.types import TensorType
from tilesmith.ops.matmul import MatMul
from tilesmith.quantisation.layers import Layer, layers_of
from tilesmith.quantisation.weights import in_groups, per_channel


def _layer(w: np.ndarray, transposed: bool = False) -> Layer:
    b = Builder("layer")
    x = b.input("x", TensorType(f32, (3, w.shape[1 if transposed else 0])))
    (layer,) = layers_of(b.finish(b.add(MatMul(transpose_b=transposed), x, b.constant(w, "w"))))
    return layer


@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize("k", [64, 50])
def test_groups_of_inputs_share_a_scale(transposed: bool, k: int):
    rng = np.random.default_rng(k)
    w = rng.standard_normal((k, 7)).astype(np.float32)
    w[:16] *= 100
    given = np.ascontiguousarray(w.T) if transposed else w
    found = in_groups(_layer(given, transposed), 16)
    values = found.values.T if transposed else found.values
    assert found.integers.shape == given.shape and values.shape == w.shape
    relative = np.abs(values - w)[16:].max() / np.abs(w[16:]).max()
    assert relative < 0.1, "large weights of another group do no harm"
    assert np.abs(per_channel(_layer(given, transposed)).values - given).max() <= (
        np.abs(w).max() / 127
    )


@pytest.mark.parametrize("seed", range(4))
def test_feedback_makes_the_error_of_results_smaller(seed: int):
    """Inputs are correlated, as those of real layers."""
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((500, 12)) @ rng.standard_normal((12, 48))
    x = (x + 0.1 * rng.standard_normal(x.shape)).astype(np.float32)
    w = rng.standard_normal((48, 10)).astype(np.float32)
    layer = _layer(w)

    def error(values: np.ndarray) -> float:
        return float(np.square(x @ values - x @ w).sum() / np.square(x @ w).sum())

    plain, better = in_groups(layer, 16), in_groups(layer, 16, x.T @ x)
    assert error(better.values) < 0.5 * error(plain.values)
    assert np.array_equal(layer.weights, w), "the weights themselves are not written to"


def test_inputs_that_are_always_zero_do_no_harm():
    w = np.random.default_rng(0).standard_normal((32, 4)).astype(np.float32)
    x = np.random.default_rng(1).standard_normal((100, 32)).astype(np.float32)
    x[:, 5] = 0
    found = in_groups(_layer(w), 16, x.T @ x)
    assert np.isfinite(found.values).all()
