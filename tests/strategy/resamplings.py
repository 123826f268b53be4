"""Kernels of resampling operators, compared with the evaluator."""

from __future__ import annotations

import numpy as np

from tilesmith import driver
from tilesmith.graph.builder import Builder
from tilesmith.graph.evaluate import evaluate
from tilesmith.graph.nodes import Graph
from tilesmith.ir.dtypes import f32
from tilesmith.ir.types import TensorType
from tilesmith.ops.base import Op
from tilesmith.ops.shape import Transpose
from tilesmith.support.options import Options

TARGETS = ("x86-64-v2", "x86-64-v3", "native")


def graph_of(op: Op, shape: tuple[int, ...], perm: tuple[int, ...] = ()) -> Graph:
    """`op`, between transpositions of its input and of its result if there is a `perm`."""
    b = Builder("t")
    x = b.input("x", TensorType(f32, shape))
    y = b.add(op, b.add(Transpose(perm), x) if perm else x)
    back = tuple(perm.index(i) for i in range(len(perm)))
    return b.finish(b.add(Transpose(back), y) if perm else y)


def check(graph: Graph, target: str) -> None:
    x = np.random.default_rng(0).standard_normal(graph.inputs[0].type.static_shape, np.float32)
    exe = driver.compile(graph, target=target, options=Options(use_cache=False))
    (want,) = evaluate(graph, [x]).values()
    np.testing.assert_allclose(exe(x), want, rtol=2e-5, atol=2e-5)
