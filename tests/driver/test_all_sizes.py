"""One compilation for all sizes: answers, refusals, specialised programs."""

from __future__ import annotations

import random
from collections.abc import Mapping

import numpy as np
import pytest

import tilesmith as ts
from tilesmith import driver
from tilesmith.driver.passes import optimise
from tilesmith.driver.session import Session
from tilesmith.graph.bind import bind
from tilesmith.graph.builder import Builder
from tilesmith.graph.control import kernels_in
from tilesmith.graph.evaluate import evaluate
from tilesmith.graph.nodes import Fused, Graph
from tilesmith.ir.dtypes import f32, i64
from tilesmith.ir.expr import Load, Var
from tilesmith.ir.symbols import symbol
from tilesmith.ir.types import Dim, TensorType
from tilesmith.ops import conv, matmul, norm, pool, reduce, scatter, shape, slicing, sort
from tilesmith.ops.activation import Relu
from tilesmith.ops.elementwise import Add, Cast, Exp, Mul
from tilesmith.runtime.executable import Executable
from tilesmith.runtime.host_runner import HostRunner
from tilesmith.runtime.sized_runner import SizedRunner
from tilesmith.strategy.cpu.winograd import winograd_op
from tilesmith.strategy.group import group_tensors
from tilesmith.support.errors import ModelError, UsageError


def _weights(*extents: int) -> np.ndarray:
    return np.random.default_rng(len(extents)).standard_normal(extents).astype(np.float32) * 0.1


def _attention(n: Var, m: Var) -> Graph:
    b = Builder("attention")
    x = b.input("x", TensorType(f32, (n, m, 24)))
    y = b.add(Relu(), b.add(matmul.MatMul(), x, b.constant(_weights(24, 24))))
    y = b.add(shape.Transpose((0, 2, 1, 3)), b.add(shape.Reshape((n, m, 2, 12)), y))
    scores = b.add(matmul.MatMul(transpose_b=True), y, y)
    y = b.add(matmul.MatMul(), b.add(norm.Softmax(-1), scores), y)
    return b.finish(b.add(slicing.Concat(2), y, y))


def _network(n: Var, h: Var) -> Graph:
    b = Builder("network")
    x = b.input("x", TensorType(f32, (n, 3, h, 40)))
    y = b.add(conv.Conv(strides=(2, 2), pads=(1, 1, 1, 1)), x, b.constant(_weights(8, 3, 3, 3)))
    y = b.add(conv.Conv(pads=(1, 1, 1, 1)), b.add(Relu(), y), b.constant(_weights(8, 8, 3, 3)))
    y = b.add(pool.MaxPool((2, 2), strides=(2, 2)), y)
    return b.finish([b.add(reduce.ReduceMean((2, 3)), y), b.add(Exp(), y)])


def _check(graph: Graph, exe: Executable, sizes: Mapping[Var, int]) -> None:
    fixed = bind(graph, sizes)
    rng = np.random.default_rng(0)
    inputs = [rng.standard_normal(v.type.static_shape).astype(np.float32) for v in fixed.inputs]
    wanted = evaluate(fixed, inputs)
    found = exe.run({v.name: a for v, a in zip(fixed.inputs, inputs, strict=True)})
    for name, want in wanted.items():
        assert found[name].shape == want.shape
        np.testing.assert_allclose(found[name], want, rtol=2e-4, atol=2e-4, err_msg=str(sizes))


