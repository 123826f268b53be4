"""Compiled lookups report a bad index with its node, value and position, and read nothing else."""

from __future__ import annotations

import random

import numpy as np
import onnx
import pytest
from small_models import model, node

import tilesmith as ts
from tilesmith import te
from tilesmith.ir.dtypes import f32
from tilesmith.ir.expr import select
from tilesmith.ir.intrinsics import checked_index
from tilesmith.ir.symbols import symbol

CASES = {
    "rows": ("Gather", (10, 37), (2, 5), {"axis": 0}),
    "columns": ("Gather", (3, 10), (41,), {"axis": 1}),
    "scalars": ("Gather", (10,), (77,), {"axis": 0}),
    "elements of columns": ("GatherElements", (10, 37), (6, 37), {"axis": 0}),
    "elements of rows": ("GatherElements", (5, 10), (5, 50), {"axis": 1}),
    "places": ("GatherND", (10, 10), (7, 2), {}),
    "rows of places": ("GatherND", (10, 6), (9, 1), {}),
}
EXTENT = 10


def lookup(case: str) -> onnx.ModelProto:
    op, table, indices, attributes = CASES[case]
    made = model([node(op, "x i", "y", name="the_lookup", **attributes)], {"x": table}, ["y"])
    made.graph.input.append(
        onnx.helper.make_tensor_value_info("i", onnx.TensorProto.INT64, indices)
    )
    return made


@pytest.mark.parametrize(("target", "threads"), [("native", 1), ("native", 2), ("c", 1)])
@pytest.mark.parametrize("case", CASES)
def test_bad_indices_are_named(case: str, threads: int, target: str) -> None:
    seed = random.randrange(1 << 32)
    print(f"seed {seed}")
    rng = np.random.default_rng(seed)
    exe = ts.compile(lookup(case), target=target, threads=threads)
    _, table, shape, _ = CASES[case]
    x = rng.standard_normal(table).astype(np.float32)
    count = int(np.prod(shape))
    # Bad values behind the indices: nothing may look at them.
    memory = np.full(count + 64, 1 << 40)
    indices = memory[:count].reshape(shape)
    for bad in (EXTENT, -EXTENT - 1, 1 << 40, (1 << 63) - 1, -(1 << 63)):
        indices[...] = rng.integers(-EXTENT, EXTENT, shape)
        exe(x, indices)
        place = int(rng.integers(count))
        indices.flat[place] = bad
        with pytest.raises(ts.ModelError) as e:
            exe(x, indices)
        assert str(e.value) == (
            f"the_lookup: expected indices from -10 to 9, found {bad} at position {place} of the "
            "indices (counted in row-major order)"
        )


@pytest.mark.parametrize(("target", "threads"), [("native", 1), ("native", 2), ("c", 1)])
@pytest.mark.parametrize("is_open", [False, True])
def test_a_row_of_one_index_reports_its_first_element(
    is_open: bool, target: str, threads: int
) -> None:
    made = model(
        [node("Expand", "i s", "wide"), node("GatherElements", "x wide", "y", axis=0)],
        {"x": ("a", "b") if is_open else (10, 37)},
        ["y"],
        {"s": np.array([1, 37])},
    )
    made.graph.input.append(
        onnx.helper.make_tensor_value_info("i", onnx.TensorProto.INT64, ["n" if is_open else 3, 1])
    )
    exe = ts.compile(made, target=target, threads=threads)
    x = np.random.default_rng(0).standard_normal((10, 37)).astype(np.float32)
    indices = np.array([[9], [-10], [3]])
    np.testing.assert_array_equal(exe(x, indices), x[indices[:, 0]])
    indices[1] = 10
    with pytest.raises(ts.ModelError, match="found 10 at position 37 of"):
        exe(x, indices)


