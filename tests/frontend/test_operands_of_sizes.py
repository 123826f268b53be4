"""Operands that follow from open dimensions, where an operator wants numbers: a run knows them."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import tilesmith as ts

X = np.random.default_rng(0).standard_normal((1, 1, 4, 6)).astype(np.float32)
Node = tuple[str, list[str], dict[str, object]]


def _model(nodes: list[Node]) -> onnx.ModelProto:
    """x: [1,1,a,b] and z: [n]; `k` is n, `k1` a list of n, `kf` and `kf1` the same as floats."""
    made: list[Node] = [
        ("Shape", ["z", "k1"], {}),
        ("Squeeze", ["k1", "k"], {}),
        ("Cast", ["k", "kf"], {"to": TensorProto.FLOAT}),
        ("Cast", ["k1", "kf1"], {"to": TensorProto.FLOAT}),
        *nodes,
    ]
    constants = {
        "zero": np.array(0), "ten": np.array(10), "two": np.array(2), "first": np.array([0]),
        "last": np.array([2**62]), "rows": np.array([2]), "none": np.array([-(2**62)]),
        "pads": np.array([0, 0, 1, 0, 0, 0, 0, 2]), "ones": np.array([1, 1], np.float32),
    }  # fmt: skip
    graph = helper.make_graph(
        [helper.make_node(op, names[:-1], names[-1:], **a) for op, names, a in made],
        "sizes",
        [
            helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 1, "a", "b"]),
            helper.make_tensor_value_info("z", TensorProto.FLOAT, ["n"]),
        ],
        [onnx.ValueInfoProto(name="y")],
        [numpy_helper.from_array(a, name) for name, a in constants.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)])


CASES: dict[str, list[Node]] = {
    "triangle": [("Trilu", ["x", "k", "y"], {})],
    "causal mask": [("Neg", ["k", "d"], {}), ("Trilu", ["x", "d", "y"], {"upper": 0})],
    "filler": [("Pad", ["x", "pads", "kf", "y"], {})],
    "step": [("Slice", ["x", "first", "last", "rows", "k1", "y"], {})],
    "step back": [
        ("Neg", ["k1", "s"], {}),
        ("Slice", ["x", "last", "none", "rows", "s", "y"], {}),
    ],
    "steps of a range": [("Range", ["zero", "ten", "k", "y"], {})],
    "axis": [
        ("Mod", ["k", "two", "odd"], {}),
        ("Add", ["odd", "two", "axis"], {}),
        ("CumSum", ["x", "axis", "y"], {}),
    ],
    "scales": [
        ("Concat", ["ones", "kf1", "kf1", "scales"], {"axis": 0}),
        ("Resize", ["x", "", "scales", "y"], {"mode": "linear"}),
    ],
    "window": [("HannWindow", ["k", "y"], {})],
}


@pytest.mark.parametrize("nodes", CASES.values(), ids=list(CASES))
def test_an_operand_of_an_open_size_is_computed_by_the_run(nodes: list[Node]) -> None:
    model = _model(nodes)
    exe = ts.compile(model, threads=1)
    for count in (1, 2, 3):
        given = {"x": X, "z": np.zeros(count, np.float32)}
        fixed = ts.compile(model, threads=1, shapes={n: list(a.shape) for n, a in given.items()})
        wanted = fixed.run({s.name: given[s.name] for s in fixed.inputs})["y"]
        found = exe.run({s.name: given[s.name] for s in exe.inputs})["y"]
        assert found.shape == wanted.shape
        np.testing.assert_allclose(found, wanted, 1e-5, 1e-5)


def test_parts_whose_sizes_may_be_negative_are_taken_where_a_run_has_none() -> None:
    """Split into (n, 10 - n): which n is possible only a run knows."""
    model = _model(
        [("Sub", ["tens", "k1", "rest"], {}), ("Concat", ["k1", "rest", "sizes"], {"axis": 0})]
    )
    split = helper.make_node("Split", ["w", "sizes"], ["y", "other"], axis=0)
    model.graph.node.append(split)
    rows = np.arange(20, dtype=np.float32).reshape(10, 2)
    model.graph.initializer.append(numpy_helper.from_array(np.array([10]), "tens"))
    model.graph.initializer.append(numpy_helper.from_array(rows, "table"))
    model.graph.node.insert(0, helper.make_node("Mul", ["table", "ones"], ["w"]))
    model.graph.output.append(onnx.ValueInfoProto(name="other"))
    exe = ts.compile(model, threads=1)
    for n in (1, 7, 10):
        found = exe.run({"x": X, "z": np.zeros(n, np.float32)})
        np.testing.assert_array_equal(found["y"], rows[:n])
        np.testing.assert_array_equal(found["other"], rows[n:])
    with pytest.raises(ts.ModelError, match="negative"):
        exe.run({"x": X, "z": np.zeros(11, np.float32)})


def test_a_loop_that_fills_a_sequence_runs_as_often_as_an_open_size_says() -> None:
    body = helper.make_graph(
        [
            helper.make_node("SequenceInsert", ["s", "x"], ["more"]),
            helper.make_node("Identity", ["c"], ["go"]),
        ],
        "body",
        [
            helper.make_tensor_value_info("i", TensorProto.INT64, []),
            helper.make_tensor_value_info("c", TensorProto.BOOL, []),
            helper.make_tensor_sequence_value_info("s", TensorProto.FLOAT, None),
        ],
        [
            helper.make_tensor_value_info("go", TensorProto.BOOL, []),
            helper.make_tensor_sequence_value_info("more", TensorProto.FLOAT, None),
        ],
    )
    nodes: list[Node] = [
        ("SequenceEmpty", ["empty"], {"dtype": TensorProto.FLOAT}),
        ("Loop", ["k", "", "empty", "all"], {"body": body}),
        ("ConcatFromSequence", ["all", "y"], {"axis": 0}),
    ]
    exe = ts.compile(_model(nodes), threads=1)
    for count in (1, 3):
        found = exe.run({"x": X, "z": np.zeros(count, np.float32)})["y"]
        np.testing.assert_array_equal(found, np.concatenate([X] * count))
