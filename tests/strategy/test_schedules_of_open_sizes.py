"""Schedules of expected sizes for expressions of all sizes: small sizes and small ranges too."""

from __future__ import annotations

import logging
import re
from dataclasses import replace
from typing import Any, cast

import numpy as np
import pytest

import tilesmith as ts
from tilesmith import driver, te
from tilesmith.driver.passes import optimise
from tilesmith.driver.tuned import apply_tuning
from tilesmith.graph.bind import bind, expected_graph
from tilesmith.graph.builder import Builder
from tilesmith.graph.control import kernels_in
from tilesmith.graph.evaluate import evaluate
from tilesmith.graph.nodes import Fused, Graph, Value
from tilesmith.ir.dtypes import f32, i64
from tilesmith.ir.expr import Var
from tilesmith.ir.sizes import LARGEST
from tilesmith.ir.symbols import symbol
from tilesmith.ir.types import TensorType
from tilesmith.loop.text import print_func
from tilesmith.ops.base import Op
from tilesmith.ops.conv import Conv
from tilesmith.ops.elementwise import Exp
from tilesmith.ops.gather import Gather
from tilesmith.ops.matmul import MatMul
from tilesmith.ops.norm import InstanceNorm, RmsNorm, Softmax
from tilesmith.ops.pool import AvgPool, GlobalAvgPool, MaxPool
from tilesmith.ops.reduce import ReduceLogSumExp, ReduceMax, ReduceSum
from tilesmith.ops.scan import CumSum
from tilesmith.ops.shape import Transpose
from tilesmith.ops.slicing import Slice
from tilesmith.search_space.groups import lower_group
from tilesmith.strategy.cpu.winograd import winograd_op
from tilesmith.strategy.group import Group, group_tensors
from tilesmith.strategy.sizes import explodes, for_all_sizes, stores
from tilesmith.support.options import Options

SESSION = driver.Session.of(Options())
CASES: list[tuple[Op, tuple[str, ...]]] = [
    (ReduceSum((0,)), ("n",)),
    (ReduceMax((0,)), ("n 5",)),
    (ReduceSum((1,)), ("n m",)),
    (ReduceLogSumExp((1, 2)), ("2 n m 3",)),
    (Softmax(-1), ("n",)),
    (Softmax(-1), ("n m",)),
    (Softmax(0), ("n 10",)),
    (RmsNorm(), ("n m", "m")),
    (InstanceNorm(), ("1 3 n m", "3", "3")),
    (GlobalAvgPool(), ("n 3 m 8",)),
    (MatMul(), ("n m", "m n")),
    (MatMul(), ("4 n", "n")),
    (MatMul(), ("1 n", "n 64")),
    (MatMul(transpose_b=True), ("2 4 n 16", "2 4 m 16")),
    (CumSum(1), ("n m",)),
    (Transpose((1, 0)), ("n m",)),
]
SIZES = (1, 2, 3, 7, 8, 15, 16, 17, 64, 1000)
RANGES = ((0, LARGEST), (1, 8), (1, 1000))


def of(op: Op, shapes: tuple[str, ...], dims: dict[str, Var]) -> Graph:
    b = Builder("one")
    extents = [tuple(dims[d] if d in dims else int(d) for d in s.split()) for s in shapes]
    return b.finish(
        b.add(op, *(b.input(f"x{i}", TensorType(f32, e)) for i, e in enumerate(extents)))
    )


def open_dims(low: int, high: int, expected: int) -> dict[str, Var]:
    return {name: symbol(name, low, high, expected) for name in "nm"}


@pytest.mark.parametrize(("op", "shapes"), CASES, ids=str)
def test_expected_sizes_serve_all(op: Op, shapes: tuple[str, ...], caplog) -> None:
    """No expected size and no range makes steps that open extents refuse."""
    caplog.set_level(logging.INFO, "tilesmith")
    for low, high in RANGES:
        for size in SIZES[:: 1 if high == LARGEST else 4]:
            graph = of(op, shapes, open_dims(low, high, min(size, high)))
            for _, node in kernels_in(optimise(graph, SESSION)):
                assert isinstance(node.op, Fused)
                lower_group(node.op.body, SESSION.target, SESSION.backend.rules, "k")
    assert not caplog.messages


def assert_right(graph: Graph, dims: dict[str, Var], sizes: list[tuple[int, int]]) -> None:
    exe = ts.compile(graph)
    rng = np.random.default_rng(0)
    for n, m in sizes:
        fixed = bind(graph, dict(zip(dims.values(), (n, m), strict=True)))
        arrays = [rng.standard_normal(v.type.static_shape).astype(np.float32) for v in fixed.inputs]
        (wanted,) = evaluate(fixed, arrays).values()
        np.testing.assert_allclose(exe(*arrays), wanted, rtol=1e-4, atol=1e-4, err_msg=f"{n}, {m}")


@pytest.mark.parametrize("expected", [3, 16])
@pytest.mark.parametrize(("op", "shapes"), [CASES[0], CASES[5], CASES[9]], ids=str)
def test_vectors_of_the_expected_size_and_a_tail(
    op: Op, shapes: tuple[str, ...], expected: int
) -> None:
    dims = open_dims(1, LARGEST, expected)
    assert_right(of(op, shapes, dims), dims, [(expected, expected), (1, 1), (5, 2), (21, 50)])


