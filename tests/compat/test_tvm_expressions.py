"""Scripts for TVM's `te` run with one import changed."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tilesmith.compat.tvm as tvm
from tilesmith.compat.tvm import te
from tilesmith.support.errors import ScheduleError, UsageError


def _random(*shape: int) -> np.ndarray:
    return np.random.default_rng(0).random(shape, np.float32)


def test_a_sum_of_vectors_of_any_length():
    dev = tvm.device("llvm", 0)
    n = te.var("n")
    a, b = te.placeholder((n,), name="A"), te.placeholder((n,), name="B")
    c = te.compute(a.shape, lambda i: a[i] + b[i], name="C")
    s = te.create_schedule(c.op)
    s[c].parallel(c.op.axis[0])
    add = tvm.build(s, [a, b, c], tvm.target.Target("llvm", host="llvm"), name="add")
    for length in (1, 1000):
        x = tvm.nd.array(np.random.uniform(size=length).astype(a.dtype), dev)
        y = tvm.nd.array(np.random.uniform(size=length).astype(b.dtype), dev)
        z = tvm.nd.array(np.zeros(length, dtype=c.dtype), dev)
        add(x, y, z)
        tvm.testing.assert_allclose(z.numpy(), x.numpy() + y.numpy())
    assert add.time_evaluator("add", dev, number=2, repeat=3)(x, y, z).results[2] > 0


def test_a_product_of_matrices_with_a_write_cache_and_a_packed_operand():
    m = k = n = 128
    block = 32
    axis = te.reduce_axis((0, k), "k")
    a, b = te.placeholder((m, k), name="A"), te.placeholder((k, n), name="B")
    packed = te.compute((n // block, k, block), lambda x, y, z: b[y, x * block + z], name="packed")
    c = te.compute(
        (m, n),
        lambda i, j: te.sum(
            a[i, axis] * packed[j // block, axis, tvm.tir.indexmod(j, block)], axis=axis
        ),
        name="C",
    )
    s = te.create_schedule(c.op)
    cache = s.cache_write(c, "global")
    outer_row, outer_column, _, _ = s[c].tile(c.op.axis[0], c.op.axis[1], block, block)
    s[cache].compute_at(s[c], outer_column)
    row, column = s[cache].op.axis
    (reduced,) = s[cache].op.reduce_axis
    outer, inner = s[cache].split(reduced, factor=4)
    s[cache].reorder(outer, row, inner, column)
    s[cache].unroll(inner)
    s[cache].vectorize(column)
    s[c].parallel(outer_row)
    x, _, z = s[packed].op.axis
    s[packed].vectorize(z)
    s[packed].parallel(x)
    assert "parallel" in str(tvm.lower(s, [a, b, c], simple_mode=True))
    f = tvm.build(s, [a, b, c], target="llvm", name="product")
    left, right, result = _random(m, k), _random(k, n), tvm.nd.empty((m, n))
    f(tvm.nd.array(left), tvm.nd.array(right), result)
    tvm.testing.assert_allclose(result.numpy(), left @ right, rtol=1e-4)


def test_a_cache_whose_indices_allow_it_is_in_registers():
    a = te.placeholder((64, 16), name="A")
    k = te.reduce_axis((0, 16), "k")
    b = te.compute((64,), lambda i: te.sum(a[i, k], axis=k), name="B")
    s = te.create_schedule(b.op)
    cache = s.cache_write(b, "local")
    outer, inner = s[b].split(b.op.axis[0], 8)
    s[b].vectorize(inner)
    s[cache].compute_at(s[b], outer)
    s[cache].vectorize(s[cache].op.axis[0])
    s[cache].reorder(s[cache].op.reduce_axis[0], s[cache].op.axis[0])
    assert "f32[8] register" in str(tvm.lower(s, [a, b]))


def test_a_reduction_by_tuples():
    combine = lambda x, y: (  # noqa: E731  as such scripts are written
        tvm.tir.Select(x[1] >= y[1], x[0], y[0]),
        tvm.tir.Select(x[1] >= y[1], x[1], y[1]),
    )
    argmax = te.comm_reducer(
        combine, lambda t0, t1: (tvm.tir.const(-1, t0), te.min_value(t1)), name="argmax"
    )
    index = te.placeholder((8, 32), "int32", name="index")
    value = te.placeholder((8, 32), "int32", name="value")
    k = te.reduce_axis((0, 32), "k")
    at, most = te.compute((8,), lambda i: argmax((index[i, k], value[i, k]), axis=k), name="T")
    s = te.create_schedule(at.op)
    f = tvm.build(s, [index, value, at, most], "llvm")
    values = np.random.default_rng(1).integers(0, 1000, (8, 32), np.int32)
    places = np.broadcast_to(np.arange(32, dtype=np.int32), (8, 32)).copy()
    found, largest = tvm.nd.empty((8,), "int32"), tvm.nd.empty((8,), "int32")
    f(places, values, found, largest)
    np.testing.assert_array_equal(largest, values.max(1))
    np.testing.assert_array_equal(found, values.argmax(1))


def test_a_factored_reduction_with_a_condition():
    a = te.placeholder((4, 128), name="A")
    k = te.reduce_axis((0, 128), "k")
    b = te.compute((4,), lambda i: te.sum(a[i, k], axis=k, where=k < 100), name="B")
    s = te.create_schedule(b.op)
    _, inner = s[b].split(b.op.reduce_axis[0], factor=16)
    s.rfactor(b, inner)
    f = tvm.build(s, [a, b])
    x, y = _random(4, 128), tvm.nd.empty((4,))
    f(x, y)
    tvm.testing.assert_allclose(y, x[:, :100].sum(1), rtol=1e-5)


def test_a_scan():
    m, n = 20, 16
    x = te.placeholder((m, n), name="X")
    state = te.placeholder((m, n), name="state")
    first = te.compute((1, n), lambda _, i: x[0, i])
    step = te.compute((m, n), lambda t, i: state[t - 1, i] + x[t, i])
    total = te.scan(first, step, state, inputs=[x])
    f = tvm.build(te.create_schedule(total.op), [x, total], "llvm")
    values, sums = _random(m, n), tvm.nd.empty((m, n))
    f(values, sums)
    tvm.testing.assert_allclose(sums, values.cumsum(0), rtol=1e-5)


def test_loops_of_an_ir_builder():
    n, m = te.var("n"), 6
    x = te.placeholder((n, m), "float32", name="X")

    def running_sums(ins: list, outs: list) -> None:
        ib = tvm.tir.ir_builder.create()
        source, result = ib.buffer_ptr(ins[0]), ib.buffer_ptr(outs[0])
        with ib.for_range(0, n, name="i", kind="parallel") as i:
            total = ib.allocate("float32", (1,), name="total", scope="local")
            total[0] = 0.0
            with ib.for_range(1, m, name="j") as j:
                with ib.if_scope(source[i, j] > 0.5):
                    total[0] = total[0] + source[i * m + j]
                with ib.else_scope():
                    total[0] = total[0] - 1.0
                result[i, j] = total[0]
            result[i, 0] = 7.0
        return ib.get()

    y = te.extern(x.shape, [x], running_sums, name="Y", dtype="float32")
    f = tvm.build(te.create_schedule(y.op), [x, y])
    values, sums = _random(3, m), tvm.nd.empty((3, m))
    f(values, sums)
    steps = np.where(values > 0.5, values, -1.0)[:, 1:].cumsum(1, dtype=np.float32)
    tvm.testing.assert_allclose(sums.numpy()[:, 1:], steps, rtol=1e-5)
    assert sums.numpy()[:, 0].tolist() == [7.0] * 3


@pytest.mark.parametrize("dtype", ["int32", "float32"])
def test_quotients_and_remainders_as_in_c(dtype: str):
    a, b = te.placeholder((64,), dtype, name="A"), te.placeholder((64,), dtype, name="B")
    if dtype == "int32":
        made = [
            te.compute((64,), lambda i: te.truncdiv(a[i], b[i]), name="q"),
            te.compute((64,), lambda i: te.truncmod(a[i], b[i]), name="r"),
        ]
    else:
        made = [
            te.compute((64,), lambda i: te.div(a[i], b[i]), name="q"),
            te.compute((64,), lambda i: te.fmod(a[i], b[i]), name="r"),
        ]
    f = tvm.build(te.create_schedule([t.op for t in made]), [a, b, *made])
    rng = np.random.default_rng(2)
    x = rng.integers(-50, 50, 64).astype(dtype)
    y = (rng.integers(1, 9, 64) * rng.choice([-1, 1], 64)).astype(dtype)
    x[:2], y[:2] = ((-(2**31), 10**9), (3, 7)) if dtype == "int32" else ((1e10, 7), (0.3, 1e-3))
    q, r = tvm.nd.empty((64,), dtype), tvm.nd.empty((64,), dtype)
    f(x, y, q, r)
    np.testing.assert_array_equal(r, np.fmod(x, y))
    expected = x / y if dtype == "float32" else ((x - np.fmod(x, y)) // y)
    np.testing.assert_allclose(q, expected, rtol=1e-6)


def test_a_gradient_with_a_head():
    x, w = te.placeholder((4, 3), name="X"), te.placeholder((3, 5), name="W")
    k = te.reduce_axis((0, 3), "k")
    y = te.compute((4, 5), lambda i, j: te.sum(x[i, k] * w[k, j], axis=k), name="Y")
    head = te.placeholder((4, 5), name="head")
    (dw,) = te.gradient(y, [w], head)
    f = tvm.build(te.create_schedule(dw.op), [x, head, dw])
    values, weights, found = _random(4, 3), _random(4, 5), tvm.nd.empty((3, 5))
    f(values, weights, found)
    tvm.testing.assert_allclose(found, values.T @ weights, rtol=1e-5)
    with pytest.raises(UsageError, match="expected head="):
        te.gradient(y, [w])


def test_the_names_of_2018():
    a = tvm.placeholder((16,), name="A")
    b = tvm.compute((16,), lambda i: tvm.if_then_else(i < 8, a[i], tvm.const(0.0, "float32")))
    f = tvm.build(tvm.create_schedule(b.op), [a, b])
    x, y = _random(16), tvm.nd.array(np.zeros(16, np.float32), tvm.cpu(0))
    f(x, y)
    assert y.asnumpy()[:8].tolist() == x[:8].tolist()
    assert not y.asnumpy()[8:].any()


@pytest.mark.parametrize(
    ("text", "native"),
    [("llvm", None), ("llvm -mcpu=core-avx2", "x86-64-v3"), ("llvm -mcpu=znver4", "x86-64-v4"),
     ("llvm -mcpu=core-avx-i", "x86-64-v2"),
     ("llvm -mtriple=aarch64-linux-gnu", "aarch64"), ("c", "c"), ("cuda -arch=sm_80", "cuda")],
)  # fmt: skip
def test_targets(text: str, native: str | None):
    assert tvm.target.Target(text).native == native
    assert str(tvm.target.Target(text)) == text


def test_the_target_of_the_enclosing_with():
    with tvm.target.Target("llvm -mcpu=haswell"):
        current = tvm.target.Target.current()
        assert current is not None
        assert current.mcpu == "haswell"
    assert tvm.target.Target.current() is None


def test_what_has_no_counterpart_names_ours():
    with pytest.raises(UsageError, match=r"tilesmith\.compile"):
        _ = tvm.relax
    with pytest.raises(UsageError, match="LoopBuilder"):
        _ = te.hybrid
    with pytest.raises(UsageError, match=r"te\.extern around"):
        tvm.tir.ir_builder.create()
    with pytest.raises(AttributeError):
        _ = te.nonsense
    with pytest.raises(UsageError, match="expected one of nehalem"):
        _ = tvm.target.Target("llvm -mcpu=abacus").native
    a = te.placeholder((4,), name="A")
    s = te.create_schedule(te.compute((4,), lambda i: a[i]).op)
    with pytest.raises(ScheduleError, match="TVM's memories global, local, shared"):
        s.cache_read(a, "warp", [s.outputs[0].op])


def _gemv(m: int, n: int) -> Any:
    """A product of a matrix and a vector as TVM's tutorial on tensorize declares it."""
    a, b = te.placeholder((n,), name="a"), te.placeholder((m, n), name="b")
    k = te.reduce_axis((0, n), name="k")
    c = te.compute((m,), lambda i: te.sum(a[k] * b[i, k], axis=k), name="c")
    binds = {t: tvm.tir.decl_buffer(t.shape, t.dtype, offset_factor=1) for t in (a, b, c)}

    def code(ins: Any, outs: Any) -> Any:
        ib = tvm.tir.ir_builder.create()
        ib.emit(tvm.tir.call_extern("int32", "gemv_update", outs[0].access_ptr("w")))
        return ib.get()

    return te.decl_tensor_intrin(c.op, code, binds=binds)


