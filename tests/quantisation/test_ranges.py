"""Calibration: what is kept of values, and the ranges that follow."""

from __future__ import annotations

import numpy as np
import pytest

from tilesmith.ir.dtypes import i8, u8
from tilesmith.quantisation.histogram import HALF, Observed
from tilesmith.quantisation.ranges import METHODS, affine, calibrated


def _seen(*arrays: np.ndarray, axis: int = -1, moments: bool = False) -> Observed:
    seen = Observed(axis % arrays[0].ndim, with_moments=moments)
    for a in arrays:
        seen.add(a)
    return seen


@pytest.mark.parametrize("seed", range(3))
def test_a_histogram_of_growing_values_is_that_of_all_values(seed: int):
    rng = np.random.default_rng(seed)
    parts = [rng.standard_normal((50, 4)).astype(np.float32) * 3**i for i in range(5)]
    seen, whole = _seen(*parts, moments=True), np.concatenate(parts)
    assert seen.largest is not None and seen.moments is not None
    assert (seen.low, seen.high) == (whole.min(), whole.max())
    assert seen.bins.sum() == whole.size
    expected = np.histogram(whole, 2 * HALF, (-seen.reach, seen.reach))[0]
    # a value on the border of a bin may lie in the next one
    assert np.abs(np.cumsum(seen.bins) - np.cumsum(expected)).max() <= 2
    np.testing.assert_allclose(seen.mean, whole.mean(0), rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(seen.largest, np.abs(whole).max(0))
    np.testing.assert_allclose(seen.moments, whole.T @ whole, rtol=1e-4, atol=1e-2)
    assert seen.ranges == [(p.min(), p.max()) for p in parts]


@pytest.mark.parametrize("to", [u8, i8])
@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("seed", range(3))
def test_a_range_includes_zero_exactly_and_lies_within_the_values(method, to, seed):
    rng = np.random.default_rng(seed)
    x = (rng.standard_normal(5000) * 2 + seed - 1).astype(np.float32).reshape(-1, 1)
    found = calibrated(_seen(x), method, to)
    assert found is not None
    assert found.round(np.zeros(1))[0] == 0
    assert found.low >= min(x.min(), 0) - found.scale and found.high <= x.max() + found.scale
    inside = x[(x >= found.low) & (x <= found.high)]
    assert np.abs(found.round(inside) - inside).max() <= found.scale * 0.5001
    assert len(inside) > 0.9 * x.size


def test_methods_differ_as_they_should_on_a_tail():
    """One outlier of 20 among normal values: by far the largest error, but only one."""
    x = np.random.default_rng(0).standard_normal((1_000_000, 1)).astype(np.float32)
    x[7] = 20.0
    seen = _seen(x)
    highest = {}
    for method in METHODS:
        found = calibrated(seen, method, u8)
        assert found is not None
        highest[method] = found.high
    assert highest["minmax"] > 19.9
    assert highest["percentile"] < 5 and highest["entropy"] < 10 and highest["mse"] < 10


def test_mean_squared_error_beats_every_other_range():
    x = np.random.default_rng(1).laplace(size=(20_000, 1)).astype(np.float32)
    seen = _seen(x)
    errors = {}
    for method in METHODS:
        found = calibrated(seen, method, i8)
        assert found is not None
        errors[method] = float(np.square(found.round(x) - x).mean())
    assert errors["mse"] <= min(errors.values()) * 1.02


def test_a_range_of_zero_or_of_less_than_f32_has_no_scale():
    assert affine(0.0, 0.0, u8) is None
    assert affine(0.0, 1e-44, u8) is None
    constant = calibrated(_seen(np.full((4, 1), 3.0, np.float32)), "minmax", u8)
    assert constant is not None and constant.round(np.asarray([3.0]))[0] == pytest.approx(3.0)


@pytest.mark.parametrize("size", [1e-45, 1e-40, 1e-20, 1e20, 1e38, 3e38])
def test_values_at_the_ends_of_f32(size: float) -> None:
    seen = Observed(1)
    for x in (np.full((4, 2), size, np.float32), np.full((4, 2), -size / 2, np.float32)):
        seen.add(x)
    is_seen = size > 1e-30
    assert (seen.high, seen.low) == pytest.approx((size, -size / 2) if is_seen else (0.0, 0.0))
    assert seen.bins.sum() == (16 if is_seen else 0)
    assert seen.squares == pytest.approx([5 * size**2] * 2) and np.isfinite(seen.centres).all()
