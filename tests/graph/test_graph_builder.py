"""The builder infers types, shares constants and names what is wrong with a node."""

from __future__ import annotations

import numpy as np
import pytest

from tilesmith.graph.builder import Builder, expansion, infer
from tilesmith.graph.nodes import Data
from tilesmith.ir.dtypes import f32, i64
from tilesmith.ir.types import TensorType
from tilesmith.ops.elementwise import Add, Exp
from tilesmith.ops.matmul import Gemm
from tilesmith.ops.norm import Softmax
from tilesmith.ops.slicing import Split
from tilesmith.support.errors import ModelError, UsageError

MATRIX = TensorType(f32, (2, 6))


def test_types_follow_from_the_operator() -> None:
    b = Builder()
    x = b.input("x", MATRIX)
    assert b.add(Softmax(), x).type == MATRIX
    parts = b.add(Split(1, (4, 2)), x, name="part")
    assert [v.shape for v in parts] == [(2, 4), (2, 2)]
    assert [v.name for v in parts] == ["part", "part.1"]


def test_a_composite_gets_its_types_from_its_expansion_made_once() -> None:
    types = (MATRIX, TensorType(f32, (6, 3)), TensorType(f32, (3,)))
    op = Gemm(alpha=2.0)
    assert infer(op, types) == (TensorType(f32, (2, 3)),)
    assert expansion(op, types) is expansion(Gemm(alpha=2.0), types)


def test_small_equal_constants_are_one_value() -> None:
    b = Builder()
    assert b.constant(np.float32(1)) is b.constant(np.float32(1))
    assert b.constant(np.float32(1)) is not b.constant(np.float64(1))
    assert b.constant(np.float32(0)) is not b.constant(np.float32(-0.0))
    assert b.constant(np.ones(1, np.float32)) is not b.constant(np.float32(1))
    assert b.constant(np.float32(1), "a") is not b.constant(np.float32(1), "b")


def test_lazy_constants_are_not_read_by_building() -> None:
    def load() -> np.ndarray:
        raise AssertionError("read too early")

    b = Builder()
    w = b.lazy_constant(MATRIX, Data(load), "w")
    graph = b.finish(b.add(Exp(), w))
    assert graph.constants[0].value is w
    assert b.is_constant(w)
    assert not b.is_constant(graph.outputs[0])


def test_bad_nodes_are_reported_with_their_place() -> None:
    b = Builder()
    x, y = b.input("x", MATRIX), b.input("y", TensorType(f32, (5,)))
    with pytest.raises(
        ModelError, match=r"node 'layer1/add': add\(f32\[2,6\], f32\[5\]\): expected"
    ):
        b.add(Add(), x, y, loc="layer1/add")
    with pytest.raises(ModelError, match=r"softmax\(i64\[\]\)"):
        b.add(Softmax(), b.input("n", TensorType(i64, ())))


def test_names_must_be_unique() -> None:
    b = Builder()
    x = b.input("x", MATRIX)
    with pytest.raises(ModelError, match="two graph inputs are named 'x'"):
        b.input("x", MATRIX)
    with pytest.raises(ModelError, match="two graph outputs are named 'y'"):
        b.finish([x, x], ["y", "y"])


def test_values_of_another_graph_are_refused() -> None:
    stranger = Builder("other").input("x", MATRIX)
    b = Builder("mine")
    with pytest.raises(UsageError, match="not a value of graph 'mine'"):
        b.add(Exp(), stranger)
    with pytest.raises(UsageError, match="not a value of graph 'mine'"):
        b.finish(stranger)


def test_default_output_names() -> None:
    b = Builder()
    x = b.input("x", MATRIX)
    y = b.add(Exp(), x)
    assert b.finish(y).output_names == ("output",)
    assert b.finish([x, y]).output_names == ("x", "output1")
    assert b.finish([x, x]).output_names == ("output0", "output1")


def test_include_names_an_input_without_a_value():
    b = Builder("inner")
    inner = b.finish(b.add(Exp(), b.input("x", TensorType(f32, (2, 4)))))
    with pytest.raises(UsageError, match=r"of graph 'inner', found none for <%x: f32\[2,4\]"):
        Builder("outer").include(inner, {})
