"""The ten odd operators of the benchmarks: on small sizes, what te computes is what NumPy does."""

from __future__ import annotations

import importlib
import random
from typing import Any

import numpy as np
import pytest

import tilesmith as ts
from tilesmith import te
from tilesmith.codegen.targets import target
from tilesmith.search_space.space import Space
from tilesmith.strategy.sketch import generated
from tilesmith.te.knobs import Config
from tilesmith.te.tensor import Placeholder

odd: Any = importlib.import_module("odd")

SIZES: dict[str, dict[str, int]] = {
    "Deformable": {"size": 7, "channels": 5, "filters": 6},
    "Octave": {"size": 14, "channels": 5},
    "DilatedDepthwise": {"size": 9, "channels": 5, "dilation": 2},
    "ShuffledGroups": {"batch": 2, "size": 3, "channels": 20, "middle": 12, "groups": 4},
    "Capsules": {"batch": 3, "lower": 7, "upper": 2, "length": 5, "longer": 6},
    "Convolution3d": {"depth": 3, "size": 9, "channels": 3, "filters": 19},
    "Correlation": {"channels": 5, "height": 6, "width": 7, "reach": 2},
    "LocalResponse": {"batch": 2, "channels": 7, "edge": 5},
    "Nearest": {"vectors": 21, "words": 19, "length": 6},
    "Triangular": {"rows": 23, "columns": 18},
}


def small(kind: type) -> Any:
    return kind(**SIZES[kind.__name__])


def run(s: te.Schedule, args: list[te.Tensor], arrays: list[np.ndarray]) -> list[np.ndarray]:
    outs = [t for t in args if not isinstance(t.op, Placeholder)]
    results = [np.zeros(tuple(t.shape), t.dtype.numpy) for t in outs]
    ts.build(s, args)(*arrays, *results)
    return results


@pytest.mark.parametrize("kind", odd.OPERATORS, ids=lambda k: k.__name__)
def test_the_expression_says_what_numpy_says(kind):
    operator = small(kind)
    arrays = operator.arrays(np.random.default_rng(0))
    args = operator.define()
    s = te.create_schedule([t.op for t in args if not isinstance(t.op, Placeholder)])
    expected = operator.reference(*arrays)
    assert operator.difference(run(s, args, arrays), expected, arrays) < 1e-5


@pytest.mark.parametrize("level", ["native", "x86-64-v3"])
@pytest.mark.parametrize("kind", odd.OPERATORS, ids=lambda k: k.__name__)
def test_generated_schedules_say_what_numpy_says(kind, level):
    """What the rules choose, and schedules some random decisions away, on sizes with tails."""
    operator = small(kind)
    arrays = operator.arrays(np.random.default_rng(0))
    expected = operator.reference(*arrays)
    args = operator.define()
    outs = [t for t in args if not isinstance(t.op, Placeholder)]
    template = generated(args, target(level))
    space, rng = Space(template), random.Random(1)
    for candidate in (space.start, space.mutated(space.start, rng, 4), space.random(rng)):
        results = [np.full(tuple(t.shape), 7, t.dtype.numpy) for t in outs]
        s, _ = template(Config(candidate))
        ts.build(s, args, target=level, threads=2)(*arrays, *results)
        assert operator.difference(results, expected, arrays) < 2e-5, f"{candidate}"
