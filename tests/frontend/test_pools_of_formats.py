"""The pools that all readers share."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch

from tilesmith.frontend.common import pools
from tilesmith.frontend.common.folding import FoldingBuilder
from tilesmith.frontend.common.node import NodeContext
from tilesmith.frontend.common.windows import geometry
from tilesmith.graph.evaluate import evaluate
from tilesmith.graph.nodes import Value
from tilesmith.ir.dtypes import f32
from tilesmith.ir.types import TensorType
from tilesmith.support.errors import ModelError

X = np.random.default_rng(0).standard_normal((1, 2, 7, 6)).astype(np.float32)


def _run(make: Callable[[NodeContext, Value], Value], x: np.ndarray = X) -> np.ndarray:
    builder = FoldingBuilder("main")
    value = builder.input("x", TensorType(f32, x.shape))
    graph = builder.finish([make(NodeContext(builder, "node", "y"), value)], ["y"])
    return np.asarray(evaluate(graph, [x])["y"])


def _slow(kind: str, rounding: str, counts_padding: bool, k: int, s: int, p: int) -> np.ndarray:
    """The pool, from its definition, one window at a time."""
    sizes = []
    for extent in X.shape[2:]:
        room = extent + 2 * p - k
        count = room // s + 1 if rounding == "floor" else -(-room // s) + 1
        clips = rounding == "ceil" and (count - 1) * s >= extent + p
        sizes.append(count - clips)
    y = np.zeros((1, 2, *sizes), np.float32)
    for i, j in np.ndindex(*sizes):
        rows, columns = (slice(max(o * s - p, 0), max(o * s - p + k, 0)) for o in (i, j))
        window = X[:, :, rows, columns].reshape(2, -1)
        if kind == "max":
            y[0, :, i, j] = window.max(1) if window.size else f32.min
            continue
        whole = [min(o * s - p + k, e + p) - (o * s - p) for o, e in zip((i, j), X.shape[2:])]
        count = max(whole[0], 1) * max(whole[1], 1) if counts_padding else window.shape[1]
        y[0, :, i, j] = window.sum(1) / max(count, 1)
    return y


@pytest.mark.parametrize("k, s, p", [(3, 2, 0), (3, 2, 1), (2, 2, 1), (2, 3, 1), (1, 4, 0)])
@pytest.mark.parametrize("rounding", ["floor", "ceil", "full"])
@pytest.mark.parametrize("kind, counts_padding", [("max", 0), ("average", 0), ("average", 1)])
def test_each_form_of_rounding(kind, counts_padding, rounding, k, s, p) -> None:
    def make(n: NodeContext, x: Value) -> Value:
        return pools.pooled(n, x, kind, geometry(n, x, k, s, p), rounding, bool(counts_padding))

    found, expected = _run(make), _slow(kind, rounding, bool(counts_padding), k, s, p)
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)


def test_adaptive_and_global_pools() -> None:
    x = torch.from_numpy(X)
    averages = _run(lambda n, x: pools.adaptive_averages(n, x, (3, 4)))
    expected = torch.nn.functional.adaptive_avg_pool2d(x, (3, 4)).numpy()
    np.testing.assert_allclose(averages, expected, rtol=1e-5)
    best = _run(lambda n, x: pools.adaptive_maxima(n, x, (3, 4))[0])
    np.testing.assert_array_equal(best, torch.nn.functional.adaptive_max_pool2d(x, (3, 4)).numpy())
    mean = _run(lambda n, x: pools.global_pool(n, x, "average"))
    np.testing.assert_allclose(mean, X.mean((2, 3), keepdims=True), rtol=1e-5)
    largest = _run(lambda n, x: pools.global_pool(n, x, "max"))
    np.testing.assert_array_equal(largest, X.max((2, 3), keepdims=True))


@pytest.mark.parametrize(
    "settings, message",
    [
        ((0,), "the kernel: expected 2 numbers from 1 to"),
        (((2, 2, 2),), "the kernel: expected 2 numbers"),
        ((2, 0), "strides: expected 2 numbers from 1"),
        ((2, 1, (1, 2, 3)), "pads: expected 2 numbers"),
    ],
)
def test_windows_that_no_model_can_have(settings, message) -> None:
    with pytest.raises(ModelError, match=message):
        _run(lambda n, x: pools.pooled(n, x, "max", geometry(n, x, *settings)))