def test_attention_of_all_sizes(tmp_path) -> None:
    n, m = symbol("batch", 0, 8, 2), symbol("seq", 1, 300, 64)
    graph = _attention(n, m)
    exe = ts.compile(graph, threads=2)
    assert str(exe.inputs[0]) == "x: f32[batch,seq,24]"
    seed = random.randrange(1 << 30)
    print("seed", seed)
    rng = random.Random(seed)
    drawn = [{n: rng.randint(1, 8), m: rng.randint(1, 300)} for _ in range(8)]
    for sizes in ({n: 2, m: 64}, {n: 0, m: 5}, {n: 1, m: 1}, *drawn):
        _check(graph, exe, sizes)
    exe.save(tmp_path / "model.tsm")
    again = ts.load(tmp_path / "model.tsm", threads=1)
    assert again.program.symbols == exe.program.symbols
    _check(graph, again, {n: 3, m: 17})
    assert again.profile(np.zeros((2, 9, 24), np.float32), repeats=1).seconds > 0


def _tokens_first(n: Dim, m: Dim) -> Graph:
    """Attention on x [m, n, 48], whose result has one axis for tokens and images."""
    b = Builder("attention")
    x = b.input("x", TensorType(f32, (m, n, 48)))
    q, k, v = (
        b.add(shape.Reshape((n, 6, m, 8)), b.add(shape.Transpose((1, 0, 2)), y))
        for w in (1, 2, 3)
        for y in [
            b.add(shape.Reshape((m, n * 6, 8)), b.add(Mul(), x, b.constant(_weights(48) * w)))
        ]
    )
    rows = b.add(norm.Softmax(-1), b.add(matmul.MatMul(transpose_b=True), q, k))
    y = b.add(shape.Transpose((2, 0, 1, 3)), b.add(matmul.MatMul(), rows, v))
    y = b.add(shape.Reshape((m * n, 48)), y)
    return b.finish(b.add(matmul.MatMul(), y, b.constant(_weights(48, 48))))


@pytest.mark.parametrize("is_long", [False, True])
def test_attention_of_open_sizes_is_one_kernel(is_long: bool) -> None:
    """Its copies are those of one head and a tile of rows, as for the expected size."""
    n, m = symbol("n", expected=1), symbol("m", expected=50) if is_long else 50
    graph = _tokens_first(n, m)
    exe = ts.compile(graph, threads=2)
    kernels = [k.operators for k in exe.program.kernels.values()]
    assert sum("matmul" in k and "reduce_max" in k for k in kernels) == 1
    seed = random.randrange(1 << 30)
    print("seed", seed)
    rng = random.Random(seed)
    for images in (1, 2, rng.randint(3, 9)):
        sizes = {n: images} | ({m: rng.choice((1, 7, 64, 130))} if isinstance(m, Var) else {})
        _check(graph, exe, sizes)
    scratch = set()
    for images in (1, 4):
        sizes = {n: images} | ({m: 50} if isinstance(m, Var) else {})
        fixed = ts.compile(bind(graph, sizes), threads=2)
        assert isinstance(exe.runner, HostRunner) and exe.runner.sizes
        needed, of_threads, *_ = exe.runner.sizes.of([np.zeros((50, images, 48), np.float32)]).call
        assert needed <= 1.15 * fixed.program.arena_bytes
        scratch.add(of_threads)
    assert len(scratch) == 1


def test_convolutions_of_all_sizes() -> None:
    n, h = symbol("n", 1, 8, 1), symbol("h", 4, 200, 32)
    graph = _network(n, h)
    exe = ts.compile(graph, threads=2)
    for sizes in ((1, 32), (1, 33), (3, 4), (2, 101)):
        _check(graph, exe, dict(zip((n, h), sizes, strict=True)))


def test_shapes_that_were_checked_are_not_checked_again(monkeypatch) -> None:
    n, m = symbol("n", 1, 64, 4), symbol("m", 1, 64, 4)
    b = Builder("sum")
    x, y = b.input("x", TensorType(f32, (n, m))), b.input("y", TensorType(f32, (m,)))
    exe = ts.compile(b.finish([b.add(Add(), x, y), b.add(Exp(), y)]), threads=1)
    x, y = _weights(3, 5), _weights(5)
    exe(x, y)
    checked, slow = [], HostRunner._run_checked
    monkeypatch.setattr(
        HostRunner, "_run_checked", lambda *given: checked.append(given) or slow(*given)
    )
    found, exps = exe(x + 1, y)
    np.testing.assert_allclose(found, x + 1 + y, rtol=1e-6)
    np.testing.assert_allclose(exps, np.exp(y), rtol=1e-6)
    assert not checked
    exe(x[:2], y), exe(x.T.copy().T, y)  # another size, other strides
    assert len(checked) == 2
    for wrong in ((x, y.astype(np.int32)), (x, y[:4]), (x, np.ones((5, 1))), (x,)):
        with pytest.raises(ModelError):
            exe(*wrong)


