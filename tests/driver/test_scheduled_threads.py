"""Schedules for numbers of threads: kernels in common are shared, answers do not depend on it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tilesmith import driver
from tilesmith.graph.builder import Builder
from tilesmith.graph.nodes import Graph
from tilesmith.ir.dtypes import f32
from tilesmith.ir.types import TensorType
from tilesmith.ops.activation import Relu
from tilesmith.ops.elementwise import Add
from tilesmith.ops.matmul import MatMul
from tilesmith.runtime.executable import Executable
from tilesmith.support.options import Options


@pytest.fixture(scope="module")
def graph() -> Graph:
    """A product with 12 blocks of columns, which two threads share and sixteen do not, and a sum
    that is not worth sharing.
    """
    rng = np.random.default_rng(0)
    b = Builder()
    x, y = b.input("x", TensorType(f32, (60, 64))), b.input("y", TensorType(f32, (8,)))
    w = b.constant(rng.standard_normal((64, 1536)).astype(np.float32))
    return b.finish((b.add(Relu(), b.add(MatMul(), x, w)), b.add(Add(), y, y)), ("a", "b"))


def session_for(threads: int, folder: Path) -> driver.Session:
    return driver.Session.of(
        Options(target="x86-64-v3", threads=threads, cache_dir=folder, use_records=False)
    )


def symbols(graph: Graph, session: driver.Session) -> set[str]:
    return {c.symbol for c in driver.compile_program(graph, session).calls}


def test_kernels_whose_loops_are_the_same_are_shared(graph: Graph, tmp_path: Path) -> None:
    one, two, many = (session_for(n, tmp_path) for n in (1, 2, 16))
    assert symbols(graph, one) == symbols(graph, two)
    common = symbols(graph, two) & symbols(graph, many)
    assert len(common) == 1 < len(symbols(graph, many))


def test_code_in_common_is_found_in_the_cache(
    graph: Graph, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    symbols(graph, session_for(2, tmp_path))
    made: list[str] = []
    original = driver.kernels.generate

    def counted(body, nest, *rest):
        made.append(nest.name)
        return original(body, nest, *rest)

    monkeypatch.setattr(driver.kernels, "generate", counted)
    found = symbols(graph, session_for(16, tmp_path))
    assert len(made) == 1 and set(made) < found
    assert symbols(graph, session_for(16, tmp_path)) == found and len(made) == 1


@pytest.mark.parametrize("threads", [1, 2, 3, 16])
def test_a_program_is_right_with_another_number_of_threads(
    graph: Graph, tmp_path: Path, threads: int
) -> None:
    x = np.random.default_rng(1).standard_normal((60, 64)).astype(np.float32)
    y = np.arange(8, dtype=np.float32)
    for scheduled in (2, 64):
        program = driver.compile_program(graph, session_for(scheduled, tmp_path))
        a, b = Executable(program, threads)(x, y)
        w = next(iter(graph.constants)).data.array
        np.testing.assert_allclose(a, np.maximum(x @ w, 0), rtol=1e-4, atol=1e-4)
        np.testing.assert_array_equal(b, y + y)


def test_described_machines_have_schedules_for_their_cores() -> None:
    for target, threads, expected in (
        ("server-64", None, 64),
        ("server-64", 3, 4),
        ("x86-64-v3", 16, 16),
    ):
        session = driver.Session.of(replace(Options(target=target), threads=threads))
        assert session.target.threads == expected
