"""Few rows times a matrix that is an input: read in long runs where the caches don't hold it."""

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
from tilesmith.ir.dtypes import DType, bf16, f16, f32, i32
from tilesmith.ir.target import Target
from tilesmith.ir.types import TensorType
from tilesmith.loop.nodes import Func
from tilesmith.loop.text import print_func
from tilesmith.ops.activation import Gelu
from tilesmith.ops.elementwise import Add
from tilesmith.ops.matmul import MatMul
from tilesmith.runtime.arguments import Arguments
from tilesmith.runtime.function import NativeFunction
from tilesmith.strategy.cpu import lower_by_rule
from tilesmith.strategy.cpu.contraction import single_row_vectors
from tilesmith.strategy.group import STEP
from tilesmith.support.options import Options

TARGETS = [t for t in ("native", "x86-64-v3", "x86-64-v2") if covers(host(), target_named(t))]
SETTINGS = settings(max_examples=20, deadline=None, suppress_health_check=[HealthCheck.too_slow])


def small(name: str, l2_bytes: int = 1 << 13) -> Target:
    """A machine with next to no caches."""
    return target_named(name).with_model(l1_bytes=1 << 13, l2_bytes=l2_bytes, l3_bytes=l2_bytes)


def product(x: tuple[int, ...], w: tuple[int, ...], dtype: DType = f32) -> Graph:
    g = Builder("m")
    y = g.add(MatMul(), g.input("x", TensorType(dtype, x)), g.input("w", TensorType(dtype, w)))
    return g.finish([y], ["y"])


def lowered(graph: Graph, machine: Target) -> Func:
    (node,) = driver.optimise(graph, driver.Session.of(Options(use_cache=False))).nodes
    assert isinstance(node.op, Fused)
    return lower_by_rule(node.op.body, machine, "k")


def in_runs(func: Func) -> bool:
    """Whether steps of the sum are added up in parts."""
    return any(key == STEP and ".rfactor(" in str(value) for key, value in func.attrs)


def check(graph: Graph, machine: Target, tolerance: float = 1e-4, threads: int = 2) -> None:
    rng = np.random.default_rng(0)
    inputs = [
        (4 * rng.standard_normal(v.type.static_shape)).astype(v.dtype.numpy) for v in graph.inputs
    ]
    (want,) = evaluate(graph, inputs).values()
    func = lowered(graph, machine)
    assert in_runs(func)
    session = driver.Session.of(Options(use_cache=False))
    kernel = emit(expand_math(driver.run_loop_passes(func, session), machine), machine)
    code = compile_object(kernel.text, machine)
    found = np.full(want.shape, 7).astype(want.dtype)
    NativeFunction(kernel, code, Arguments(func), machine, threads)(*inputs, found)
    error = np.abs(found.astype(np.float64) - want.astype(np.float64)).max()
    assert error <= tolerance * np.abs(want.astype(np.float64)).max()


@pytest.mark.parametrize("target", TARGETS)
@SETTINGS
@given(
    m=st.integers(1, 8),
    k=st.integers(32, 70),
    n=st.sampled_from((400, 401, 512, 1000, 2048, 2051, 3000, 4097)),
    batch=st.sampled_from(((), (2,), (5,))),
)
def test_products_in_runs_are_those_of_the_reference(target: str, m, k, n, batch) -> None:
    check(product((*batch, m, k), (*batch, k, n)), small(target))


@pytest.mark.parametrize("k", [1024, 1101])
@pytest.mark.parametrize("n", [200, 512, 999])
@pytest.mark.parametrize("m", [1, 3])
def test_threads_share_the_rows_of_a_narrow_matrix(m: int, k: int, n: int) -> None:
    graph = product((m, k), (k, n))
    for threads in (1, 2):
        check(graph, small("native"), threads=threads)
    assert "parallel(4)" in print_func(lowered(graph, small("native")))


@pytest.mark.parametrize(("dtype", "tolerance"), [(f16, 2e-3), (bf16, 2e-2), (i32, 0.0)])
def test_other_types(dtype: DType, tolerance: float) -> None:
    for n in (600, 2049):
        check(product((1, 33), (33, n), dtype), small("native"), tolerance)
        check(product((3, 33), (33, n), dtype), small("native"), tolerance)


@pytest.mark.parametrize("m", [1, 3])
def test_what_comes_after_is_fused(m: int) -> None:
    g = Builder("m")
    x, w = g.input("x", TensorType(f32, (m, 90))), g.input("w", TensorType(f32, (90, 2100)))
    bias = g.input("b", TensorType(f32, (2100,)))
    y = g.add(Gelu(), g.add(Add(), g.add(MatMul(), x, w), bias))
    check(g.finish([y], ["y"]), small("native"))


def test_what_the_caches_hold_is_left_to_register_tiles() -> None:
    graph = product((4, 256), (256, 4096))
    assert not in_runs(lowered(graph, small("x86-64-v3", l2_bytes=1 << 23)))
    assert in_runs(lowered(graph, small("x86-64-v3")))


@pytest.mark.parametrize(("x", "w"), [((9, 256), (256, 4096)), ((1, 16), (16, 4096))])
def test_so_are_many_rows_and_short_sums(x: tuple[int, int], w: tuple[int, int]) -> None:
    assert not in_runs(lowered(product(x, w), small("x86-64-v3")))


@pytest.mark.parametrize("level", ["x86-64-v3", "x86-64-v4"])
def test_short_rows_of_a_matrix_in_memory_are_read_whole(level: str) -> None:
    machine = target_named(level)
    lanes = machine.vector_lanes(4)
    for vectors in (1, 5, 12):
        assert single_row_vectors(vectors * lanes, lanes, machine, cached=False) == vectors
        assert single_row_vectors(vectors * lanes, lanes, machine) != vectors