@pytest.mark.parametrize(("channels", "size", "most"), [(24, 24, 8), (24, 24, None), (96, 12, 8)])
def test_winograd_convolutions_of_all_sizes(channels: int, size: int, most: int | None) -> None:
    """In blocks of tiles, also of one image, and with all tiles transformed before the products."""
    h, w = symbol("h", 1, 200, size), symbol("w", 1, 200, size)
    n = 1 if most is None else symbol("n", 0, most, 1)
    b = Builder("winograd")
    x = b.input("x", TensorType(f32, (n, channels, h, w)))
    y = b.add(conv.Conv(pads=(1, 1, 1, 1)), x, b.constant(_weights(channels, channels, 3, 3)))
    graph = b.finish(b.add(Relu(), b.add(Add(), y, b.constant(_weights(channels, 1, 1)))))
    kernels = kernels_in(optimise(graph, Session.of(None, threads=2)))
    assert any(isinstance(n.op, Fused) and winograd_op(n.op.body) for _, n in kernels)
    exe = ts.compile(graph, threads=2)
    for images, *image in ((1, size, size), (0, 5, 5), (1, 1, 1), (2, 3, 18), (3, size + 1, 7)):
        sizes = dict(zip((h, w), image, strict=True))
        _check(graph, exe, sizes if isinstance(n, int) else {n: images, **sizes})


def test_tiles_of_all_sizes_read_a_halo() -> None:
    """The zeros that make the last tile whole are memory, so that no read needs a test."""
    h, w = symbol("h", 1, 200, 24), symbol("w", 1, 200, 24)
    b = Builder("two")
    y = b.input("x", TensorType(f32, (1, 24, h, w)))
    for _ in range(2):
        y = b.add(conv.Conv(pads=(1, 1, 1, 1)), y, b.constant(_weights(24, 24, 3, 3)))
    graph = b.finish(y)
    fused = [n for _, n in kernels_in(optimise(graph, Session.of(None)))]
    second = [n for n in fused if isinstance(n.op, Fused) and winograd_op(n.op.body)][1]
    layout = second.inputs[0].layout
    assert layout is not None
    assert {d.axis: (d.before, d.after) for d in layout.dims if d.before} == {2: (1, 4), 3: (1, 4)}
    reads = [s for s in group_tensors(second.op.body).stages if s.name == "pad"]
    assert all(isinstance(s.body[0], Load) for s in reads)
    exe = ts.compile(graph, threads=2)
    for image in ((24, 24), (1, 1), (5, 30), (23, 6)):
        _check(graph, exe, dict(zip((h, w), image, strict=True)))


def test_channels_of_open_images_are_joined_in_place() -> None:
    h, w = symbol("h", 1, 100, 16), symbol("w", 1, 100, 16)
    b = Builder("joined")
    x = b.input("x", TensorType(f32, (1, 16, h, w)))
    parts = [b.add(conv.Conv(), x, b.constant(k * _weights(16, 16, 1, 1))) for k in (1, 2)]
    y = b.add(slicing.Concat(1), *(b.add(Relu(), p) for p in parts))
    graph = b.finish(b.add(conv.Conv(), y, b.constant(_weights(8, 32, 1, 1))))
    exe = ts.compile(graph, threads=2)
    done = [o for k in exe.program.kernels.values() for o in k.operators]
    assert "conv" in done and "concat" not in done
    for image in ((16, 16), (1, 7), (33, 5)):
        _check(graph, exe, dict(zip((h, w), image, strict=True)))