@pytest.mark.parametrize("case", CASES)
def test_unsafe_clamps(case: str) -> None:
    exe = ts.compile(lookup(case), options=ts.Options(unsafe=True))
    _, table, shape, _ = CASES[case]
    x = np.random.default_rng(0).standard_normal(table).astype(np.float32)
    last = exe(x, np.full(shape, EXTENT - 1))
    np.testing.assert_array_equal(exe(x, np.full(shape, 1 << 40)), last)
    np.testing.assert_array_equal(exe(x, np.full(shape, -(1 << 40))), exe(x, np.zeros(shape, int)))


def test_the_kernel_that_failed_is_named_among_others() -> None:
    made = model(
        [
            node("Gather", "x i", "a", name="first"),
            node("Softmax", "a", "s", axis=-1),
            node("Gather", "s j", "y", name="second", axis=1),
        ],
        {"x": (10, 64)},
        ["y"],
    )
    for name, count in (("i", 20), ("j", 30)):
        made.graph.input.append(
            onnx.helper.make_tensor_value_info(name, onnx.TensorProto.INT32, [count])
        )
    exe = ts.compile(made)
    x = np.random.default_rng(0).standard_normal((10, 64)).astype(np.float32)
    i, j = np.zeros(20, np.int32), np.zeros(30, np.int32)
    exe(x, i, j)
    j[29] = 64
    with pytest.raises(ts.ModelError, match=r"second.*from -64 to 63, found 64 at position 29"):
        exe(x, i, j)
    i[3] = -11
    with pytest.raises(ts.ModelError, match=r"first.*from -10 to 9, found -11 at position 3"):
        exe(x, i, j)


@pytest.mark.parametrize(
    ("op", "indices", "place"),
    [("ScatterElements", (3, 37), 80), ("ScatterND", (5, 1), 3)],
)
@pytest.mark.parametrize("dtype", [np.int32, np.int64])
def test_bad_places_to_write_to_are_named(
    op: str, indices: tuple[int, ...], place: int, dtype: type
) -> None:
    updates = indices if op == "ScatterElements" else (indices[0], 37)
    made = model([node(op, "x i u", "y", name="the_update")], {"x": (10, 37), "u": updates}, ["y"])
    kind = onnx.helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    made.graph.input.append(onnx.helper.make_tensor_value_info("i", kind, indices))
    exe = ts.compile(made)
    x, u = np.zeros((10, 37), np.float32), np.ones(updates, np.float32)
    found = np.zeros(indices, dtype)
    arrays = {"x": x, "u": u, "i": found}
    assert exe.run(arrays)["y"].sum() == 37
    for bad in (10, -11):
        found.flat[place] = bad
        message = rf"the_update: .*from -10 to 9, found {bad} at position {place} of the indices"
        with pytest.raises(ts.ModelError, match=message):
            exe.run(arrays)
    last = ts.compile(made, options=ts.Options(unsafe=True)).run({**arrays, "i": found * 0 + 99})
    assert last["y"][9].sum() == 37 and last["y"][:9].sum() == 0


@pytest.mark.parametrize("target", ["native", "c"])
@pytest.mark.parametrize("is_vector", [False, True])
def test_indices_that_nobody_needs_are_not_checked(target: str, is_vector: bool) -> None:
    """Neither an index behind a guard that is invariant, nor those of lanes past the end."""
    n = symbol("n", 1, 100, 16)
    x, z = te.placeholder((10,), f32, "x"), te.placeholder((n,), f32, "z")

    def element(i):
        one = select(n < 10, x[checked_index(n, 10, 0)], 0.0)
        return one + select(i < 10, x[checked_index(i, 10, i)], 0.0) + z[i]

    y = te.compute((n,), element)
    s = te.create_schedule(y.op)
    if is_vector:
        s[y].vectorize(s[y].split(y.op.axis[0], 8)[1])
    f = ts.build(s, [x, z, y], target=target)
    table = np.arange(1, 11, dtype=np.float32)
    for size in (1, 3, 9, 10, 30):
        found = np.zeros(size, np.float32)
        f(table, np.zeros_like(found), found)
        wanted = np.append(table, np.zeros(20))[:size] + (table[size] if size < 10 else 0)
        np.testing.assert_array_equal(found, wanted)
