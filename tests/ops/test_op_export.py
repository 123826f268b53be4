"""Graphs written as ONNX: read back, they compute the same."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import helper

from common.op_case import Case
from common.op_cases import CASES, assert_close
from tilesmith.frontend.load import load
from tilesmith.frontend.onnx.export import to_onnx
from tilesmith.frontend.onnx.exported import WRITERS
from tilesmith.graph.builder import Builder, array_type
from tilesmith.graph.evaluate import evaluate
from tilesmith.ir.dtypes import f8e8m0, f32, i32
from tilesmith.ir.symbols import symbol
from tilesmith.ir.types import TensorType
from tilesmith.ops.conv import Conv
from tilesmith.ops.elementwise import Add, Cast
from tilesmith.ops.quantize import Dequantize
from tilesmith.ops.shape import Expand, Reshape
from tilesmith.ops.slicing import Flip
from tilesmith.support.errors import UnsupportedError

WRITTEN = [c for c in CASES if type(c.op) in WRITERS]


def _types(case: Case) -> set[np.dtype]:
    return {a.dtype for a in case.arrays()}


def _is_in_onnx(case: Case) -> bool:
    """ONNX has the operator for these types."""
    kinds = _types(case)
    plain = kinds <= {np.dtype(np.float32), np.dtype(np.int64), np.dtype(bool)}
    return plain and not (isinstance(case.op, Cast) and case.op.to is f8e8m0)


def test_every_writer_has_a_case():
    assert {type(c.op) for c in WRITTEN if _is_in_onnx(c) or "quant" in c.op.name} == set(WRITERS)


@pytest.mark.parametrize("kind", [pytest.param(k, id=k.name) for k in WRITERS])
def test_an_operator_written_and_read_computes_the_same(kind):
    for case in WRITTEN:
        if type(case.op) is not kind or not (_is_in_onnx(case) or "quant" in kind.name):
            continue
        b = Builder("case")
        arrays = case.arrays()
        if kind is Dequantize and arrays[-1].dtype.kind == "f" and len(arrays) == 3:
            continue  # refused: see below
        values = [b.input(f"x{i}", array_type(a)) for i, a in enumerate(arrays)]
        found = b.add(case.op, *values)
        outputs = found if isinstance(found, tuple) else (found,)
        graph = b.finish(outputs, [f"y{i}" for i in range(len(outputs))])
        inputs = {v.name: a for v, a in zip(values, arrays, strict=True)}
        again = load(to_onnx(graph))
        for f, w in zip(
            evaluate(again, inputs).values(), evaluate(graph, inputs).values(), strict=True
        ):
            assert_close(f, w)


def test_zero_points_of_another_type_are_refused():
    b = Builder("case")
    q, scale, zero = (b.input(n, TensorType(d, ())) for n, d in zip("qsz", (i32, f32, f32)))
    with pytest.raises(UnsupportedError, match=r"expected zero points of i32, found f32\[\]"):
        to_onnx(b.finish(b.add(Dequantize(), q, scale, zero)))


def test_a_bias_becomes_part_of_the_convolution():
    b = Builder("bias")
    x = b.input("x", TensorType(f32, (1, 3, 8, 8)))
    w, bias = np.ones((4, 3, 3, 3), np.float32), np.ones((4, 1, 1), np.float32)
    y = b.add(Add(), b.add(Conv(), x, b.constant(w, "w")), b.constant(bias))
    model = to_onnx(b.finish(y, ["y"]))
    onnx.checker.check_model(model, full_check=True)
    assert [n.op_type for n in model.graph.node] == ["Conv", "Identity"]
    assert len(model.graph.node[0].input) == 3


def test_packed_integers_are_read_back():
    values = np.asarray([[-8, 7, 3], [0, -1, 5]], ml_dtypes.int4)
    b = Builder("packed")
    x = b.input("x", TensorType(i32, (2, 3)))
    y = b.add(Add(), x, b.add(Cast(i32), b.constant(values, "w")))
    again = load(to_onnx(b.finish(y, ["y"])))
    found = evaluate(again, {"x": np.zeros((2, 3), np.int32)})["y"]
    assert np.array_equal(found, values.astype(np.int32))


def test_what_onnx_lacks_is_named():
    b = Builder("flip")
    x = b.input("x", TensorType(f32, (1, 8, 2)))
    with pytest.raises(UnsupportedError, match="no form in ONNX is known for flip"):
        to_onnx(b.finish(b.add(Flip((1,)), x)))


def test_open_sizes_stay_open():
    """Sizes that a window makes, products of sizes, quotients of negative numbers."""
    nodes = [
        helper.make_node(
            "MaxPool", ["x"], ["p"], kernel_shape=[3, 3], strides=[2, 2], pads=[1] * 4
        ),
        helper.make_node("Flatten", ["p"], ["y"], axis=2),
        helper.make_node("Constant", [], ["all"], value_ints=[-1]),
        helper.make_node("Transpose", ["p"], ["t"], perm=[2, 0, 1, 3]),
        helper.make_node("Reshape", ["t", "all"], ["z"]),
        helper.make_node("Constant", [], ["rows"], value_ints=[0, 0, -1]),
        helper.make_node("Reshape", ["p", "rows"], ["r"]),
    ]
    x = helper.make_tensor_value_info("x", 1, ["n", 2, "h", "w"])
    outputs = [helper.make_tensor_value_info(n, 1, None) for n in "yzr"]
    graph = load(helper.make_model(helper.make_graph(nodes, "open", [x], outputs)))
    model = to_onnx(graph)
    onnx.checker.check_model(model, full_check=True)
    session = onnxruntime.InferenceSession(model.SerializeToString())
    assert [i.shape for i in session.get_inputs()] == [["n", 2, "h", "w"]]
    again = load(model)
    for shape in ((1, 2, 7, 9), (3, 2, 8, 12), (2, 2, 1, 1)):
        inputs = {"x": np.random.default_rng(0).standard_normal(shape, np.float32)}
        wanted = evaluate(graph, inputs)
        for name, found in zip(graph.output_names, session.run(None, inputs), strict=True):
            assert np.array_equal(found, wanted[name])
            assert np.array_equal(evaluate(again, inputs)[name], wanted[name])


def test_a_size_that_no_input_has_is_refused():
    n = symbol("n")
    b = Builder("twice")
    x = b.input("x", TensorType(f32, (2 * n, 3)))
    y = b.add(Reshape((n, 6)), x)
    z = b.add(Expand((n, n, 6)), y)
    with pytest.raises(UnsupportedError, match="no form in ONNX is known for the extent n"):
        to_onnx(b.finish(z))