def test_a_profile_reckons_with_the_expected_sizes() -> None:
    n, h = symbol("n", 1, 8, 1), symbol("h", 4, 200, 32)
    exe = ts.compile(_network(n, h), threads=1)
    fixed = ts.compile(_network(1, 32), threads=1)
    image = np.zeros((1, 3, 32, 40), np.float32)
    flops = [sum(k.info.work.flops for k in e.profile(image) if k.info) for e in (exe, fixed)]
    assert flops[0] == pytest.approx(flops[1], rel=0.5)
    assert all(k.prediction is not None for k in exe.profile(image))
    other = exe.profile(np.zeros((1, 3, 33, 40), np.float32))
    assert any(k.prediction is None and not k.flops_per_second for k in other)
    assert str(other)


def test_a_convolution_whose_tiles_are_not_proved_to_fit_stays_direct() -> None:
    n, h = symbol("n", 1, 8, 1), symbol("h", 1, 64, 12)
    b = Builder("wide")
    x = b.input("x", TensorType(f32, (n, 96, h, 12)))
    graph = b.finish(b.add(conv.Conv(pads=(2, 2, 2, 2)), x, b.constant(_weights(96, 96, 3, 3))))
    exe = ts.compile(graph, threads=2)
    _check(graph, exe, {n: 2, h: 7})


def test_kernels_for_all_sizes_are_checked() -> None:
    n, h = symbol("n", 1, 8, 1), symbol("h", 4, 200, 32)
    graph = _network(n, h)
    assert all(c.passed for c in driver.check(graph))
    image = np.random.default_rng(0).standard_normal((3, 3, 21, 40)).astype(np.float32)
    found = driver.check(graph, {"x": image})
    assert len(found) > 2 and all(c.passed for c in found)


def test_an_input_whose_extent_follows_from_others() -> None:
    n, m = symbol("past", 0, 64), symbol("seq", 1, 64)
    b = Builder("cache")
    x, y = b.input("x", TensorType(f32, (n,))), b.input("y", TensorType(f32, (m,)))
    z = b.input("z", TensorType(f32, (n + m,)))
    exe = ts.compile(b.finish(b.add(Add(), b.add(slicing.Concat(0), x, y), z)))
    one = [np.ones(k, np.float32) for k in (3, 2, 5)]
    np.testing.assert_array_equal(exe(*one), np.full(5, 2, np.float32))
    with pytest.raises(ModelError, match=r"input 'z', axis 0: expected .* = 5, found 4"):
        exe(*one[:2], np.ones(4, np.float32))


def test_a_model_without_open_dimensions_is_not_specialised() -> None:
    b = Builder("fixed")
    graph = b.finish(b.add(Exp(), b.input("x", TensorType(f32, (4,)))))
    with pytest.raises(UsageError, match="no dimension is called 'batch'; the open ones are none"):
        ts.compile(graph, specialise={"batch": 8})


def test_sizes_that_do_not_fit_are_refused() -> None:
    n, m = symbol("n", 1, 8), symbol("m", 1)
    b = Builder("sum")
    x, y = (b.input(name, TensorType(f32, (n, m))) for name in ("x", "y"))
    exe = ts.compile(b.finish(b.add(Exp(), b.add(Add(), x, y))))
    room = np.zeros((8, 4), np.float32)
    exe(room, room)
    with pytest.raises(ModelError, match=r"dimension 'n': expected 1 to 8, found 9; compile"):
        exe(np.zeros((9, 4), np.float32), np.zeros((9, 4), np.float32))
    with pytest.raises(ModelError, match=r"'m': expected one size in all inputs, found 4 \(axis 1"):
        exe(room, np.zeros((8, 5), np.float32))
    with pytest.raises(
        ModelError, match=r"to be broadcast, compile with the shape of 'y' in shapes"
    ):
        exe(room, np.zeros((8, 1), np.float32))
    with pytest.raises(ModelError, match=r"input 'y': expected shape \(n, m\), found \(8,\)"):
        exe(room, room[:, 0])


