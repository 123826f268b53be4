"""Scans, sorts and scatters of few long lines on an OpenCL device."""

from __future__ import annotations

import random
import warnings
from collections.abc import Callable, Sequence

import numpy as np
import pytest

import tilesmith as ts
from tilesmith.graph.builder import Builder
from tilesmith.graph.evaluate import evaluate
from tilesmith.graph.nodes import Graph
from tilesmith.ir.dtypes import dtype as to_dtype
from tilesmith.ir.dtypes import f32, i64
from tilesmith.ir.types import TensorType
from tilesmith.ops.scan import CumMax, CumMin, CumProd, CumSum
from tilesmith.ops.scatter import ScatterElements, ScatterNd
from tilesmith.ops.shape import Reshape
from tilesmith.ops.sort import TopK
from tilesmith.runtime.executable import Executable
from tilesmith.support.errors import ModelError

N = 5000


def alone(graph: Graph) -> Executable:
    """A model that the device runs alone: there are no parts, so no copies between them."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        made = ts.compile(graph, target="opencl", fallback="error")
    assert not made.program.parts and not made.program.transfers
    assert {place.name for place in made.program.places} <= {"opencl"}
    return made


def check(graph: Graph, given: Sequence[np.ndarray]) -> None:
    found, wanted = alone(graph)(*given), evaluate(graph, list(given)).values()
    for x, y in zip(found if isinstance(found, tuple) else (found,), wanted, strict=True):
        assert x.dtype == y.dtype and x.shape == y.shape
        bound = 5e-3 if x.dtype == np.float16 else 1e-4
        np.testing.assert_allclose(x.astype(np.float64), y.astype(np.float64), bound, bound)


def sort_and_sum() -> None:
    """A long row is sorted, and the running sum of the result is divided again."""
    b = Builder("g")
    values, places = b.add(TopK(N), b.input("x", TensorType(f32, (1, N))))
    graph = b.finish([places, b.add(CumSum(1), b.add(Reshape((1, N)), values))])
    x = np.random.default_rng(0).integers(-99, 99, (1, N)).astype(np.float32)
    check(graph, [x])
    checks = ts.check(graph, target="opencl")
    assert checks and all(c.passed for c in checks)


def random_lines() -> None:
    """Several types, axes, ties and NaNs, all of one model."""
    rng, values = random.Random(3), np.random.default_rng(3)
    b, given = Builder("g"), list[np.ndarray]()
    results = []
    for kind, shape, axis in (
        ("f32", (1500,), 0), ("i32", (900, 2), 0), ("i64", (2, 700), 1), ("f16", (1, 600, 3), 1),
        ("u8", (3, 800, 1), 1),
    ):  # fmt: skip
        dtype = to_dtype(kind)
        x = np.rint(values.standard_normal(shape) * 9)
        if dtype.is_float:
            x[values.random(shape) < 0.01] = np.nan
        given.append(np.abs(x).astype(dtype.numpy) if kind == "u8" else x.astype(dtype.numpy))
        v = b.input(f"x{len(given)}", TensorType(dtype, shape))
        n = shape[axis]
        for op in (TopK(n, axis, rng.random() < 0.5), TopK(rng.randint(2, n), axis, False)):
            results += b.add(op, v)
        for scan in (CumMax, CumMin, CumProd if dtype.is_int else CumSum):
            results.append(b.add(scan(axis, rng.random() < 0.5, rng.random() < 0.5), v))
    check(b.finish(results, [f"y{n}" for n in range(len(results))]), given)


def scatters() -> None:
    """Equal to the CPU's to the last bit; an index outside is reported, and the next call works."""
    rng = np.random.default_rng(5)
    places, tuples = rng.integers(-60, 60, N), rng.integers(0, 8, (N // 4, 2))
    b = Builder("g")
    data, image = (
        b.input("data", TensorType(f32, (60,))),
        b.input("image", TensorType(f32, (8, 8, 3))),
    )
    at, where = (
        b.input("at", TensorType(i64, (N,))),
        b.input("where", TensorType(i64, tuples.shape)),
    )
    new = b.input("new", TensorType(f32, (N,)))
    colours = b.input("colours", TensorType(f32, (N // 4, 3)))
    results = [b.add(ScatterElements(0, r), data, at, new) for r in ("none", "add", "max")]
    results += [b.add(ScatterNd(r), image, where, colours) for r in ("none", "mul")]
    graph = b.finish(results, [f"y{n}" for n in range(len(results))])
    shapes = (60,), (8, 8, 3), (N,), (N // 4, 3)
    first, second, third, fourth = (rng.standard_normal(s, np.float32) for s in shapes)
    given = [first, second, places, tuples, third, fourth]
    made, cpu = alone(graph), ts.compile(graph)
    for x, y in zip(made(*given), cpu(*given), strict=True):
        np.testing.assert_array_equal(x, y)
    wrong = places.copy()
    wrong[7] = 60
    for exe in (made, cpu):
        with pytest.raises(ModelError, match="expected indices from -60 to 59, found 60 at posit"):
            exe(first, second, wrong, *given[3:])
        exe(*given)


def line_calls() -> dict[str, Callable[[], None]]:
    """The cases by name."""
    return {f.__name__: f for f in (sort_and_sum, random_lines, scatters)}
