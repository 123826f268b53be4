"""Operators written as loops, compiled in models: layouts, literals, threads and bad indices."""

from __future__ import annotations

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto
from small_models import model, node

import tilesmith as ts
from tilesmith.graph.builder import Builder
from tilesmith.graph.evaluate import evaluate
from tilesmith.graph.nodes import Fused, Graph
from tilesmith.ir.dtypes import f32, i64
from tilesmith.ir.types import TensorType
from tilesmith.ops.scan import CumProd, CumSum
from tilesmith.ops.scatter import ScatterElements
from tilesmith.ops.sort import TopK

RNG = np.random.default_rng(0)
WEIGHTS = RNG.standard_normal((32, 3, 3, 3)).astype(np.float32)
IMAGE = {"x": RNG.standard_normal((1, 3, 40, 40)).astype(np.float32)}
PLACES = RNG.permutation(38)[:9].astype(np.int64)


def check(made: onnx.ModelProto, inputs: dict[str, np.ndarray], threads: int = 2) -> None:
    session = onnxruntime.InferenceSession(made.SerializeToString())
    wanted = session.run(None, inputs)
    found = ts.compile(made, threads=threads).run(inputs)
    for f, w in zip(found.values(), wanted, strict=True):
        assert f.dtype == w.dtype and f.shape == w.shape
        np.testing.assert_allclose(f, w, rtol=1e-5, atol=1e-5 * np.abs(w).max())


def behind_a_convolution(*nodes: onnx.NodeProto, outputs: list[str], **constants: np.ndarray):
    """A model whose nodes read `c` [1,32,38,38], which lies channels last."""
    convolution = node("Conv", "x w", "c")
    return model([convolution, *nodes], {"x": [1, 3, 40, 40]}, outputs, {"w": WEIGHTS, **constants})


def test_top_k_of_images() -> None:
    for axis in (1, 3):
        check(
            behind_a_convolution(
                node("TopK", "c k", "v i", axis=axis), outputs=["v", "i"], k=np.asarray([5])
            ),
            IMAGE,
        )


def test_scatter_into_images() -> None:
    indices = np.broadcast_to(PLACES[:, None], (1, 32, 9, 38)).copy()
    updates = RNG.standard_normal(indices.shape).astype(np.float32)
    check(
        behind_a_convolution(
            node("ScatterElements", "c i u", "s", axis=2, reduction="add"),
            node("Conv", "s v", "y", pads=[1, 1, 1, 1]),
            outputs=["y"],
            i=indices,
            u=updates,
            v=np.ascontiguousarray(np.broadcast_to(WEIGHTS[:, :1], (32, 32, 3, 3))),
        ),
        IMAGE,
    )


def test_scatter_of_slices() -> None:
    tuples = np.stack([np.zeros_like(PLACES), PLACES % 32], -1)
    check(
        behind_a_convolution(
            node("Gather", "c at", "u0", axis=1),
            node("Squeeze", "u0 zero", "u"),
            node("ScatterND", "c i u", "y", reduction="add"),
            outputs=["y"],
            i=tuples,
            at=(PLACES + 3) % 32,
            zero=np.asarray([0]),
        ),
        IMAGE,
    )


def test_literals_and_one_value_twice() -> None:
    made = model(
        [node("ScatterElements", "x i u", "y", axis=0), node("ScatterElements", "x i x", "z")],
        {"x": [1]},
        ["y", "z"],
        {"i": np.asarray([0]), "u": np.asarray([7], np.float32)},
    )
    check(made, {"x": np.asarray([3], np.float32)})


@pytest.mark.parametrize("threads", [1, 3])
def test_many_lines(threads: int) -> None:
    b = Builder("lines")
    x = b.input("x", TensorType(f32, (64, 300)))
    values, places = b.add(TopK(300), x)
    results = [values, places, b.add(CumSum(1), x), b.add(CumSum(0, reverse=True), x)]
    graph = b.finish([*results, b.add(CumProd(0, exclusive=True), x)])
    data = {"x": RNG.uniform(0.5, 1.5, (64, 300)).round(1).astype(np.float32)}
    found = ts.compile(graph, threads=threads).run(data)
    for name, wanted in evaluate(graph, data).items():
        np.testing.assert_allclose(found[name], wanted, rtol=1e-4)


def test_kernels_stand_alone() -> None:
    b = Builder("alone")
    x, i = b.input("x", TensorType(f32, (4, 3))), b.input("i", TensorType(i64, (2, 3)))
    graph: Graph = b.finish(b.add(ScatterElements(), x, i, b.constant(np.ones((2, 3), np.float32))))
    for found in ts.check(graph, {"x": RNG.standard_normal((4, 3)).astype(np.float32),
                                  "i": np.asarray([[0, 1, -1], [2, 3, 0]])}):  # fmt: skip
        assert found.passed and found.operators == ("scatter_elements",)
    assert not any(isinstance(n.op, Fused) for n in graph.nodes)


@pytest.mark.parametrize("index", [4, -5, 1 << 40])
def test_an_index_outside_stops_the_kernel(index: int) -> None:
    made = model([node("ScatterElements", "x i u", "y")], {"x": [4], "u": [1]}, ["y"])
    made.graph.input.append(onnx.helper.make_tensor_value_info("i", TensorProto.INT64, [1]))
    exe = ts.compile(made)
    x, u = np.zeros(4, np.float32), np.ones(1, np.float32)
    with pytest.raises(
        ts.ModelError,
        match=f"expected indices from -4 to 3, found {index} at position 0 of the indices",
    ):
        exe.run({"x": x, "u": u, "i": np.asarray([index])})
    np.testing.assert_array_equal(
        exe.run({"x": x, "u": u, "i": np.asarray([-1])})["y"], [0, 0, 0, 1]
    )


def test_concatenation_with_a_number() -> None:
    made = model(
        [node("Concat", "x c x", "y", axis=1)],
        {"x": [1, 2]},
        ["y"],
        {"c": np.asarray([[5]], np.float32)},
    )
    check(made, {"x": np.asarray([[1, 2]], np.float32)})


def test_a_running_sum_among_elementwise_operators() -> None:
    made = model(
        [node("CumSum", "x a", "s"), node("Mul", "s x", "m"), node("Add", "m x", "y")],
        {"x": [2, 40]},
        ["y"],
        {"a": np.asarray(1)},
    )
    check(made, {"x": RNG.standard_normal((2, 40)).astype(np.float32)})
