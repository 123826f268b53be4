"""Values are computed again, so that fewer bytes are alive at one time."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import tilesmith as ts
from common.kept_layers import BYTES, LAYERS, SIZE, there_and_back
from tilesmith.driver.passes import optimise
from tilesmith.driver.session import Session
from tilesmith.graph.builder import Builder
from tilesmith.graph.evaluate import evaluate
from tilesmith.graph.nodes import Fused, Node
from tilesmith.graph.passes.rematerialise import computed_again, rematerialise
from tilesmith.graph.text import print_graph
from tilesmith.ir.dtypes import f32
from tilesmith.ir.types import TensorType
from tilesmith.ops.matmul import MatMul
from tilesmith.ops.norm import LogSoftmax, Softmax
from tilesmith.support.options import Options


def _alike(node: Node) -> float:
    return 1.0


def test_fewer_bytes_are_alive_and_the_meaning_stays() -> None:
    fused = optimise(there_and_back(), Session.of(Options(threads=1)))
    assert rematerialise(fused, (LAYERS + 1) * BYTES, _alike) is fused
    small = rematerialise(fused, 4 * BYTES, _alike)
    repeated = computed_again(small)
    assert repeated and not computed_again(fused)
    assert len(small.nodes) == len(fused.nodes) + len(repeated)
    x = np.random.default_rng(1).random((SIZE, SIZE), np.float32)
    np.testing.assert_array_equal(evaluate(small, [x])["y"], evaluate(fused, [x])["y"])


def _products(node: Node) -> float:
    assert isinstance(node.op, Fused)
    return 100.0 if "matmul" in print_graph(node.op.body) else 1.0


def test_the_cheapest_value_is_computed_again() -> None:
    b = Builder()
    x = b.input("x", TensorType(f32, (SIZE, SIZE)))
    costly, cheap = b.add(MatMul(), x, x), b.add(LogSoftmax(), x)
    y = b.add(Softmax(), b.add(MatMul(), costly, cheap))
    y = b.add(Softmax(), b.add(MatMul(), y, x))
    y = b.add(MatMul(), b.add(MatMul(), y, costly), cheap)
    fused = optimise(b.finish([y], ["y"]), Session.of(Options(threads=1)))
    (again,) = computed_again(rematerialise(fused, 3 * BYTES, _products))
    assert again.inputs == fused.inputs and _products(again) == 1.0


def test_a_program_stays_within_the_limit_and_gives_the_same_bits() -> None:
    graph = there_and_back()
    x = np.random.default_rng(1).random((SIZE, SIZE), np.float32)
    free = ts.compile(graph, threads=1)
    limit = free.program.arena_bytes * 2 // 3
    bounded = ts.compile(graph, options=Options(threads=1, memory_limit=limit))
    assert bounded.program.arena_bytes <= limit
    assert bounded.program.metadata["computed_again"] > 0
    np.testing.assert_array_equal(bounded(x), free(x))


def test_a_limit_that_can_not_be_met_is_refused() -> None:
    with pytest.raises(ts.ModelError, match=r"memory_limit: expected at most 64 bytes .* found"):
        ts.compile(there_and_back(), options=Options(threads=1, memory_limit=64))


def test_a_file_of_a_program_above_the_limit_is_refused(tmp_path: Path) -> None:
    exe = ts.compile(there_and_back(), threads=1)
    exe.save(tmp_path / "a.tsm")
    needed = exe.program.arena_bytes
    assert ts.load(tmp_path / "a.tsm", memory_limit=needed).program.arena_bytes == needed
    with pytest.raises(ts.UsageError, match=rf"memory_limit: .* {needed - 1} bytes .* {needed};"):
        ts.load(tmp_path / "a.tsm", memory_limit=needed - 1)
