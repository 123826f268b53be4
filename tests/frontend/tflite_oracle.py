"""Models that a test writes, run by LiteRT's reference kernels and by Tilesmith."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from tflite_cases import litert

import tilesmith as ts
from tflite_models import GraphWriter, ModelWriter


def one_graph(build: Callable[[GraphWriter], Any]) -> bytes:
    """A model whose main subgraph `build` writes."""
    model = ModelWriter()
    build(model.graph())
    return model.bytes()


def check(content: bytes, arrays: Sequence[np.ndarray], relative: float = 1e-5) -> None:
    """Fails unless the compiled model computes what LiteRT does: integers exactly, floats within
    `relative` of the largest number of the result.
    """
    expected = litert(content, arrays)
    made = ts.compile(content)(*arrays)
    made = list(made) if isinstance(made, tuple | list) else [made]
    assert len(made) == len(expected)
    for a, b in zip(made, expected, strict=True):
        a = np.asarray(a)
        assert (a.shape, a.dtype) == (b.shape, b.dtype)
        if a.dtype.kind != "f":
            np.testing.assert_array_equal(a, b)
        elif b.size:
            finite = np.abs(b[np.isfinite(b)])
            scale = float(finite.max()) if finite.size else 1.0
            np.testing.assert_allclose(a, b, rtol=relative, atol=relative * max(scale, 1e-30))


def numbers(seed: int, *shape: int) -> np.ndarray:
    """Random f32 numbers."""
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)
