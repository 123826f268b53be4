"""Extents that must be equal where no rule for one symbol says when: a run checks them first."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import onnx
import onnx_models as om
import onnxruntime
import pytest
from onnx import helper

import tilesmith as ts
from tilesmith.frontend.common.equations import fitting, solved
from tilesmith.frontend.load import load
from tilesmith.graph.evaluate import evaluate
from tilesmith.graph.measure import Measure
from tilesmith.graph.parse import parse_graph
from tilesmith.graph.text import constants_of, print_graph
from tilesmith.graph.verify import verify
from tilesmith.ir.expr import as_expr
from tilesmith.ir.symbols import expected, symbol
from tilesmith.support.errors import ModelError, OpenShapesError

RNG = np.random.default_rng(0)


def node(op: str, inputs: str, outputs: str, **attributes: Any) -> Any:
    return helper.make_node(op, inputs.split(), outputs.split(), **attributes)


def classifier(ending: str) -> bytes:
    """A convolution, a pool, and a product with 8 * 7 * 7 rows, for images of 25 to 30 pixels."""
    constants = {
        "w": RNG.standard_normal((8, 3, 3, 3)).astype(np.float32),
        "fc": RNG.standard_normal((10, 392)).astype(np.float32),
        "b": RNG.standard_normal(10).astype(np.float32),
        "rest": np.array([0, -1]),
        "rows": np.array([-1, 392]),
    }
    flat = {
        "flatten": [node("Flatten", "p", "f")],
        "reshape": [node("Reshape", "p rest", "f")],
        "rows": [node("Reshape", "p rows", "f")],
    }
    nodes = [
        node("Conv", "x w", "c", strides=[2, 2], pads=[1, 1, 1, 1]),
        node("Relu", "c", "r"),
        node("MaxPool", "r", "p", kernel_shape=[2, 2], strides=[2, 2]),
        *flat[ending],
        node("Gemm", "f fc b", "y", transB=1),
    ]
    inputs = [om.value("x", ["N", 3, "H", "W"])]
    return om.model(nodes, inputs, ["y"], constants).SerializeToString()


def reshaping(dims: list[int | str], target: list[int]) -> bytes:
    nodes = [node("Reshape", "x s", "f"), node("Neg", "f", "y")]
    constants = {"s": np.array(target)}
    return om.model(nodes, [om.value("x", dims)], ["y"], constants).SerializeToString()


def compare(exe: Any, model: bytes, *shapes: tuple[int, ...]) -> None:
    session = onnxruntime.InferenceSession(model)
    for shape in shapes:
        x = RNG.standard_normal(shape).astype(np.float32)
        (wanted,) = session.run(None, {"x": x})
        np.testing.assert_allclose(exe.run({"x": x})["y"], wanted, rtol=1e-4, atol=1e-3)


@pytest.mark.parametrize("ending", ["flatten", "reshape", "rows"])
def test_a_classifier_with_open_sizes_runs_where_its_weights_fit(ending: str) -> None:
    model = classifier(ending)
    exe = ts.compile(model, threads=1)
    compare(exe, model, (1, 3, 28, 28), (3, 3, 27, 30), (2, 3, 28, 27))


def test_a_run_whose_sizes_do_not_fit_is_refused() -> None:
    exe = ts.compile(classifier("flatten"), threads=1)
    formula = re.escape("'(H + 1) // 4 * ((W + 1) // 4) * 8' 448; expected 392")
    with pytest.raises(ModelError, match=f"y: the sizes or data of this run make {formula}"):
        exe.run({"x": np.zeros((1, 3, 32, 28), np.float32)})
    assert exe.run({"x": np.zeros((1, 3, 28, 28), np.float32)})["y"].shape == (1, 10)


def test_the_check_is_first_and_the_expected_sizes_fit() -> None:
    graph = load(classifier("flatten"))
    verify(graph)
    measure = graph.nodes[1]
    assert isinstance(measure.op, Measure) and measure.op.asserts
    sizes = {s.name: expected(s) for s in graph.symbols}
    assert (sizes["H"], sizes["W"]) == (28, 28)
    again = parse_graph(print_graph(graph), constants_of(graph))
    assert print_graph(again) == print_graph(graph)
    with pytest.raises(ModelError, match="'fit': expected 392 to 392, found 448"):
        evaluate(graph, {"x": np.zeros((1, 3, 32, 28), np.float32)})


def test_ranges_in_which_no_size_fits_are_refused_when_a_model_is_compiled() -> None:
    with pytest.raises(ModelError, match="expected equal inner dimensions"):
        load(classifier("flatten"), dynamic={"H": (64, 128), "W": (64, 128)})
    with pytest.raises(OpenShapesError, match="expected extents that are equal"):
        load(classifier("flatten"), dynamic={"H": (11, 18)})  # neither 3 nor 4 divides 49


@pytest.mark.parametrize(
    ("dims", "target", "fits", "fails"),
    [
        (["n"], [-1, 4], [(8,), (4,), (128,)], (9,)),
        (["n", "t", 8], [-1, 6, 8], [(2, 6, 8), (3, 4, 8)], (1, 5, 8)),
        (["n", 8, "h", "w"], [0, 4, -1, 6], [(2, 8, 3, 6), (1, 8, 1, 3)], (1, 8, 1, 5)),
        (["n", 8, "h", "w"], [0, 392], [(2, 8, 7, 7), (1, 8, 49, 1)], (1, 8, 5, 7)),
    ],
)
def test_a_reshape_fits_some_sizes(
    dims: list[int | str], target: list[int], fits: list[tuple[int, ...]], fails: tuple[int, ...]
) -> None:
    model = reshaping(dims, target)
    exe = ts.compile(model, threads=1)
    compare(exe, model, *fits)
    with pytest.raises(ModelError, match=r"the sizes or data of this run make '.*'"):
        exe.run({"x": np.zeros(fails, np.float32)})


def test_space_to_depth_of_open_images_takes_sizes_that_divide() -> None:
    nodes = [node("SpaceToDepth", "x", "y", blocksize=2)]
    inputs = [om.value("x", ["n", 3, "h", "w"])]
    model = om.model(nodes, inputs, ["y"]).SerializeToString()
    exe = ts.compile(model, threads=1)
    compare(exe, model, (1, 3, 6, 4), (2, 3, 2, 10))
    with pytest.raises(ModelError, match="make 'h - h // 2 \\* 2' 1; expected 0"):
        exe.run({"x": np.zeros((1, 3, 5, 4), np.float32)})


def test_a_branch_that_is_not_taken_checks_nothing() -> None:
    def branch(nodes: list[Any]) -> onnx.GraphProto:
        return helper.make_graph(nodes, "branch", [], [helper.make_empty_tensor_value_info("z")])

    then = branch([node("Reshape", "x s", "f"), node("ReduceSum", "f", "z", keepdims=0)])
    other = branch([node("ReduceMax", "x", "z", keepdims=0)])
    nodes = [node("If", "c", "y", then_branch=then, else_branch=other)]
    inputs = [om.value("x", ["n"]), om.value("c", [], onnx.TensorProto.BOOL)]
    exe = ts.compile(om.model(nodes, inputs, ["y"], {"s": np.array([-1, 4])}), threads=1)
    x = np.arange(9, dtype=np.float32)
    assert exe.run({"x": x, "c": np.array(False)})["y"] == 8
    assert exe.run({"x": x[:8], "c": np.array(True)})["y"] == 28
    with pytest.raises(ModelError, match="'n % 4' 1; expected 0"):
        exe.run({"x": x, "c": np.array(True)})


def test_sizes_that_fit_are_found_by_trial() -> None:
    h, w = symbol("h", 1, 4096, 224), symbol("w", 1, 4096, 224)
    area = (as_expr(h) // 4) * (as_expr(w) // 4)
    assert solved(area, 49) is None
    found = fitting(area, 49)
    assert found is not None
    assert [expected(d) for d in (found[h], found[w])] == [28, 28]
    one = fitting(area, 7 * 56)  # no square: one symbol stays at 224
    assert one is not None
    assert [expected(d) for d in one.values()] == [28]
    assert fitting(as_expr(h) // 4, -1) is None