def _product(rows: int) -> tuple[Any, list[Any]]:
    A, B = te.placeholder((8, 64), name="A"), te.placeholder((32, 64), name="B")
    k = te.reduce_axis((0, 64), name="k")
    C = te.compute((8, 32), lambda i, j: te.sum(A[i, k] * B[j, k], axis=k), name="C")
    s = te.create_schedule(C.op)
    x, y = C.op.axis
    yo, yi = s[C].split(y, factor=16)
    s[C].reorder(x, yo, yi, C.op.reduce_axis[0])
    s[C].tensorize(yi, _gemv(rows, 64))
    s[C].pragma(x, "import_llvm", tvm.contrib.clang.create_llvm("int gemv_update(...);"))
    return s, [A, B, C]


def test_loops_that_an_intrinsic_of_tvm_computes_stay_and_give_its_result():
    s, args = _product(16)
    f = tvm.build(s, args, target="llvm", name="gemv")
    a, b = np.random.default_rng(0).random((8, 64), np.float32), np.ones((32, 64), np.float32)
    c = tvm.nd.empty((8, 32))
    f(tvm.nd.array(a), tvm.nd.array(b), c)
    tvm.testing.assert_allclose(c.numpy(), a @ b.T, rtol=1e-5)


def test_loops_that_do_not_compute_an_intrinsic_of_tvm_are_refused():
    with pytest.raises(ScheduleError, match="cannot tensorize"):
        _product(8)


def test_a_reduction_of_a_user_takes_the_elements_where_a_condition_holds():
    k = te.reduce_axis((0, 9), name="k")
    A = te.placeholder((9,), "int32", name="A")
    place = te.comm_reducer(
        lambda a, b: tuple(te.if_then_else(a[1] >= b[1], x, y) for x, y in zip(a, b, strict=True)),
        lambda t0, t1: (tvm.tir.const(-1, t0), te.min_value(t1)),
        name="argmax",
    )
    values = (tvm.tir.Cast("int32", k.var), A[k])
    at, most = te.compute((1,), lambda _: place(values, axis=k, where=A[k] < 5), name="B")
    f = tvm.build(te.create_schedule(at.op), [A, at, most])
    results = [tvm.nd.empty((1,), "int32") for _ in range(2)]
    f(np.int32([3, 7, 1, 4, 9, 4, 0, 5, 2]), *results)
    assert [r[0] for r in results] == [3, 4]
