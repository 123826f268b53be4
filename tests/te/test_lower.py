"""Lowering of particular schedules: the answer, and the property that the primitive is for."""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import numpy as np
import pytest

from tilesmith import te
from tilesmith.ir.expr import Expr, Load, Var, const, free_vars, post_order, substitute
from tilesmith.ir.extents import decided
from tilesmith.ir.layout import Layout
from tilesmith.ir.symbols import value_of
from tilesmith.loop.interpret import interpret
from tilesmith.loop.nodes import Allocate, Buffer, Evaluate, For, Func, If
from tilesmith.loop.visit import walk
from tilesmith.support.errors import ScheduleError, UsageError

from .families import matmul


def run(func: Func, *inputs: np.ndarray, **sizes: int) -> list[np.ndarray]:
    """The outputs of `func`, which stand last in its parameters."""
    outputs = [
        np.full([n if isinstance(n, int) else sizes[n.name] for n in b.shape], -77, b.dtype.numpy)
        for b in func.outputs
    ]
    scalars = [sizes[p.name] for p in func.params if isinstance(p, Var)]
    interpret(func, [*inputs, *outputs, *scalars])
    return outputs


def statements(func: Func, kind: type) -> list:
    return [s for s in walk(func.body) if isinstance(s, kind)]


def integers(*shape: int) -> np.ndarray:
    return np.random.default_rng(0).integers(-4, 5, shape).astype(np.float32)


def register_matmul(
    m: int, n: int, k: int, tile: tuple[int, int]
) -> tuple[te.Schedule, list[te.Tensor]]:
    a, b = te.placeholder((m, k), name="A"), te.placeholder((k, n), name="B")
    r = te.reduce_axis(k, "k")
    c = te.compute((m, n), lambda i, j: te.sum(a[i, r] * b[r, j], axis=r), name="C")
    s = te.create_schedule(c.op)
    copy = s.cache_write(c, "register")
    io, jo, ii, ji = s[c].tile(*s[c].axis, *tile)
    s[c].parallel(io)
    s[c].unroll(ii)
    s[c].vectorize(ji)
    s[copy].compute_at(s[c], jo)
    i, j = s[copy].axis
    s[copy].reorder(r, i, j)
    s[copy].unroll(i)
    s[copy].vectorize(j)
    return s, [a, b, c]


@pytest.mark.parametrize("shape", [(12, 32, 5), (13, 20, 4), (3, 7, 2)])
def test_register_tile(shape: tuple[int, int, int]) -> None:
    m, n, k = shape
    s, args = register_matmul(m, n, k, (6, 16))
    func = te.lower(s, args)
    a, b = integers(m, k), integers(k, n)
    np.testing.assert_array_equal(run(func, a, b)[0], a @ b)
    (register,) = [x.buffer for x in statements(func, Allocate)]
    assert register.scope == "register"
    if m % 6 == 0 and n % 16 == 0:
        assert not statements(func, If)


