"""Permutations and planes of any shape and type, written past the caches or not, are NumPy's."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tilesmith import driver
from tilesmith.codegen.emit import emit
from tilesmith.codegen.link import compile_object
from tilesmith.codegen.math import expand_math
from tilesmith.codegen.targets import covers, host
from tilesmith.codegen.targets import target as target_named
from tilesmith.graph.builder import Builder
from tilesmith.graph.evaluate import evaluate
from tilesmith.graph.nodes import Fused, Graph
from tilesmith.ir.dtypes import dtype as to_dtype
from tilesmith.ir.types import TensorType
from tilesmith.loop.text import print_func
from tilesmith.ops.base import Op
from tilesmith.ops.shape import SpaceToDepth, Transpose
from tilesmith.ops.slicing import Slice, Tile
from tilesmith.runtime.arguments import Arguments
from tilesmith.runtime.function import NativeFunction
from tilesmith.strategy.cpu import lower_by_rule
from tilesmith.support.options import Options

TARGETS = [t for t in ("native", "x86-64-v3", "x86-64-v2") if covers(host(), target_named(t))]
KINDS = ("f32", "i64", "u8", "f16")
SETTINGS = settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow])
SIZES = st.sampled_from((1, 2, 3, 4, 5, 7, 8, 15, 16, 17, 24, 31, 32, 33, 40, 64))


def graph_of(shape: tuple[int, ...], kind: str, *ops: Op) -> Graph:
    b = Builder("moved")
    value = b.input("x", TensorType(to_dtype(kind), shape))
    for op in ops:
        value = b.add(op, value)
    return b.finish(value)


def kernel_of(graph: Graph, target: str, streamed: bool) -> NativeFunction:
    """The one kernel of `graph`, for a machine with next to no last-level cache if `streamed`."""
    session = driver.Session.of(Options(use_cache=False), target=target)
    machine = session.target.with_model(l3_bytes=64) if streamed else session.target
    (node,) = driver.optimise(graph, session).nodes
    assert isinstance(node.op, Fused)
    func = lower_by_rule(node.op.body, machine, "k")
    kernel = emit(expand_math(driver.run_loop_passes(func, session), machine), machine)
    code = compile_object(kernel.text, machine)
    return NativeFunction(kernel, code, Arguments(func), machine, threads=2)


def check(graph: Graph, target: str, streamed: bool, offset: int) -> None:
    """The kernel and the reference on one input, the result `offset` elements behind a line."""
    (given_,), (result,) = graph.inputs, graph.outputs
    x = np.arange(np.prod(given_.type.static_shape)).reshape(given_.type.static_shape)
    x = (x % 251).astype(given_.dtype.numpy)
    (want,) = evaluate(graph, [x]).values()
    memory = np.zeros(want.nbytes + 192, np.uint8)
    start = -memory.ctypes.data % 64 + offset * result.dtype.bytes
    out = memory[start : start + want.nbytes].view(want.dtype).reshape(want.shape)
    kernel_of(graph, target, streamed)(x, out)
    np.testing.assert_array_equal(out, want)
    assert not memory[:start].any() and not memory[start + want.nbytes :].any()


@pytest.mark.parametrize("target", TARGETS)
@SETTINGS
@given(data=st.data())
def test_permutations(target: str, data: st.DataObject) -> None:
    rank = data.draw(st.integers(2, 4))
    shape = tuple(data.draw(SIZES) for _ in range(rank))
    while np.prod(shape) > 1 << 16:
        shape = tuple(-(-n // 2) for n in shape)
    perm = tuple(data.draw(st.permutations(range(rank))))
    if perm == tuple(range(rank)):
        perm = perm[::-1]
    graph = graph_of(shape, data.draw(st.sampled_from(KINDS)), Transpose(perm))
    check(graph, target, data.draw(st.booleans()), data.draw(st.sampled_from((0, 0, 1))))


@pytest.mark.parametrize("target", TARGETS)
@SETTINGS
@given(data=st.data())
def test_planes(target: str, data: st.DataObject) -> None:
    block = data.draw(st.integers(2, 4))
    n, c = data.draw(st.integers(1, 3)), data.draw(st.integers(1, 5))
    h, w = (data.draw(st.sampled_from((1, 3, 8, 17, 32, 33))) for _ in range(2))
    shape = (n, c, h * block, w * block)
    kind = data.draw(st.sampled_from(KINDS))
    graph = graph_of(shape, kind, SpaceToDepth(block))
    check(graph, target, data.draw(st.booleans()), data.draw(st.sampled_from((0, 1))))


@pytest.mark.parametrize("target", TARGETS)
@given(data=st.data())
@SETTINGS
def test_copies_of_rows(target: str, data: st.DataObject) -> None:
    shape = tuple(data.draw(SIZES, f"size {i}") for i in range(2))
    repeats = tuple(data.draw(st.integers(1, 5), f"repeats {i}") for i in range(2))
    kind = data.draw(st.sampled_from(KINDS), "kind")
    graph = graph_of(shape, kind, Tile(repeats))
    check(graph, target, data.draw(st.booleans()), data.draw(st.sampled_from((0, 0, 1, 3))))


def test_no_vector_spans_two_copies_of_a_row() -> None:
    graph = graph_of((8, 129), "f32", Tile((1, 3)))
    session = driver.Session.of(Options(use_cache=False), target="native")
    (node,) = driver.optimise(graph, session).nodes
    assert isinstance(node.op, Fused)
    func = lower_by_rule(node.op.body, session.target, "k")
    text = print_func(driver.run_loop_passes(func, session))
    assert "for i1o in range(3):" in text and "% 129" not in text and "% broadcast" not in text


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("channels", (2, 3, 4, 5))
@pytest.mark.parametrize("kind", ("f32", "u8"))
def test_channels_of_pixels(kind: str, channels: int, target: str) -> None:
    for part in ((), (Slice((1,), (channels,), (3,), (1,)),)):
        graph = graph_of((2, 9, 37, channels), kind, *part, Transpose((0, 3, 1, 2)))
        check(graph, target, streamed=True, offset=0)


def test_rows_are_read_in_order_where_the_result_outgrows_the_caches() -> None:
    graph = graph_of((2, 6, 4, 32), "f32", Transpose((0, 2, 1, 3)))
    session = driver.Session.of(Options(use_cache=False), target="x86-64-v3")
    (node,) = driver.optimise(graph, session).nodes
    assert isinstance(node.op, Fused)
    for l3_bytes, first, second in ((1 << 30, 4, 6), (64, 6, 4)):
        func = lower_by_rule(node.op.body, session.target.with_model(l3_bytes=l3_bytes), "k")
        text = print_func(func)
        assert text.index(f"({first}):") < text.index(f"({second}):")


def test_planes_are_written_side_by_side() -> None:
    for graph in (
        graph_of((2, 3, 64, 64), "f32", SpaceToDepth(2)),
        graph_of((2, 3, 64, 2), "f32", Transpose((0, 1, 3, 2))),
    ):
        session = driver.Session.of(Options(use_cache=False), target="x86-64-v3")
        (node,) = driver.optimise(graph, session).nodes
        assert isinstance(node.op, Fused)
        func = driver.run_loop_passes(lower_by_rule(node.op.body, session.target, "k"), session)
        text = emit(func, session.target).text
        assert text.count("store <8 x float>") == 2 and "gather" not in text
