"""Transpositions go through registers: right for every size and type, and nothing is gathered."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tilesmith import driver
from tilesmith.codegen.emit import emit
from tilesmith.codegen.link import compile_object
from tilesmith.codegen.math import expand_math
from tilesmith.graph.builder import Builder
from tilesmith.graph.nodes import Fused, Graph
from tilesmith.ir.dtypes import dtype as to_dtype
from tilesmith.ir.types import TensorType
from tilesmith.loop.interpret import interpret
from tilesmith.ops.activation import Relu
from tilesmith.ops.elementwise import Add
from tilesmith.ops.shape import Transpose
from tilesmith.ops.slicing import Slice
from tilesmith.runtime.arguments import Arguments
from tilesmith.runtime.function import NativeFunction
from tilesmith.strategy.cpu import lower_by_rule
from tilesmith.support.options import Options

CASES = (
    ((32, 48), (1, 0), "f32"),
    ((67, 33), (1, 0), "f32"),
    ((40, 16), (1, 0), "f64"),
    ((50, 70), (1, 0), "i8"),
    ((33, 40), (1, 0), "f16"),
    ((33, 40), (1, 0), "bool"),
    ((2, 20, 5, 37), (0, 2, 3, 1), "f32"),
    ((2, 5, 37, 20), (0, 3, 1, 2), "f32"),
    ((2, 19, 3, 24), (0, 2, 3, 1), "i64"),
    ((2, 1000, 40), (0, 2, 1), "f32"),
    ((3, 18, 2, 33), (0, 2, 1, 3), "f32"),
    ((300, 16), (1, 0), "f32"),
    ((16, 15), (1, 0), "f32"),
)


def transposed(shape: tuple[int, ...], perm: tuple[int, ...], kind: str) -> Graph:
    b = Builder("t")
    x = b.input("x", TensorType(to_dtype(kind), shape))
    return b.finish(b.add(Transpose(perm), x))


@pytest.mark.parametrize("shape,perm,kind", CASES)
def test_transpositions(shape: tuple[int, ...], perm: tuple[int, ...], kind: str) -> None:
    dtype = to_dtype(kind)
    x = np.random.default_rng(0).integers(0, 2 if dtype.is_bool else 100, shape).astype(dtype.numpy)
    exe = driver.compile(transposed(shape, perm, kind), options=Options(use_cache=False))
    np.testing.assert_array_equal(exe(x), x.transpose(perm))


@pytest.mark.parametrize("target", ("x86-64-v2", "x86-64-v3", "native"))
def test_nothing_is_gathered(target: str) -> None:
    session = driver.Session.of(Options(use_cache=False), target=target)
    (node,) = driver.optimise(transposed((64, 128), (1, 0), "f32"), session).nodes
    assert isinstance(node.op, Fused)
    func = driver.run_loop_passes(lower_by_rule(node.op.body, session.target, "k"), session)
    text = emit(expand_math(func, session.target), session.target).text
    assert "shufflevector" in text and "gather" not in text and "insertelement" not in text


@pytest.mark.parametrize("start,end", ((1, 49), (3, 35), (16, 48)))
def test_what_is_transposed_may_begin_anywhere(start: int, end: int) -> None:
    b = Builder("t")
    x = b.input("x", TensorType(to_dtype("f32"), (48, 2, 49)))
    graph = b.finish(b.add(Transpose((2, 1, 0)), b.add(Slice((start,), (end,), (2,), (1,)), x)))
    session = driver.Session.of(Options(use_cache=False))
    (node,) = driver.optimise(graph, session).nodes
    assert isinstance(node.op, Fused)
    func = driver.run_loop_passes(lower_by_rule(node.op.body, session.target, "k"), session)
    text = emit(expand_math(func, session.target), session.target).text
    assert "shufflevector" in text and "gather" not in text and "insertelement" not in text
    a = np.random.default_rng(0).standard_normal((48, 2, 49), np.float32)
    exe = driver.compile(graph, options=Options(use_cache=False))
    np.testing.assert_array_equal(exe(a), a[:, :, start:end].transpose(2, 1, 0))


def test_elementwise_work_is_done_on_the_way() -> None:
    b = Builder("t")
    x = b.input("x", TensorType(to_dtype("f32"), (65, 50)))
    y = b.input("y", TensorType(to_dtype("f32"), (50, 65)))
    graph = b.finish(b.add(Relu(), b.add(Add(), b.add(Transpose((1, 0)), x), y)))
    exe = driver.compile(graph, options=Options(use_cache=False))
    assert len(exe.program.calls) == 1
    rng = np.random.default_rng(0)
    p, q = rng.standard_normal((65, 50), np.float32), rng.standard_normal((50, 65), np.float32)
    np.testing.assert_array_equal(exe(p, q), np.maximum(p.T + q, 0))


@pytest.mark.parametrize("kind", ("u8", "bool", "f16", "bf16", "i32", "f64"))
@pytest.mark.parametrize("target", ("x86-64-v2", "x86-64-v3", "native"))
@given(data=st.data())
@settings(max_examples=3, deadline=None)
def test_any_size_on_any_target(kind: str, target: str, data: st.DataObject) -> None:
    rows, columns = (
        data.draw(st.integers(1, 150), "rows"),
        data.draw(st.integers(1, 300), "columns"),
    )
    dtype = to_dtype(kind)
    session = driver.Session.of(Options(use_cache=False), target=target)
    (node,) = driver.optimise(transposed((rows, columns), (1, 0), kind), session).nodes
    assert isinstance(node.op, Fused)
    func = driver.run_loop_passes(lower_by_rule(node.op.body, session.target, "k"), session)
    bits = np.random.default_rng(0).integers(0, 2 if dtype.is_bool else 256, (rows, columns))
    x = bits.astype(dtype.numpy)
    expected, found = np.zeros((2, columns, rows), dtype.numpy)
    interpret(func, [x.ravel(), expected.reshape(-1)])
    kernel = emit(expand_math(func, session.target), session.target)
    code = compile_object(kernel.text, session.target, 2)
    NativeFunction(kernel, code, Arguments(func), session.target, 1)(x.ravel(), found.reshape(-1))
    np.testing.assert_array_equal(expected, x.T)
    np.testing.assert_array_equal(found, x.T)


@pytest.mark.parametrize("kind", ("f16", "bf16"))
def test_bits_are_moved_as_they_are(kind: str) -> None:
    """Also those of NaNs, which a conversion would change; and nothing is converted."""
    x = np.arange(1 << 16, dtype=np.uint16).reshape(512, 128).view(to_dtype(kind).numpy)
    exe = driver.compile(transposed((512, 128), (1, 0), kind), options=Options(use_cache=False))
    np.testing.assert_array_equal(exe(x).view(np.uint16), x.view(np.uint16).T)


@pytest.mark.parametrize("target", ("x86-64-v2", "x86-64-v3", "native"))
@given(data=st.data())
@settings(max_examples=3, deadline=None)
def test_rows_of_any_length_are_written_by_whole_lines(target: str, data: st.DataObject) -> None:
    """Where no cache holds the result, vectors begin at lines wherever rows begin."""
    rows = data.draw(st.integers(64, 200), "rows")
    columns = data.draw(st.integers(64, 200), "columns")
    session = driver.Session.of(Options(use_cache=False), target=target)
    machine = session.target.with_model(l3_bytes=1 << 12)
    (node,) = driver.optimise(transposed((rows, columns), (1, 0), "f32"), session).nodes
    assert isinstance(node.op, Fused)
    func = driver.run_loop_passes(lower_by_rule(node.op.body, machine, "k"), session)
    x = np.random.default_rng(0).standard_normal((rows, columns)).astype(np.float32)
    expected, found = np.zeros((2, columns, rows), np.float32)
    interpret(func, [x.ravel(), expected.reshape(-1)])
    kernel = emit(expand_math(func, machine), machine)
    if machine.vector_bits == 512:
        assert "!nontemporal" in kernel.text
    code = compile_object(kernel.text, machine, 2)
    NativeFunction(kernel, code, Arguments(func), machine, 1)(x.ravel(), found.reshape(-1))
    np.testing.assert_array_equal(expected, x.T)
    np.testing.assert_array_equal(found, x.T)
