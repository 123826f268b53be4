"""The evaluator against NumPy, on layouts and groups, and its messages about inputs."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest

from tilesmith.graph.builder import Builder
from tilesmith.graph.evaluate import evaluate, evaluate_op
from tilesmith.graph.nodes import Constant, Data, Fused, Graph, Node, Value
from tilesmith.ir.dtypes import f32
from tilesmith.ir.layout import Layout
from tilesmith.ir.types import TensorType
from tilesmith.ops.elementwise import Add, Div, Exp, Mul
from tilesmith.ops.matmul import MatMul
from tilesmith.ops.norm import Softmax
from tilesmith.support.errors import InternalError, ModelError

TYPE = TensorType(f32, (2, 3))
ARRAY = np.arange(6, dtype=np.float32).reshape(2, 3)


def two_inputs() -> Graph:
    b = Builder()
    first, second = b.input("first", TYPE), b.input("second", TYPE)
    y = b.add(Softmax(), b.add(Add(), first, second))
    return b.finish([y, second], ["y", "again"])


def test_composites_and_pass_through_outputs() -> None:
    result = evaluate(two_inputs(), [ARRAY, ARRAY])
    e = np.exp(2 * ARRAY - (2 * ARRAY).max(1, keepdims=True))
    np.testing.assert_allclose(result["y"], e / e.sum(1, keepdims=True), rtol=1e-6)
    np.testing.assert_array_equal(result["again"], ARRAY)


def test_by_name_and_by_position_agree() -> None:
    by_name = evaluate(two_inputs(), {"second": ARRAY, "first": -ARRAY})
    by_position = evaluate(two_inputs(), [-ARRAY, ARRAY])
    np.testing.assert_array_equal(by_name["y"], by_position["y"])


def test_constants_are_unpacked_from_their_layout() -> None:
    layout = Layout.parse("1/2 0 1%2")
    w = Value("w", TensorType(f32, (3, 5)), layout)
    logical = np.random.default_rng(0).standard_normal((3, 5), np.float32)
    x, y = Value("x", TYPE), Value("y", TensorType(f32, (2, 5)))
    constant = Constant(w, Data.of(layout.pack(logical)))
    graph = Graph("g", (x,), (constant,), (Node(MatMul(), (x, w), (y,)),), (y,), ("y",))
    np.testing.assert_allclose(evaluate(graph, [ARRAY])["y"], ARRAY @ logical, rtol=1e-5)


def test_groups_run_their_body() -> None:
    inner = Builder("body")
    a = inner.input("a", TYPE)
    two = inner.constant(np.float32(2))
    body = inner.finish([inner.add(Mul(), a, two), inner.add(Exp(), a)])
    x, y, z = (Value(n, TYPE) for n in "xyz")
    graph = Graph("g", (x,), (), (Node(Fused(body), (x,), (y, z)),), (z, y), ("z", "y"))
    result = evaluate(graph, {"x": ARRAY})
    np.testing.assert_array_equal(result["y"], 2 * ARRAY)
    np.testing.assert_array_equal(result["z"], np.exp(ARRAY))


def test_division_by_zero_is_an_answer() -> None:
    one, zero = np.ones(1, np.float32), np.zeros(1, np.float32)
    with np.errstate(all="raise"):
        assert np.isinf(evaluate_op(Div(), one, zero)[0]).all()


@pytest.mark.parametrize(
    ("inputs", "message"),
    [
        ([ARRAY], r"expected 2 inputs \(first, second\), found 1"),
        ({"first": ARRAY}, "missing second"),
        ({"first": ARRAY, "secnd": ARRAY}, "no input is named 'secnd'.*did you mean 'second'"),
        ([ARRAY, ARRAY.T], r"input 'second': expected f32\[2,3\], found float32\[3,2\]"),
        ([ARRAY, ARRAY.astype(int)], r"input 'second': expected f32\[2,3\], found int64\[2,3\]"),
    ],
)
def test_wrong_inputs(inputs: object, message: str) -> None:
    with pytest.raises(ModelError, match=message):
        evaluate(two_inputs(), inputs)  # type: ignore[arg-type]


def test_a_reference_of_the_wrong_type_is_our_bug() -> None:
    @dataclass(frozen=True)
    class Liar(Exp, abstract=True):
        def reference(self, *inputs: np.ndarray) -> np.ndarray:
            return inputs[0].astype(np.float64)

    b = Builder()
    graph = b.finish(b.add(Liar(), b.input("x", TYPE), loc="here"))
    with pytest.raises(InternalError, match=r"node 'here': expected .*f32\[2,3\].*float64\[2,3\]"):
        evaluate(graph, [ARRAY])
