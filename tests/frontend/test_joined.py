"""Open dimensions that may be 0 by default: a model only joins them to others."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import tilesmith as ts
from tilesmith.support.errors import ModelError

N = helper.make_node
CACHE: Sequence[int | str] = ["b", 2, "s", 4]
NEW: Sequence[int | str] = ["b", 2, "t", 4]


def info(name: str, dims: Sequence[int | str] | None, kind: int = TensorProto.FLOAT):
    return helper.make_tensor_value_info(name, kind, dims)


def model(
    nodes: Sequence[onnx.NodeProto],
    inputs: Mapping[str, Sequence[int | str]] | None = None,
    opset: int = 18,
) -> onnx.ModelProto:
    given = inputs or {"past": CACHE, "x": NEW}
    kinds = {"flag": TensorProto.BOOL}
    graph = helper.make_graph(
        nodes,
        "g",
        [info(n, s, kinds.get(n, TensorProto.FLOAT)) for n, s in given.items()],
        [onnx.ValueInfoProto(name="y")],
    )
    opsets = [helper.make_opsetid("", opset), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=10)


def array(*shape: int) -> np.ndarray:
    return np.random.default_rng(sum(shape)).standard_normal(shape).astype(np.float32)


def branch(*nodes: onnx.NodeProto) -> onnx.GraphProto:
    return helper.make_graph(nodes, "b", [], [onnx.ValueInfoProto(name=nodes[-1].output[0])])


NEGATED = N("Neg", ["x"], ["r"])
JOINS = {
    "at once": [N("Concat", ["past", "r"], ["y"], axis=2)],
    "from the end": [N("Concat", ["past", "r"], ["y"], axis=-2)],
    "behind": [N("Concat", ["r", "past"], ["y"], axis=2)],
    "transposed": [
        N("Transpose", ["past"], ["p"], perm=[2, 0, 1, 3]),
        N("Identity", ["p"], ["q"]),
        N("Transpose", ["r"], ["u"], perm=[2, 0, 1, 3]),
        N("Concat", ["q", "u"], ["y"], axis=0),
    ],
    "joined along another axis first": [
        N("Concat", ["past", "past"], ["p"], axis=1),
        N("Concat", ["r", "r"], ["u"], axis=1),
        N("Concat", ["p", "u"], ["y"], axis=2),
    ],
    "and its size": [
        N("Shape", ["past"], ["n"], start=2, end=3),
        N("Cast", ["n"], ["f"], to=TensorProto.FLOAT),
        N("Concat", ["past", "r"], ["c"], axis=2),
        N("Add", ["c", "f"], ["y"]),
    ],
}


@pytest.mark.parametrize("how", JOINS)
def test_an_axis_that_is_joined_may_be_empty(how: str) -> None:
    made = model([NEGATED, *JOINS[how]])
    exe = ts.compile(made)
    for past in (0, 3):
        p, x = array(2, 2, past, 4), array(2, 2, 5, 4)
        order = [-x, p] if how == "behind" else [p, -x]
        want = np.concatenate(order, 2)
        if how == "transposed":
            want = want.transpose(2, 0, 1, 3)
        elif how.startswith("joined along"):
            want = np.concatenate([want, want], 1)
        elif how == "and its size":
            want = want + np.float32(past)
        np.testing.assert_array_equal(exe(p, x), want)


def test_an_axis_that_one_branch_joins() -> None:
    inputs = {"past": CACHE, "x": NEW, "flag": []}
    joins = branch(NEGATED, N("Concat", ["past", "r"], ["c"], axis=2))
    alone = branch(N("Neg", ["x"], ["d"]))
    exe = ts.compile(
        model([N("If", ["flag"], ["y"], then_branch=joins, else_branch=alone)], inputs)
    )
    p, x = array(1, 2, 0, 4), array(1, 2, 3, 4)
    for flag in (True, False):
        np.testing.assert_array_equal(exe(p, x, np.array(flag)), -x)
    p = array(1, 2, 2, 4)
    np.testing.assert_array_equal(exe(p, x, np.array(True)), np.concatenate([p, -x], 2))


@pytest.mark.parametrize("domain", ["", "com.microsoft"])
def test_the_past_of_attention(domain: str) -> None:
    if domain:
        inputs = {"q": ["b", "t", 8], "k": ["b", "t", 8], "v": ["b", "t", 8]}
        operands = ["q", "k", "v", "", "", "", "past", "pastv"]
        node = N("MultiHeadAttention", operands, ["y"], domain=domain, num_heads=2)
    else:
        inputs = {n: ["b", 2, "t", 4] for n in "qkv"}
        node = N("Attention", ["q", "k", "v", "", "past", "pastv"], ["y"])
    made = model([node], {**inputs, "past": CACHE, "pastv": CACHE}, 18 if domain else 23)
    exe = ts.compile(made)
    q, k, v = (array(2, 2, 3, 4) * (i + 1) for i in range(3))
    for past in (0, 5):
        pk, pv = array(2, 2, past, 4), array(2, 2, past, 4)
        keys, values = np.concatenate([pk, k], 2), np.concatenate([pv, v], 2)
        e = np.exp(q @ keys.swapaxes(2, 3) / 2)
        want = e / e.sum(-1, keepdims=True) @ values
        flat = [a.swapaxes(1, 2).reshape(2, 3, 8) for a in (q, k, v, want)] if domain else []
        got = exe(*(flat[:3] or (q, k, v)), pk, pv)
        np.testing.assert_allclose(got, flat[3] if flat else want, rtol=1e-4, atol=1e-5)


OTHERS = {
    "another use": [NEGATED, N("Concat", ["past", "r"], ["c"], axis=2), N("Relu", ["past"], ["y"])],
    "never joined": [N("Relu", ["past"], ["y"])],
    "joined to an input alone": [N("Concat", ["past", "x"], ["y"], axis=2)],
}


@pytest.mark.parametrize("how", OTHERS)
def test_other_axes_are_one_or_more(how: str) -> None:
    exe = ts.compile(model(OTHERS[how]))
    with pytest.raises(ModelError, match=r"dimension 's': expected 1 to 2147483647, found 0"):
        exe(array(2, 2, 0, 4), array(2, 2, 5, 4))


def test_all_axes_of_a_dimension_count() -> None:
    nodes = [NEGATED, N("Concat", ["past", "r"], ["c"], axis=2), N("Add", ["c", "m"], ["y"])]
    exe = ts.compile(model(nodes, {"past": CACHE, "x": NEW, "m": ["b", 1, 1, 1]}))
    assert exe(array(2, 2, 0, 4), array(2, 2, 5, 4), array(2, 1, 1, 1)).shape == (2, 2, 5, 4)
    with pytest.raises(ModelError, match="dimension 'b'"):
        exe(array(0, 2, 0, 4), array(0, 2, 5, 4), array(0, 1, 1, 1))


def test_axes_without_names_and_ranges_of_the_caller() -> None:
    made = model([NEGATED, *JOINS["at once"]], {"past": [1, 2, "?", 4], "x": [1, 2, "t", 4]})
    x = array(1, 2, 5, 4)
    np.testing.assert_array_equal(ts.compile(made)(array(1, 2, 0, 4), x), -x)
    exe = ts.compile(made, dynamic={"past": {2: (1, 64)}})
    with pytest.raises(ModelError, match="expected 1 to 64, found 0"):
        exe(array(1, 2, 0, 4), x)