def test_hostile_sizes_are_refused_before_memory_is_taken() -> None:
    n, m = symbol("n"), symbol("m")
    b = Builder("outer")
    x = b.input("x", TensorType(f32, (n, 1, 1, 1)))
    y = b.input("y", TensorType(f32, (1, m, 1, 1)))
    z = b.add(Exp(), b.add(Add(), b.add(shape.Expand((n, m, n, m)), x), y))
    exe = ts.compile(b.finish(b.add(Relu(), z)))
    assert exe(np.zeros((2, 1, 1, 1), np.float32), np.zeros((1, 3, 1, 1), np.float32)).size == 36
    with pytest.raises(ModelError, match=r"n = 20000, m = 20000 needs [0-9]+ bytes, the machine"):
        exe(np.zeros((20000, 1, 1, 1), np.float32), np.zeros((1, 20000, 1, 1), np.float32))
    with pytest.raises(ModelError, match=r"65536 needs [0-9]+ bytes|sizes are too large"):
        exe(np.zeros((1 << 16, 1, 1, 1), np.float32), np.zeros((1, 1 << 16, 1, 1), np.float32))


def test_an_extent_that_would_be_negative() -> None:
    n = symbol("n", 1, 100, 50)
    b = Builder("window")
    x = b.input("x", TensorType(f32, (1, 1, n)))
    exe = ts.compile(b.finish(b.add(conv.Conv(), x, b.constant(_weights(1, 1, 5)))))
    assert exe(np.zeros((1, 1, 5), np.float32)).shape == (1, 1, 1)
    with pytest.raises(ModelError, match="n = 3: these sizes make an extent inside it negative"):
        exe(np.zeros((1, 1, 3), np.float32))


def test_more_elements_than_there_are() -> None:
    """No extent of a result shows that an operator reads or writes beyond its first operand."""
    n = symbol("n", 1, 100, 1)
    b = Builder("best")
    values, places = b.add(sort.TopK(5), b.input("x", TensorType(f32, (n,))))
    exe = ts.compile(b.finish([values, places]))
    x = np.arange(7, dtype=np.float32)
    assert [y.tolist() for y in exe(x)] == [[6, 5, 4, 3, 2], [6, 5, 4, 3, 2]]
    with pytest.raises(ModelError, match=r"n = 4: .* less than an operator needs"):
        exe(x[:4])

    b = Builder("scattered")
    data = b.input("data", TensorType(f32, (2, 4)))
    indices = b.input("indices", TensorType(i64, (2, n)))
    updates = b.input("updates", TensorType(f32, (2, n)))
    exe = ts.compile(b.finish(b.add(scatter.ScatterElements(0), data, indices, updates)))
    zeros, ones = np.zeros((2, 4), np.float32), np.ones((2, 9), np.float32)
    positions = np.stack([np.zeros(9, np.int64), np.ones(9, np.int64)])
    assert exe(zeros, positions[:, :3], ones[:, :3]).sum() == 6
    with pytest.raises(ModelError, match=r"n = 9: .* less than an operator needs"):
        exe(zeros, positions, ones)


@pytest.mark.parametrize("keepdims", [False, True])
def test_no_element_has_no_place(keepdims: bool) -> None:
    n = symbol("n", 0, 100, 4)
    b = Builder("extreme")
    y = b.add(reduce.ArgMax(0, keepdims), b.input("x", TensorType(f32, (n, 3))))
    exe = ts.compile(b.finish(b.add(Cast(f32), y)))
    assert exe(np.eye(3, dtype=np.float32)[::-1]).ravel().tolist() == [2, 1, 0]
    with pytest.raises(ModelError, match=r"n = 0: .* less than an operator needs"):
        exe(np.zeros((0, 3), np.float32))


