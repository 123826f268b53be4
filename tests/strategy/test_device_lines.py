"""Kernels of divided lines: the interpreter finds no race in them, and the reference's results."""

from __future__ import annotations

import numpy as np
import pytest

from tilesmith.codegen.targets import target
from tilesmith.graph.builder import Builder, array_type
from tilesmith.graph.nodes import Fused, Graph
from tilesmith.graph.passes.divide_lines import divide_lines
from tilesmith.graph.passes.fuse import fuse
from tilesmith.ir.device import Device
from tilesmith.ir.dtypes import f32
from tilesmith.ir.types import TensorType
from tilesmith.loop.interpret import interpret
from tilesmith.loop.text import print_func
from tilesmith.ops.base import Op
from tilesmith.ops.scan import CumMax, CumSum
from tilesmith.ops.scatter import ScatterElements, ScatterNd
from tilesmith.ops.sort import TopK
from tilesmith.strategy.device import RULES
from tilesmith.te.knobs import ANALYTIC

GPU = target("opencl-gpu")
SMALL = Device(units=2, wave=4)


def applied(op: Op, *types: TensorType) -> Graph:
    b = Builder("g")
    made = b.add(op, *(b.input(f"x{n}", t) for n, t in enumerate(types)))
    return b.finish(made if isinstance(made, tuple) else (made,))


def interpreted(graph: Graph, given: list[np.ndarray]) -> list[np.ndarray]:
    """The results of a graph, from the loops of each of its kernels."""
    fused = fuse(graph)
    known = dict(zip(graph.inputs, given, strict=True))
    for n in fused.nodes:
        assert isinstance(n.op, Fused)
        func = RULES.lower_group(n.op.body, GPU, "k", ANALYTIC)
        made = [np.zeros(v.type.static_shape, v.dtype.numpy) for v in n.outputs]
        interpret(func, [*(known[v] for v in n.inputs), *made])
        known |= zip(n.outputs, made, strict=True)
    return [known[v] for v in fused.outputs]


RNG = np.random.default_rng(0)
TIES = RNG.integers(-9, 9, (2, 75)).astype(np.float32)
PLACES = RNG.integers(-5, 5, 60)
CASES = {
    "sort": (TopK(75, 1), TIES),
    "smallest": (TopK(5, 1, False), np.where(TIES == 3, np.nan, TIES)),
    "sum": (CumSum(1, True, True), TIES),
    "columns": (CumMax(0), TIES.T.copy()),
    "replaced": (ScatterElements(), TIES[0, :5].copy(), PLACES, TIES[1, :60].copy()),
    "added": (ScatterElements(0, "add"), TIES[0, :5].copy(), PLACES, TIES[1, :60].copy()),
    "slices": (ScatterNd("mul"), TIES[:, :5].T.copy(), PLACES[:, None], TIES[:, :60].T.copy()),
}


@pytest.mark.parametrize("name", CASES)
def test_kernels(name: str):
    op, *arrays = CASES[name]
    graph = applied(op, *map(array_type, arrays))
    divided = divide_lines(graph, SMALL, 16)
    assert divided is not graph
    wanted = op.reference(*arrays)
    wanted = wanted if isinstance(wanted, tuple) else (wanted,)
    for x, y in zip(interpreted(divided, arrays), wanted, strict=True):
        np.testing.assert_array_equal(x, y)


def test_loops_directly_inside_each_other_have_threads():
    """300 lines are 300 threads, however few elements there are."""
    graph = applied(TopK(2, 1), TensorType(f32, (6, 9, 50)))
    text = print_func(RULES.lower_group(graph, GPU, "k", ANALYTIC))
    assert "in block_x(2):" in text and "< 300:" in text and "parallel" not in text