def test_an_expected_size_that_the_group_cannot_have() -> None:
    dims = open_dims(1, 100, 1)
    graph = of(MaxPool((2, 2), strides=(2, 2)), ("1 8 n m",), dims)
    assert_right(graph, dims, [(2, 2), (5, 30)])


def test_records_say_nothing_of_a_group_that_cannot_have_its_expected_size() -> None:
    graph = of(MaxPool((2, 2), strides=(2, 2)), ("1 8 n m",), open_dims(1, 100, 1))
    fused = optimise(graph, SESSION)
    asked: list[Any] = []
    session = replace(SESSION, tuned=cast(Any, asked.append))
    assert apply_tuning(fused, session) == (fused, {})
    assert not asked


def test_windows_over_windows() -> None:
    """Their extents are quotients of quotients; Winograd's tiles of an odd width are flattened."""
    b = Builder("windows")
    x = b.input("x", TensorType(f32, (1, 3, symbol("h"), symbol("w", expected=48))))

    def conv(x: Value, stride: int, channels: int) -> Value:
        w = np.full((32, channels, 3, 3), 0.1, np.float32)
        return b.add(Conv((stride, stride), (1, 1, 1, 1)), x, b.constant(w))

    y = b.add(MaxPool((2, 2), strides=(2, 2)), conv(x, 2, 3))
    y = conv(conv(b.add(AvgPool((2, 2), (2, 1), (0, 1, 0, 1)), y), 2, 32), 1, 32)
    for _, node in kernels_in(optimise(b.finish(y), SESSION)):
        assert isinstance(node.op, Fused)
        func = lower_group(node.op.body, SESSION.target, SESSION.backend.rules, "k")
        assert not explodes(func, group_tensors(expected_graph(node.op.body)))


def test_producers_are_not_computed_whole_for_each_tile() -> None:
    """A rule may place a producer where the part that is read has no bound for open sizes."""
    n = symbol("n", expected=4000)
    b = Builder("rows")
    x, i = b.input("x", TensorType(f32, (n,))), b.input("i", TensorType(i64, (n,)))
    body = b.finish(b.add(Gather(0), b.add(Exp(), x), i))

    def bad(body: Graph, *_: object) -> tuple[te.Schedule, Group]:
        group = group_tensors(body)
        s = group.schedule()
        (exp,) = (st for st in group.stages if st.name == "exp")
        gather = s[group.outputs[0]]
        tile = gather.split(gather.axis[0], factor=8)[0]
        s[exp].compute_at(gather, tile)
        return s, group

    rules = replace(SESSION.backend.rules, schedules=lambda body, *_: iter([bad(body)]))
    group = group_tensors(body)
    s = for_all_sizes(bad(expected_graph(body))[0], group)
    assert explodes(te.lower(s, group.args), group)
    assert stores(lower_group(body, SESSION.target, rules, "k")) == 4000 * len(group.stages)


def test_padding_that_is_empty_at_the_expected_size_is_no_copy() -> None:
    h, w = symbol("h", 1, LARGEST, 11), symbol("w", 1, LARGEST, 11)
    b = Builder("pool")
    x = b.input("x", TensorType(f32, (1, 16, h, w)))
    pool = MaxPool((3, 3), strides=(2, 2), pads=(0, 0, 0, 0), ceil_mode=True)
    graph = b.finish(b.add(pool, x))
    func = lower_group(graph, SESSION.target, SESSION.backend.rules, "k")
    assert "alloc pad" not in print_func(func)


def test_a_crop_that_leaves_all_of_what_is_expected_keeps_its_rows() -> None:
    """Of images far above the expected size it does not: fused loops would divide each place."""
    h, w = (symbol(name, 1, LARGEST, 224) for name in "hw")
    b = Builder("crop")
    x = b.input("x", TensorType(f32, (1, 3, h, w)))
    graph = b.finish(b.add(Slice((0, 0), (1024, 1024), (2, 3), (1, 1)), x))
    loops = print_func(lower_group(graph, SESSION.target, SESSION.backend.rules, "k"))
    assert re.search(r", i3o \* \d+ \+ i3i\] = in0\[.*, i3o \* \d+ \+ i3i\]", loops)


def test_winograd_convolutions_of_many_filters_keep_their_tiles() -> None:
    """All inputs are transformed first; the tiles that a thread skips need room there too."""
    n = symbol("n", 1, LARGEST, 1)
    h, w = symbol("h", 0, LARGEST // 16, 13), symbol("w", 0, LARGEST // 16, 13)
    b = Builder("filters")
    x = b.input("x", TensorType(f32, (n, 64, h, w)))
    weights = b.constant(np.ones((256, 64, 3, 3), np.float32))
    graph = b.finish(b.add(Conv(pads=(1, 1, 1, 1)), x, weights))
    session = driver.Session.of(Options(target="x86-64-v3", threads=1))
    kernels = [k for _, k in kernels_in(optimise(graph, session)) if isinstance(k.op, Fused)]
    (op,) = (k.op for k in kernels if isinstance(k.op, Fused) and winograd_op(k.op.body))
    func = lower_group(op.body, session.target, session.backend.rules, "k")
    assert "product_register" in print_func(func)