def test_packed_parameter_has_its_physical_shape() -> None:
    s, args = register_matmul(7, 40, 3, (4, 16))
    s.transform_layout(args[1], lambda k, n: (n // 16, k, n % 16))
    func = te.lower(s, args)
    packed = func.params[1]
    assert isinstance(packed, Buffer)
    assert packed.shape == (3, 3, 16)
    a, b = integers(7, 3), integers(3, 40)
    np.testing.assert_array_equal(run(func, a, Layout.parse("1/16 0 1%16").pack(b))[0], a @ b)


def test_packed_loads_are_contiguous_in_the_lanes() -> None:
    s, args = register_matmul(8, 32, 3, (4, 16))
    s.transform_layout(args[1], "1/16 0 1%16")
    func = te.lower(s, args)
    loads = [
        n
        for st in walk(func.body)
        if hasattr(st, "value")
        for n in post_order(st.value)
        if isinstance(n, Load) and n.buffer is func.params[1]
    ]
    assert all(isinstance(i, Var) for load in loads for i in load.indices)


def test_scalars() -> None:
    x = te.placeholder((5,), name="X")
    k = te.reduce_axis(5, "k")
    total = te.compute((), lambda: te.sum(x[k], axis=k), name="total")
    y = te.compute((), lambda: total[()] * 2.0, name="Y")
    s = te.create_schedule(y.op)
    data = integers(5)
    assert run(te.lower(s, [x, y]), data)[0] == data.sum() * 2
    ko, ki = s[total].split(k, 2)
    s[total].vectorize(ki)
    assert run(te.lower(s, [x, y]), data)[0] == data.sum() * 2
    part = s[total]
    assert [a.name for a in part.leaf_axes] == [ko.name, ki.name]


def test_reduction_over_nothing_stores_the_identity() -> None:
    x = te.placeholder((3, 0), name="X")
    k = te.reduce_axis(0, "k")
    y = te.compute((3,), lambda i: te.sum(x[i, k], axis=k), name="Y")
    func = te.lower(te.create_schedule(y.op), [x, y])
    np.testing.assert_array_equal(run(func, np.zeros((3, 0), np.float32))[0], np.zeros(3))


@pytest.mark.parametrize("size", [1, 7, 8, 19])
def test_symbolic_extents(size: int) -> None:
    n = Var("n")
    x = te.placeholder((n, 6), name="X")
    y = te.compute((n, 6), lambda i, j: x[i, j] + 1.0, name="Y")
    k = te.reduce_axis(n, "k")
    z = te.compute((6,), lambda j: te.sum(y[k, j], axis=k), name="Z")
    s = te.create_schedule([y.op, z.op])
    io, ii = s[y].split(s[y].axis[0], 4)
    s[y].vectorize(s[y].axis[1])
    s[y].parallel(io)
    ko, ki = s[z].split(k, 8)
    s[z].reorder(ko, s[z].axis[0], ki)
    s[z].unroll(ki)
    func = te.lower(s, [x, y, z])
    assert func.params[-1] is n
    assert ii.extent == 4
    data = integers(size, 6)
    got_y, got_z = run(func, data, n=size)
    np.testing.assert_array_equal(got_y, data + 1)
    np.testing.assert_array_equal(got_z, (data + 1).sum(0))


def test_symbolic_extent_attached_has_a_constant_region() -> None:
    n = Var("n")
    x = te.placeholder((n,), name="X")
    y = te.compute((n,), lambda i: x[i] + 1.0, name="Y")
    z = te.compute((n,), lambda i: y[i] * 2.0, name="Z")
    s = te.create_schedule(z.op)
    io, _ = s[z].split(s[z].axis[0], 4)
    s[y].compute_at(s[z], io)
    func = te.lower(s, [x, z])
    assert [a.buffer.shape for a in statements(func, Allocate)] == [(4,)]
    data = integers(10)
    np.testing.assert_array_equal(run(func, data, n=10)[0], (data + 1) * 2)


def chain(n: int = 10) -> tuple[te.Tensor, te.Tensor, te.Tensor]:
    x = te.placeholder((n,), name="X")
    y = te.compute((n,), lambda i: x[i] + 1.0, name="Y")
    return x, y, te.compute((n,), lambda i: y[i] * 2.0, name="Z")


def test_output_attached_to_its_elementwise_reader() -> None:
    x, y, z = chain()
    s = te.create_schedule([y.op, z.op])
    io, ii = s[z].split(s[z].axis[0], 4)
    s[y].compute_at(s[z], io)
    s[z].vectorize(ii)
    s[z].parallel(io)
    func = te.lower(s, [x, y, z])
    assert not statements(func, Allocate)
    data = integers(10)
    got_y, got_z = run(func, data)
    np.testing.assert_array_equal(got_y, data + 1)
    np.testing.assert_array_equal(got_z, (data + 1) * 2)


def test_roundup_of_an_intermediate_needs_no_guard() -> None:
    m, n, k = 6, 20, 3
    a, b = te.placeholder((m, k), name="A"), te.placeholder((k, n), name="B")
    r = te.reduce_axis(k, "k")
    c = te.compute((m, n), lambda i, j: te.sum(a[i, r] * b[r, j], axis=r), name="C")
    d = te.compute((m, n), lambda i, j: c[i, j] + 1.0, name="D")
    s = te.create_schedule(d.op)
    _, ji = s[c].split(s[c].axis[1], 16, tail="roundup")
    s[c].vectorize(ji)
    s.transform_layout(b, "1/16 0 1%16")
    func = te.lower(s, [a, b, d])
    assert not statements(func, If)
    assert statements(func, Allocate)[0].buffer.shape == (6, 32)
    x, y = integers(m, k), integers(k, n)
    np.testing.assert_array_equal(run(func, x, Layout.parse("1/16 0 1%16").pack(y))[0], x @ y + 1)


def test_roundup_makes_room_in_a_root_producer() -> None:
    x, y, z = chain(10)
    w = te.compute((10,), lambda i: z[i] - 1.0, name="W")
    s = te.create_schedule(w.op)
    s[z].split(s[z].axis[0], 4, tail="roundup")
    func = te.lower(s, [x, w])
    assert sorted(a.buffer.shape for a in statements(func, Allocate)) == [(12,), (12,)]
    data = integers(10)
    np.testing.assert_array_equal(run(func, data)[0], (data + 1) * 2 - 1)
    assert y.name == "Y"


def test_roundup_makes_room_for_all_sizes() -> None:
    n = te.var("n")
    x = te.placeholder((n,), name="X")
    y = te.compute((n,), lambda i: x[i] + 1.0, name="Y")
    z = te.compute((n,), lambda i: y[i] * 2.0, name="Z")
    w = te.compute((n,), lambda i: z[i] - 1.0, name="W")
    s = te.create_schedule(w.op)
    s[z].split(s[z].axis[0], 4, tail="roundup")
    func = te.lower(s, [x, w])
    for size in (10, 12, 1, 0):
        rooms = {value_of(a.buffer.shape[0], {n: size}) for a in statements(func, Allocate)}
        assert rooms == {-(-size // 4) * 4}
        data = integers(size)
        np.testing.assert_array_equal(run(func, data, n=size)[0], (data + 1) * 2 - 1)


def test_rounded_tiles_of_the_last_region_begin_before_the_end() -> None:
    """A region has room for four tiles, of which a short last region needs fewer."""
    n = te.var("n")
    x = te.placeholder((n,), name="X")
    y = te.compute((n,), lambda i: x[i] + 1.0, name="Y")
    z = te.compute((n,), lambda i: y[i] * 2.0, name="Z")
    w = te.compute((n,), lambda i: z[i] - 1.0, name="W")
    s = te.create_schedule(w.op)
    block, _ = s[w].split(s[w].axis[0], 20, tail="guard")
    s[z].compute_at(s[w], block)
    s[z].split(s[z].axis[0], 5, tail="roundup")
    func = te.lower(s, [x, w])
    guards = [i for f in statements(func, For) for i in [f.body] if isinstance(i, If)]
    (tile,) = (g for g in guards if statements(replace(func, body=g), For))
    blocks, tiles = (f.var for f in statements(func, For) if f.var in free_vars(tile.cond))
    for size in (1, 5, 7, 20, 33):
        ran = 0
        for i, j in product(range(-(-size // 20)), range(4)):
            at: dict[Expr, Expr] = {n: const(size), blocks: const(i), tiles: const(j)}
            ran += decided(substitute(tile.cond, at)) is True
        assert ran == -(-size // 5)
        data = integers(size)
        np.testing.assert_array_equal(run(func, data, n=size)[0], (data + 1) * 2 - 1)


def test_roundup_past_an_argument_is_refused() -> None:
    x, y, z = chain(10)
    s = te.create_schedule(z.op)
    s[y].split(s[y].axis[0], 4, tail="roundup")
    with pytest.raises(ScheduleError, match=r"cannot round up axis i of Y.*past the end of X"):
        te.lower(s, [x, z])


def test_double_buffer_computes_ahead() -> None:
    x, y, z = chain(10)
    s = te.create_schedule(z.op)
    io, _ = s[z].split(s[z].axis[0], 4)
    s[y].compute_at(s[z], io)
    s[y].double_buffer()
    func = te.lower(s, [x, z])
    assert [a.buffer.shape for a in statements(func, Allocate)] == [(2, 4)]
    data = integers(10)
    np.testing.assert_array_equal(run(func, data)[0], (data + 1) * 2)


def test_storage_align_pads_the_stride() -> None:
    x = te.placeholder((4, 10), name="X")
    y = te.compute((4, 10), lambda i, j: x[i, j] + 1.0, name="Y")
    z = te.compute((4, 10), lambda i, j: y[i, j] * 2.0, name="Z")
    s = te.create_schedule(z.op)
    s[y].storage_align(s[y].axis[0], 16, 1)
    func = te.lower(s, [x, z])
    assert statements(func, Allocate)[0].buffer.shape == (4, 17)
    data = integers(4, 10)
    np.testing.assert_array_equal(run(func, data)[0], (data + 1) * 2)


def test_prefetch_stays_inside_the_tensor() -> None:
    x, _, z = chain(40)
    s = te.create_schedule(z.op)
    s["Y"].compute_inline()
    io, _ = s[z].split(s[z].axis[0], 16)
    s[z].prefetch(x, io, 2)
    func = te.lower(s, [x, z])
    (evaluate,) = statements(func, Evaluate)
    assert evaluate.value.name == "prefetch"
    data = integers(40)
    np.testing.assert_array_equal(run(func, data)[0], (data + 1) * 2)


def test_a_prefetch_is_spread_only_over_a_loop_inside() -> None:
    x = te.placeholder((8, 64), name="X")
    y = te.compute((8, 64), lambda i, j: x[i, j] * 2.0, name="Y")
    s = te.create_schedule(y.op)
    i, j = s[y].axis
    s[y].prefetch(x, j, 1, over=i)
    with pytest.raises(ScheduleError, match="expected a loop inside it"):
        te.lower(s, [x, y])


def product_in_blocks(layout: str, at: str) -> tuple[te.Schedule, list[te.Tensor], te.Tensor]:
    """A product whose sums are computed in loop `at` of its blocks of columns or rows."""
    x, w = te.placeholder((8, 16), name="X"), te.placeholder((16, 64), name="W")
    k = te.reduce_axis(16, "k")
    y = te.compute((8, 64), lambda i, j: te.sum(x[i, k] * w[k, j], axis=k), name="Y")
    s = te.create_schedule(y.op)
    s.transform_layout(w, layout)
    acc = s.cache_write(y, "stack")
    jo, ji = s[y].split(s[y].axis[1], 32)
    s[y].reorder(jo, s[y].axis[0], ji)
    s[acc].compute_at(s[y], {"block": jo, "row": s[y].axis[0]}[at])
    s[acc].reorder(*s[acc].reduce_axis, *s[acc].axis)
    return s, [x, w, y], acc


@pytest.mark.parametrize(
    ("layout", "at", "loop", "message"),
    [
        ("0 1", "row", "jo", "it is not one piece of memory"),
        ("1/32 0 1%32", "block", "i", "Y_stack is computed outside that loop"),
    ],
)
def test_what_is_prefetched_around_a_stage_is_one_piece(
    layout: str, at: str, loop: str, message: str
) -> None:
    s, args, acc = product_in_blocks(layout, at)
    out = s[args[-1]]
    axis = next(a for a in out.leaf_axes if a.name == loop)
    s[acc].prefetch(args[1], axis, 1, over=s[acc].reduce_axis[0])
    with pytest.raises(ScheduleError, match=message):
        te.lower(s, args)


def test_pieces_are_prefetched_to_the_last_line() -> None:
    s, args, acc = product_in_blocks("1/32 0 1%32", "row")
    jo = s[args[-1]].leaf_axes[0]
    s[acc].prefetch(args[1], jo, 1, over=s[acc].reduce_axis[0])
    (ask,) = statements(te.lower(s, args), Evaluate)
    (load,) = ask.value.args
    assert str(load) == "W[1, 0, min(i * 16 + k, 31) * 16]"


def test_flattened_axes_give_one_tile_over_both() -> None:
    c, h, w = 4, 7, 7
    x, wt = te.placeholder((c, h, w), name="X"), te.placeholder((6, c), name="W")
    k = te.reduce_axis(c, "k")
    y = te.compute((6, h, w), lambda o, i, j: te.sum(x[k, i, j] * wt[o, k], axis=k), name="Y")
    z = te.compute((6, h, w), lambda o, i, j: y[o, i, j] + 1.0, name="Z")
    s = te.create_schedule(z.op)
    flat = s.flatten_axes(y, *s[y].axis[1:])
    assert flat.shape == (6, 49)
    o, i, j = s[z].axis
    po, pi = s[z].split(s[z].fuse(i, j), 14)
    s[z].reorder(po, o, pi)
    s[flat].compute_at(s[z], po)
    s.transform_layout(x, "1 2 0")
    func = te.lower(s, [x, wt, z])
    assert [a.buffer.shape for a in statements(func, Allocate)] == [(6, 14)]
    xs, ws = integers(c, h, w), integers(6, c)
    want = np.einsum("kij,ok->oij", xs, ws) + 1
    np.testing.assert_array_equal(run(func, Layout.parse("1 2 0").pack(xs), ws)[0], want)


def test_rfactor_of_an_overhanging_split() -> None:
    x = te.placeholder((3, 10), name="X")
    k = te.reduce_axis(10, "k")
    y = te.compute((3,), lambda i: te.max(x[i, k], axis=k), name="Y")
    s = te.create_schedule(y.op)
    _, ki = s[y].split(k, 4)
    part = s.rfactor(y, ki)
    assert part.shape == (4, 3)
    s[part].vectorize(s[part].axis[0])
    data = integers(3, 10)
    np.testing.assert_array_equal(run(te.lower(s, [x, y]), data)[0], data.max(1))


def test_pragma_becomes_an_attribute() -> None:
    x, _, z = chain()
    s = te.create_schedule(z.op)
    s[z].pragma(s[z].axis[0], "note", 3)
    assert te.lower(s, [x, z]).attrs == (("pragma Z.i note", "3"),)


def test_only_one_value_of_a_pair_may_be_asked_for() -> None:
    x = te.placeholder((4,), name="X")
    a, b = te.compute((4,), lambda i: (x[i] + 1.0, x[i] * 2.0), name="P")
    func = te.lower(te.create_schedule(b.op), [x, b])
    data = integers(4)
    np.testing.assert_array_equal(run(func, data)[0], data * 2)
    assert a.name == "P"


def test_arguments_are_checked() -> None:
    family = matmul()
    s = te.create_schedule(family.ops)
    with pytest.raises(UsageError, match="args lack B, D"):
        te.lower(s, [family.inputs[0]])
    with pytest.raises(UsageError, match="C is an intermediate"):
        te.lower(s, [*family.inputs, *family.outputs, family.outputs[0].op.inputs[0]])
    with pytest.raises(UsageError, match="no tensor of this schedule"):
        te.lower(s, [te.placeholder((3,))])
    with pytest.raises(UsageError, match="given twice"):
        te.lower(s, [family.inputs[0], family.inputs[0]])


def test_parallel_and_vector_loops_keep_their_kind() -> None:
    s, args = register_matmul(13, 20, 4, (6, 16))
    kinds = {f.kind for f in statements(te.lower(s, args), For)}
    assert kinds == {"parallel", "serial", "unrolled", "vectorized"}


def test_a_parameter_with_a_default_captures_a_value() -> None:
    x = te.placeholder((3,), name="X")
    made = [te.compute((3,), lambda i, n=n: x[i] + n, f"Y{n}") for n in (1, 2)]
    data = integers(3)
    found = run(te.lower(te.create_schedule([t.op for t in made]), [x, *made]), data)
    np.testing.assert_array_equal(found, [data + 1, data + 2])


def test_cast_takes_the_name_of_a_type() -> None:
    x = te.placeholder((3,), name="X")
    assert te.cast(x[0], "i32").dtype.name == "i32"
