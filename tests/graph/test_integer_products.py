"""Products of quantised operands, in integers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

import tilesmith as ts
from tilesmith.driver.kernels import canonical
from tilesmith.driver.passes import optimise
from tilesmith.driver.session import Session
from tilesmith.frontend.load import load
from tilesmith.graph.builder import Builder
from tilesmith.graph.control import nodes_in
from tilesmith.graph.evaluate import evaluate
from tilesmith.graph.nodes import Fused, Graph, Node
from tilesmith.graph.passes.decompose import decompose
from tilesmith.graph.passes.integer_products import integer_products, narrow_products
from tilesmith.ir.dtypes import f32, i8, i16, i32, u8
from tilesmith.ir.types import TensorType
from tilesmith.loop.text import print_func
from tilesmith.ops.conv import Conv
from tilesmith.ops.elementwise import Cast, Neg, Sub
from tilesmith.ops.matmul import MatMul
from tilesmith.support.options import Options


def quantised(
    node: dict[str, Any], x: tuple[int, ...], w: np.ndarray, axis: int, zero: int, scales: bool
) -> bytes:
    """A product between QuantizeLinear and DequantizeLinear, as quantisation tools write it."""
    rng = np.random.default_rng(0)
    count = w.shape[axis] if scales else 1
    factors = rng.uniform(0.01, 0.03, count).astype(np.float32)
    constants = [
        ("xs", np.float32(0.02)), ("xz", np.uint8(zero)), ("w", w),
        ("ws", factors if scales else factors[0]),
        ("wz", np.zeros(count if scales else (), np.int8)),
        ("ys", np.float32(0.5)), ("yz", np.uint8(100)),
    ]  # fmt: skip
    nodes = [
        helper.make_node("QuantizeLinear", ["x", "xs", "xz"], ["xq"]),
        helper.make_node("DequantizeLinear", ["xq", "xs", "xz"], ["xd"]),
        helper.make_node("DequantizeLinear", ["w", "ws", "wz"], ["wd"], axis=axis),
        helper.make_node(inputs=["xd", "wd"], outputs=["y"], **node),
        helper.make_node("QuantizeLinear", ["y", "ys", "yz"], ["yq"]),
    ]
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, x)],
        [helper.make_tensor_value_info("yq", TensorProto.UINT8, None)],
        [numpy_helper.from_array(np.asarray(a), name) for name, a in constants],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    return model.SerializeToString()


def product_nodes(graph: Graph) -> list[Node]:
    """The products in a graph, also inside fused groups."""
    found = []
    for _, node in nodes_in(graph):
        inner = node.op.body.nodes if isinstance(node.op, Fused) else (node,)
        found += [n for n in inner if isinstance(n.op, (MatMul, Conv))]
    return found


def products(graph: Graph) -> list[Any]:
    return [n.op for n in product_nodes(graph)]


CASES = {
    "matmul": ({"op_type": "MatMul"}, (5, 24), (24, 40), 1),
    "odd matmul": ({"op_type": "MatMul"}, (3, 2, 13), (13, 9), 1),
    "gemm": ({"op_type": "Gemm", "transB": 1}, (4, 17), (30, 17), 0),
    "conv": ({"op_type": "Conv", "pads": [1, 1, 1, 1]}, (1, 16, 9, 7), (24, 16, 3, 3), 0),
    "strided": ({"op_type": "Conv", "strides": [2, 2]}, (2, 3, 11, 9), (8, 3, 3, 3), 0),
    "grouped": ({"op_type": "Conv", "group": 2}, (1, 8, 5, 5), (12, 4, 1, 1), 0),
    "depthwise": ({"op_type": "Conv", "group": 8}, (1, 8, 6, 6), (8, 1, 3, 3), 0),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("scales", [False, True], ids=["one scale", "a scale per channel"])
@pytest.mark.parametrize("target", ["native", "x86-64-v2", "c"])
def test_products_are_integers(name: str, scales: bool, target: str) -> None:
    node, x, w, axis = CASES[name]
    rng = np.random.default_rng(1)
    model = quantised(node, x, rng.integers(-127, 128, w, np.int8), axis, 117, scales)
    graph = load(model)
    session = Session.of(Options(target=target))
    (made,) = products(optimise(graph, session))
    assert str(made.to) == "i32"
    given = rng.uniform(-3, 3, x).astype(np.float32)
    (wanted,) = evaluate(graph, {"x": given}).values()
    found = ts.compile(model, target=target)(given)
    # sums of floats round, and may fall on the other side of a half
    assert np.abs(found.astype(int) - wanted.astype(int)).max() <= 1
    assert np.mean(found != wanted) < 0.01


@pytest.mark.parametrize("target", ["x86-64", "x86-64-v3"])
@pytest.mark.parametrize("lowest", [-128, -127])
@pytest.mark.parametrize("zero", [0, 131, 255])
def test_factors_that_instructions_multiply(target: str, lowest: int, zero: int) -> None:
    """Sums of the largest products are exact; instructions that widen weights read bytes."""
    rng = np.random.default_rng(zero)
    ends = np.array([0, 255, zero, 254], np.uint8)
    w = np.array([lowest, 127, -127, 0], np.int8)[rng.integers(0, 4, (16, 12, 3, 3))]
    w[0], w[1] = lowest, 127
    x = ends[rng.integers(0, 4, (1, 12, 6, 5))]
    x[..., :3] = 0
    initial = [
        numpy_helper.from_array(np.asarray(a), n) for n, a in (("w", w), ("xz", np.uint8(zero)))
    ]
    node = helper.make_node("ConvInteger", ["x", "w", "xz"], ["y"], pads=[1, 0, 0, 1])
    graph = helper.make_graph(
        [node],
        "g",
        [helper.make_tensor_value_info("x", TensorProto.UINT8, x.shape)],
        [helper.make_tensor_value_info("y", TensorProto.INT32, None)],
        initial,
    )
    model = helper.make_model(
        graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8
    ).SerializeToString()
    loaded = load(model)
    session = Session.of(Options(target=target))
    (node,) = product_nodes(optimise(loaded, session))
    assert [v.dtype for v in node.inputs] == [i16, i8 if target == "x86-64-v3" else i16]
    (wanted,) = evaluate(loaded, {"x": x}).values()
    np.testing.assert_array_equal(ts.compile(model, target=target)(x), wanted)


def test_strict_results_keep_the_products_of_floats() -> None:
    node, x, w, axis = CASES["matmul"]
    model = quantised(node, x, np.ones(w, np.int8), axis, 0, False)
    session = Session.of(Options(accuracy="strict"))
    (made,) = products(optimise(load(model), session))
    assert made.to is None


def test_sums_that_may_not_fit_stay_as_they_are() -> None:
    """255 * 127 * 70,000 is more than 2^31."""
    node = {"op_type": "MatMul"}
    long = quantised(node, (1, 70_000), np.full((70_000, 2), 127, np.int8), 1, 0, False)
    graph = decompose(load(long))
    assert integer_products(graph) is graph
    small = quantised(node, (1, 60_000), np.full((60_000, 2), 127, np.int8), 1, 0, False)
    assert [str(m.to) for m in products(integer_products(decompose(load(small))))] == ["i32"]


def test_a_scale_that_varies_inside_a_sum() -> None:
    node, x, w, _ = CASES["matmul"]
    graph = decompose(load(quantised(node, x, np.ones(w, np.int8), 0, 0, True)))
    assert integer_products(graph) is graph


@pytest.mark.parametrize("seed", range(4))
def test_products_that_are_integers_already(seed: int) -> None:
    """MatMulInteger and ConvInteger, exactly."""
    rng = np.random.default_rng(seed)
    shapes = {"MatMulInteger": ((4, 31), (31, 20)), "ConvInteger": ((1, 9, 8, 8), (16, 9, 3, 3))}
    for op, (of_x, of_w) in shapes.items():
        w = rng.integers(-128, 128, of_w, np.int8)
        given = {"x": rng.integers(0, 256, of_x, np.uint8)}
        initial = [
            numpy_helper.from_array(np.asarray(a), n)
            for n, a in (("w", w), ("xz", np.uint8(rng.integers(256))), ("wz", np.int8(-3)))
        ]
        graph = helper.make_graph(
            [helper.make_node(op, ["x", "w", "xz", "wz"], ["y"])],
            "g",
            [helper.make_tensor_value_info("x", TensorProto.UINT8, of_x)],
            [helper.make_tensor_value_info("y", TensorProto.INT32, None)],
            initial,
        )
        opset = [helper.make_opsetid("", 17)]
        model = helper.make_model(graph, opset_imports=opset, ir_version=8)
        loaded = load(model.SerializeToString())
        assert [str(m.to) for m in products(narrow_products(loaded))] == ["i32"]
        (wanted,) = evaluate(loaded, given).values()
        found = ts.compile(model.SerializeToString())(given["x"])
        np.testing.assert_array_equal(found, wanted)


def test_what_weights_are_made_of_is_not_sought_in_the_whole_graph() -> None:
    """Behind thousands of nodes there is no weight, and no end of the stack."""
    b = Builder("deep")
    x = b.input("x", TensorType(f32, (4, 4)))
    y = b.add(Cast(i32), x)
    for _ in range(2000):
        y = b.add(Neg(), y)
    q = b.add(Sub(), b.add(Cast(i32), b.add(Cast(u8), x)), b.constant(np.asarray(3, np.int32)))
    narrow = b.add(Cast(i32), b.add(Cast(i8), y))
    graph = b.finish(b.add(MatMul(), q, narrow))
    assert [str(m.to) for m in products(narrow_products(graph))] == ["i32"]


@pytest.mark.parametrize(("rows", "steps"), [(40, 24), (19, 64), (40, 23), (4, 24)])
@pytest.mark.parametrize("transposed", [False, True])
def test_products_of_two_variables(rows: int, steps: int, transposed: bool) -> None:
    """The kernel packs the second factor for the instruction, where enough rows read it."""
    rng = np.random.default_rng(rows + steps)
    b = Builder("out")
    x = b.input("x", TensorType(i16, (3, rows, steps)))
    w = b.input("w", TensorType(i16, (3, 20, steps) if transposed else (3, steps, 20)))
    graph = b.finish([b.add(MatMul(transpose_b=transposed, to=i32), x, w)], ["y"])
    session = Session.of(Options(target="x86-64-v3"))
    (node,) = optimise(graph, session).nodes
    assert isinstance(node.op, Fused)
    text = print_func(session.group(canonical(node.op.body)).lower("k"))
    assert ("pmaddwd_8" in text) == (rows >= 16 and steps % 2 == 0)
    arrays = [rng.integers(-255, 256, v.type.static_shape).astype(np.int16) for v in (x, w)]
    found = ts.compile(graph)(*arrays)
    wide, other = (a.astype(np.int32) for a in arrays)
    np.testing.assert_array_equal(found, wide @ (np.swapaxes(other, 1, 2) if transposed else other))


@pytest.mark.parametrize("steps", ["k", 8])
def test_products_of_two_variables_of_open_sizes(steps: str | int) -> None:
    """A sum of any length has no pairs that lie together for sure; its rows may be any number."""
    a, b = ("a", ["m", steps], np.uint8), ("b", [steps, "n"], np.int8)
    graph = helper.make_graph(
        [helper.make_node("MatMulInteger", ["a", "b"], ["y"])],
        "g",
        [
            helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(np.dtype(kind)), s)
            for name, s, kind in (a, b)
        ],
        [helper.make_tensor_value_info("y", TensorProto.INT32, ["m", "n"])],
    )
    model = helper.make_model(
        graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8
    ).SerializeToString()
    names = [n for n in ("m", "n", steps) if isinstance(n, str)]
    exe = ts.compile(
        model, dynamic=dict.fromkeys(names, (1, 64)), expected=dict.fromkeys(names, 32)
    )
    rng = np.random.default_rng(0)
    for m, n, k in ((32, 32, 8), (7, 17, 8), (33, 1, 5 if steps == "k" else 8)):
        x = rng.integers(0, 256, (m, k)).astype(np.uint8)
        w = rng.integers(-128, 128, (k, n)).astype(np.int8)
        np.testing.assert_array_equal(exe(x, w), x.astype(np.int32) @ w.astype(np.int32))
