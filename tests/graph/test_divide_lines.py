"""Few long lines divided into chunks: the same answers, for scans, sorts and scatters."""

from __future__ import annotations

import math
import random

import numpy as np
import pytest

from tilesmith.graph.builder import Builder, array_type
from tilesmith.graph.evaluate import evaluate
from tilesmith.graph.nodes import Graph
from tilesmith.graph.passes.divide_lines import divide_lines
from tilesmith.graph.text import print_graph
from tilesmith.graph.verify import verify
from tilesmith.ir.device import Device
from tilesmith.ir.dtypes import f16, f32, i32, i64, u8
from tilesmith.ir.symbols import symbol
from tilesmith.ir.types import TensorType
from tilesmith.ops.base import Op
from tilesmith.ops.scan import CumMax, CumMin, CumProd, CumSum
from tilesmith.ops.scatter import ScatterElements, ScatterNd
from tilesmith.ops.sort import TopK
from tilesmith.support.errors import ModelError

SMALL = Device(units=2, wave=4)
"""A device on which 8 lines are enough, and 32 threads run at a time."""
LONGEST = 16
TYPES = (f32, f16, i32, i64, u8)


def applied(op: Op, *arrays: np.ndarray) -> Graph:
    b = Builder("g")
    found = b.add(op, *(b.input(f"x{i}", array_type(a)) for i, a in enumerate(arrays)))
    return b.finish(found if isinstance(found, tuple) else (found,))


def divided(graph: Graph, device: Device = SMALL) -> Graph:
    found = divide_lines(graph, device, LONGEST)
    verify(found)
    assert divide_lines(found, device, LONGEST) is found  # nothing is left to divide
    return found


def check(op: Op, *arrays: np.ndarray, device: Device = SMALL) -> bool:
    """Compare with the reference; whether anything was divided."""
    graph = applied(op, *arrays)
    found = divided(graph, device)
    with np.errstate(over="ignore"):
        wanted = op.reference(*arrays)
        results = evaluate(found, list(arrays)).values()
    wanted = wanted if isinstance(wanted, tuple) else (wanted,)
    for x, y in zip(results, wanted, strict=True):
        assert x.dtype == y.dtype and x.shape == y.shape
        if isinstance(op, (CumSum, CumProd)) and x.dtype.kind == "f":
            bound = 4e-3 if x.dtype == np.float16 else 1e-5
            x, y = x.astype(np.float64), y.astype(np.float64)
            np.testing.assert_allclose(x, y, rtol=bound, atol=bound * 8, err_msg=str(op))
        else:
            np.testing.assert_array_equal(x, y, err_msg=str(op))
    return found is not graph


def line(rng: random.Random) -> tuple[np.ndarray, int]:
    """An array of few long lines, with ties and sometimes NaNs, and the axis of the lines."""
    dtype, values = rng.choice(TYPES), np.random.default_rng(rng.randrange(1 << 30))
    shape = [rng.choice((1, 1, 2, 3)) for _ in range(rng.randint(1, 4))]
    axis = rng.randrange(len(shape))
    shape[axis] = rng.choice((17, 31, 64, 100, 257, 1000))
    x = np.rint(values.standard_normal(shape) * 4) / 4
    if dtype.is_float and rng.random() < 0.4:
        x[values.random(shape) < 0.02] = np.nan
    if dtype.is_float and rng.random() < 0.2:
        x[values.random(shape) < 0.02] = -np.inf
    return np.abs(x * 4 if dtype is u8 else x).astype(dtype.numpy), axis


@pytest.mark.parametrize("kind", [CumSum, CumProd, CumMax, CumMin])
@pytest.mark.parametrize("seed", range(12))
def test_scans(kind: type[Op], seed: int):
    rng = random.Random(seed)
    x, axis = line(rng)
    if kind is CumProd and x.dtype.kind == "f":
        x = np.where(np.isinf(x), 1, np.exp2(x / 16)).astype(x.dtype)
    if kind is CumSum and x.dtype.kind == "f":
        x[np.isinf(x)] = 1
    is_few = math.prod((*x.shape[:axis], *x.shape[axis + 1 : -1])) < 8
    axis -= rng.choice((0, x.ndim))
    for exclusive in (False, True):
        for reverse in (False, True):
            op = kind(axis, exclusive, reverse)  # type: ignore[call-arg]  # a scan
            assert check(op, x) == is_few


