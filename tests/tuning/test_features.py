"""Features of candidates: symbols against numbers, footprints against counting, any workload."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from templates import convolution, counting, gemm, partial_sums

from tilesmith.codegen.targets import target
from tilesmith.strategy.knobs import Config
from tilesmith.tuning.features import features_of
from tilesmith.tuning.space import Space

TARGET = target("x86-64-v3")


@pytest.mark.parametrize(
    ("template", "symbols"),
    [
        (gemm, "all numbers"),
        (convolution, "all numbers"),
        (partial_sums, "all numbers"),
        (counting, "split factors"),
    ],
)
def test_symbols_and_numbers_give_the_same_features(
    template: Callable[[Config], Any], symbols: str
) -> None:
    space = Space(template)
    f = features_of(space, TARGET, threads=4)
    rng = random.Random(7)
    candidates = [space.random(rng) for _ in range(40)]
    found = np.stack([f.structure(c).features(f.structure(c).encode([c]))[0] for c in candidates])
    expected = np.stack([f.concrete(c) for c in candidates])
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(f(candidates), expected, rtol=1e-5, atol=1e-5)
    assert f.symbolic == symbols
    assert len(np.unique(expected, axis=0)) > len(candidates) / 4
