"""Dot-product instructions and columns that do not fill the last vector.

Weights are packed in whole vectors, so the instruction multiplies what lies behind the last column.
Depthwise convolutions have a number for each lane on either side.
"""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np
import pytest

import tilesmith as ts
from tilesmith.codegen import targets
from tilesmith.driver.checking import check
from tilesmith.driver.kernels import canonical
from tilesmith.driver.passes import lower_loops, optimise
from tilesmith.driver.session import Session
from tilesmith.graph.builder import Builder
from tilesmith.graph.evaluate import evaluate
from tilesmith.graph.nodes import Fused, Graph
from tilesmith.ir.dtypes import f32, i8, i16, i32, u8
from tilesmith.ir.types import TensorType
from tilesmith.ops.activation import Gelu
from tilesmith.ops.conv import Conv
from tilesmith.ops.elementwise import Add
from tilesmith.ops.matmul import MatMul
from tilesmith.support.options import Options

WITH_BF16 = "x86-64-v4+avx512bf16"


def dense(rows: int, inner: int, columns: int) -> Graph:
    """A product with a long epilogue."""
    rng = np.random.default_rng(columns)
    b = Builder("dense")
    x = b.input("x", TensorType(f32, (rows, inner)))
    y = b.add(MatMul(), x, b.constant(rng.standard_normal((inner, columns), np.float32)))
    y = b.add(Gelu(), b.add(Add(), y, b.constant(rng.standard_normal(columns, np.float32))))
    return b.finish([y], ["y"])


def assembly(graph: Graph, target: str = WITH_BF16) -> str:
    options = Options(precision="bf16" if target == WITH_BF16 else "f32", threads=1)
    session = replace(Session.of(options), target=targets.target(target))
    fused = optimise(graph, session)
    found = []
    for n in fused.nodes:
        assert isinstance(n.op, Fused)
        constants = [i for i, v in enumerate(n.inputs) if v in fused.constant]
        nest = session.group(canonical(n.op.body), constants).lower("k")
        kernel = session.backend.emit(lower_loops(nest, session), session.target)
        found.append(session.backend.tools.assembly(kernel.text, session.target))
    return "\n".join(found)


@pytest.mark.parametrize("columns", [24, 40, 120])
def test_no_loops_are_left_for_the_last_vector(columns: int) -> None:
    """Those would convert each weight, and multiply with `vfmadd` on registers of other widths."""
    b = Builder("dense")
    x = b.input("x", TensorType(f32, (14, 64)))
    w = np.random.default_rng(0).standard_normal((64, columns), np.float32)
    text = assembly(b.finish([b.add(MatMul(), x, b.constant(w))], ["y"]))
    assert re.search(r"^\s+vdpbf16ps", text, re.MULTILINE)
    assert not re.search(r"^\s+vfmadd", text, re.MULTILINE)
    assert not re.search(r"vmovups\s+\S*%rsp", text)


@pytest.mark.parametrize("columns", [8, 17, 24, 100, 121])
@pytest.mark.parametrize("rows", [1, 5, 33])
def test_answers_of_bf16(rows: int, columns: int) -> None:
    for threads in (1, 2):
        graph = dense(rows, 66, columns)
        checks = check(graph, options=Options(precision="bf16", threads=threads))
        assert all(c.passed for c in checks), checks


@pytest.mark.parametrize("columns", [8, 17, 24, 100, 121])
@pytest.mark.parametrize("rows", [1, 5, 33])
def test_answers_of_integers(rows: int, columns: int) -> None:
    """Constant weights, which are packed beforehand, and variable ones, which the kernel packs."""
    rng = np.random.default_rng(rows * columns)
    for inner in (63, 66):
        x = rng.integers(0, 256, (rows, inner)).astype(np.uint8)
        w = rng.integers(-128, 128, (inner, columns)).astype(np.int8)
        wanted = x.astype(np.int32) @ w.astype(np.int32)
        for dtype, values in ((i8, w), (i16, w.astype(np.int16))):
            of_x, given = (u8, x) if dtype is i8 else (i16, x.astype(np.int16))
            for is_constant in (True, False):
                b = Builder("product")
                a = b.input("x", TensorType(of_x, given.shape))
                factor = (
                    b.constant(values) if is_constant else b.input("w", TensorType(dtype, w.shape))
                )
                graph = b.finish([b.add(MatMul(to=i32), a, factor)], ["y"])
                exe = ts.compile(graph, threads=2)
                found = exe(given) if is_constant else exe(given, values)
                np.testing.assert_array_equal(found, wanted)


def depthwise(channels: int, size: int) -> Graph:
    """A depthwise convolution of numbers of 16 bits, in integers."""
    rng = np.random.default_rng(channels)
    b = Builder("depthwise")
    x = b.input("x", TensorType(i16, (1, channels, size, size)))
    w = b.constant(rng.integers(-999, 999, (channels, 1, 3, 3)).astype(np.int16))
    op = Conv(pads=(1, 1, 1, 1), groups=channels, to=i32)
    return b.finish([b.add(op, x, w, loc="conv")], ["y"])


def test_lanes_multiply_their_own_numbers() -> None:
    """One instruction adds the product; where channels are left over, the loops stay."""
    for channels, is_whole in ((48, True), (40, False)):
        text = assembly(depthwise(channels, 8), "x86-64-v4+avx512vnni")
        assert bool(re.search(r"^\s+vpdpwssd", text, re.MULTILINE)) == is_whole, channels
        assert bool(re.search(r"^\s+vpmulld", text, re.MULTILINE)) != is_whole, channels
    plain = assembly(depthwise(48, 8), "x86-64-v4")
    assert not re.search(r"^\s+vpdpwssd", plain, re.MULTILINE)


NOT_ADJACENT = {
    "two channels are made from one": ((9, 8, 1), (16, 1, 1), Conv((3,), (0, 0), (1,), groups=8)),
    "padded rows before channels": ((1, 16, 1), (16, 1, 1), Conv((2,), (1, 1), (1,), groups=16)),
}


@pytest.mark.parametrize("case", NOT_ADJACENT)
def test_lanes_that_may_read_no_neighbours(case: str) -> None:
    of_x, of_w, op = NOT_ADJACENT[case]
    rng = np.random.default_rng(2)
    for is_constant in (True, False):
        values = rng.integers(-999, 999, of_w).astype(np.int16)
        b = Builder("depthwise")
        x = b.input("x", TensorType(i16, of_x))
        w = b.constant(values) if is_constant else b.input("w", TensorType(i16, of_w))
        graph = b.finish([b.add(replace(op, to=i32), x, w, loc="conv")], ["y"])
        assembly(graph, "x86-64-v4+avx512vnni")  # which a misplaced instruction would refuse
        given = {"x": rng.integers(-32768, 32767, of_x).astype(np.int16), "w": values}
        used = {v.name: given[v.name] for v in graph.inputs}
        (wanted,) = evaluate(graph, used).values()
        np.testing.assert_array_equal(ts.compile(graph)(*used.values()), wanted)


@pytest.mark.parametrize("channels", [16, 40, 48])
def test_answers_of_depthwise_convolutions(channels: int) -> None:
    graph = depthwise(channels, 9)
    rng = np.random.default_rng(1)
    x = rng.integers(-32768, 32767, (1, channels, 9, 9)).astype(np.int16)
    (wanted,) = evaluate(graph, {"x": x}).values()
    np.testing.assert_array_equal(ts.compile(graph, threads=2)(x), wanted)