def test_specialised_programs_beside_the_general_one(monkeypatch: pytest.MonkeyPatch) -> None:
    n, m = symbol("batch", 1, 8, 1), symbol("seq", 1, 64, 16)
    graph = _attention(n, m)
    exe = ts.compile(graph, specialise=[{"batch": 4}, {"batch": 2, "seq": 8}])
    assert isinstance(exe.runner, SizedRunner)
    assert exe.specialised == ({"batch": 2, "seq": 8}, {"batch": 4})
    used: list[str] = []
    for sizes, fixed in exe.runner.fixed:
        monkeypatch.setattr(fixed, "_call", _noted(fixed._call, str(sizes), used))
    for sizes in ((4, 5), (2, 8), (2, 9), (1, 8)):
        _check(graph, exe, dict(zip((n, m), sizes, strict=True)))
    assert used == ["{'batch': 4}", "{'batch': 2, 'seq': 8}"]
    with pytest.raises(UsageError, match=r"no dimension is called 'bach'; .* are batch, seq"):
        ts.compile(graph, specialise={"bach": 1})
    with pytest.raises(UsageError, match="dimension 'batch': expected 1 to 8, found 9"):
        ts.compile(graph, specialise={"batch": 9})


def _noted(call, name: str, used: list[str]):
    def run(*args):
        used.append(name)
        return call(*args)

    return run


def test_hot_sizes_get_programs_of_their_own() -> None:
    n, m = symbol("batch", 1, 8, 1), symbol("seq", 1, 64, 16)
    graph = _attention(n, m)
    exe = ts.compile(graph, specialise="auto")
    assert isinstance(exe.runner, SizedRunner) and exe.specialised == ()
    for _ in range(33):
        _check(graph, exe, {n: 2, m: 7})
    assert exe.runner.making is not None
    exe.runner.making.join()
    assert exe.specialised == ({"batch": 2, "seq": 7},)
    _check(graph, exe, {n: 2, m: 7})


def test_nothing_is_compiled_after_compile_has_returned(monkeypatch: pytest.MonkeyPatch) -> None:
    n, m = symbol("batch", 1, 8, 1), symbol("seq", 1, 64, 16)
    graph = _attention(n, m)
    exe = ts.compile(graph)
    made = driver.kernels_made()
    for size in range(1, 21):
        _check(graph, exe, {n: 1 + size % 3, m: size})
    assert driver.kernels_made() == made


def test_an_axis_split_by_an_extent_that_is_open():
    """Channels become rows of a window, and rows channels again: the last index is c * n + i."""
    n = symbol("n", 1, 64, 8)
    b = Builder("lrn")
    x = b.input("x", TensorType(f32, (2, 6, n)))
    graph = b.finish(b.add(norm.Lrn(3), x))
    exe = Executable(driver.compile_program(graph, driver.Session.of(None)))
    for size in (1, 7, 33):
        _check(graph, exe, {n: size})


def test_rows_of_any_length_take_no_more_memory_than_a_row():
    n = symbol("n", 1, 1 << 20, 128)
    b = Builder("rows")
    x = b.input("x", TensorType(f32, (2, 1, n)))
    exe = ts.compile(b.finish(b.add(norm.Softmax(-1), b.add(Relu(), x))), threads=1)
    row = np.linspace(-1, 1, 6, dtype=np.float32).reshape(2, 1, 3)
    raised = np.exp(np.maximum(row, 0))
    np.testing.assert_allclose(exe(row), raised / raised.sum(-1, keepdims=True), rtol=1e-6)
    assert isinstance(exe.runner, HostRunner)
    sizes = exe.runner.sizes
    assert sizes is not None
    assert sizes.of([row]).call[0] <= 1024  # bytes of the arena