@pytest.mark.parametrize("seed", range(24))
def test_sorts(seed: int):
    rng = random.Random(seed)
    x, axis = line(rng)
    n = x.shape[axis]
    for k in (1, rng.randint(2, n), n):
        op = TopK(k, axis - rng.choice((0, x.ndim)), rng.random() < 0.5)
        assert check(op, x) == (x.size // n < 8)


@pytest.mark.parametrize("reduction", ["none", "add", "mul", "min", "max"])
@pytest.mark.parametrize("seed", range(8))
def test_scatters_of_elements(reduction: str, seed: int):
    """Sums of floats are equal to the last bit: updates of a place keep their order."""
    rng, values = random.Random(seed), np.random.default_rng(seed)
    dtype = rng.choice((np.float32, np.float16, np.int32, np.int64))
    shape = [rng.randint(1, 6) for _ in range(rng.randint(1, 3))]
    axis = rng.randrange(len(shape))
    given = [rng.randint(1, n) for n in shape]
    given[axis] = rng.choice((40, 90, 300))
    indices = values.integers(-shape[axis], shape[axis], given).astype(rng.choice(("i4", "i8")))
    data, updates = ((values.standard_normal(s) * 3).astype(dtype) for s in (shape, given))
    op = ScatterElements(axis, reduction)
    assert check(op, data, indices, updates) == (math.prod(given[:axis]) < 8)


@pytest.mark.parametrize("reduction", ["none", "add", "mul", "min", "max"])
@pytest.mark.parametrize("seed", range(8))
def test_scatters_of_slices(reduction: str, seed: int):
    rng, values = random.Random(seed), np.random.default_rng(seed)
    dtype = rng.choice((np.float32, np.int32))
    shape = tuple(rng.randint(1, 5) for _ in range(rng.randint(1, 3)))
    depth = rng.randint(1, len(shape))
    tuples = rng.choice(((37,), (5, 30), (200,)))
    places = [values.integers(-n, n, tuples) for n in shape[:depth]]
    data = (values.standard_normal(shape) * 3).astype(dtype)
    updates = (values.standard_normal((*tuples, *shape[depth:])) * 3).astype(dtype)
    check(ScatterNd(reduction), data, np.stack(places, -1), updates)


def test_bools_are_scattered():
    data, indices = np.zeros(9, bool), np.arange(40) % 7
    assert check(ScatterElements(), data, indices, indices % 3 == 0)


def test_one_slice_has_a_thread_for_each_element():
    rng = np.random.default_rng(0)
    data, update = rng.random((5, 64), np.float32), rng.random((1, 64), np.float32)
    assert check(ScatterNd("add"), data, np.array([[-2]]), update)


def test_an_index_outside():
    data, indices = np.zeros(9, np.float32), np.arange(40) % 9
    graph = divided(applied(ScatterElements(), data, indices, np.ones(40, np.float32)))
    indices[3] = 9
    with pytest.raises(ModelError, match=r"expected indices in -9\.\.8, found 9"):
        evaluate(graph, [data, indices, np.ones(40, np.float32)])


@pytest.mark.parametrize(
    ("op", "shape"),
    [
        (CumSum(0), (16,)),  # short
        (CumSum(1), (8, 400)),  # enough lines
        (CumSum(1), (2, 400, 0)),
        (CumSum(1), (4, 400, 2, 3)),
        (TopK(1, 0), (16,)),
        (TopK(0, 0), (400,)),
        (TopK(30, 0), (30, 8)),
    ],
)
def test_other_lines_stay(op: Op, shape: tuple[int, ...]):
    graph = applied(op, np.zeros(shape, np.float32))
    assert divided(graph) is graph


def test_what_the_device_can_not_run_stays():
    graph = applied(TopK(400, 0), np.zeros(400, np.float32))
    assert divide_lines(graph, SMALL, LONGEST, lambda node: False) is graph
    b = Builder("g")
    graph = b.finish([b.add(CumSum(0), b.input("x", TensorType(f32, (symbol("n"),))))])
    assert divide_lines(graph, SMALL, LONGEST) is graph


def test_strict_sums_keep_their_order():
    def strictly(op: Op, dtype: type) -> bool:
        graph = applied(op, np.zeros(400, dtype))
        return divide_lines(graph, SMALL, LONGEST, is_strict=True) is not graph

    assert not strictly(CumSum(0), np.float32) and not strictly(CumProd(0), np.float32)
    assert strictly(CumSum(0), np.int32) and strictly(CumMax(0), np.float32)


def test_columns_have_threads():
    """The innermost axis, which one thread would take, is divided among threads."""
    x = np.random.default_rng(0).random((1, 12, 9), np.float32)
    assert check(CumSum(1), x)
    assert not check(CumSum(1), x[:, :, :1].copy())


@pytest.mark.parametrize("units", [1, 3, 100])
@pytest.mark.parametrize("wave", [1, 5, 32, 2000])
def test_devices(units: int, wave: int):
    """Chunks follow from the device; any description has an end."""
    x = np.random.default_rng(units * wave).standard_normal((2, 1500)).astype(np.float32)
    for op in (CumSum(1), TopK(1500), TopK(7, 1, False)):
        check(op, x, device=Device(units=units, wave=wave))


def test_texts(golden):
    x = np.zeros(1000, np.float32)
    found = [divided(applied(op, x)) for op in (CumSum(0, exclusive=True), TopK(3, 0))]
    indices, updates = np.zeros((20, 1), np.int64), np.zeros((20, 4), np.float32)
    found.append(divided(applied(ScatterNd("add"), np.zeros((9, 4), np.float32), indices, updates)))
    golden("\n".join(map(print_graph, found)))
