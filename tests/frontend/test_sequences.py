"""Sequences and optional values, which are gone when a model is imported."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import onnx_models as om
import pytest
from onnx import TensorProto, helper
from onnx.reference import ReferenceEvaluator

from tilesmith.frontend.load import load
from tilesmith.graph.evaluate import evaluate
from tilesmith.support.errors import ModelError

X = np.random.default_rng(0).standard_normal((6, 4)).astype(np.float32)
CONSTANTS = {
    "zero": np.array(0), "one": np.array(1), "minus": np.array(-1), "two": np.array(2),
    "four": np.array(4), "sizes": np.array([1, 3, 2]), "yes": np.array(True),
    "two_f": np.float32(2),
}  # fmt: skip


def model(*nodes: tuple[Any, ...]) -> onnx.ModelProto:
    """Nodes `(operator, inputs, output, attributes)` from `x` f32[6,4] to `y`."""
    made = [helper.make_node(op, i.split(","), o.split(","), **(a[0] if a else {}))
            for op, i, o, *a in nodes]  # fmt: skip
    for node, (_, i, *_rest) in zip(made, nodes, strict=True):
        if not i:
            del node.input[:]
    return om.model(made, [om.value("x", X.shape)], ["y"], CONSTANTS)


def body(*nodes: onnx.NodeProto, inputs: str, outputs: str) -> onnx.GraphProto:
    names = [[onnx.ValueInfoProto(name=n) for n in s.split(",")] for s in (inputs, outputs)]
    return helper.make_graph(nodes, "body", *names)


GROWING = body(
    helper.make_node("Gather", ["x", "i"], ["row"], axis=0),
    helper.make_node("SequenceInsert", ["so_far", "row"], ["longer"]),
    helper.make_node("Identity", ["going"], ["goes"]),
    inputs="i,going,so_far", outputs="goes,longer",
)  # fmt: skip
ABSOLUTE = body(
    helper.make_node("Abs", ["part"], ["size"]),
    helper.make_node("Add", ["part", "whole"], ["sum"]),
    inputs="part,whole", outputs="size,sum",
)  # fmt: skip
FIRST, LAST = (
    body(helper.make_node("SequenceConstruct", ["x", "x"], ["s"]), inputs="", outputs="s"),
    body(helper.make_node("SequenceConstruct", ["x"], ["s"]), inputs="", outputs="s"),
)
for g in (FIRST, LAST):
    del g.input[:]
SPLIT = ("SplitToSequence", "x,two", "s")
JOINED = ("ConcatFromSequence", "s", "y", {"axis": 0})


@pytest.mark.parametrize(
    "nodes",
    [
        [SPLIT, JOINED],
        [("SplitToSequence", "x,four", "s"), ("SequenceAt", "s,minus", "y")],
        [("SplitToSequence", "x,sizes", "s"), ("SequenceAt", "s,one", "y")],
        [("SplitToSequence", "x", "s", {"axis": 1}), ("SequenceAt", "s,two", "y")],
        [("SplitToSequence", "x", "s", {"axis": 1, "keepdims": 0}), ("SequenceAt", "s,two", "y")],
        [SPLIT, ("SequenceLength", "s", "y")],
        [SPLIT, ("ConcatFromSequence", "s", "y", {"axis": 1, "new_axis": 1})],
        [("SequenceConstruct", "x,x", "s"), ("ConcatFromSequence", "s", "y", {"axis": -1})],
        [SPLIT, ("SequenceErase", "s", "t"), ("ConcatFromSequence", "t", "y", {"axis": 0})],
        [SPLIT, ("SequenceErase", "s,zero", "t"), ("ConcatFromSequence", "t", "y", {"axis": 0})],
        [SPLIT, ("SequenceInsert", "s,x,one", "t"), ("ConcatFromSequence", "t", "y", {"axis": 0})],
        [SPLIT, ("SequenceInsert", "s,x", "t"), ("ConcatFromSequence", "t", "y", {"axis": 0})],
        [SPLIT, ("Identity", "s", "t"), ("SequenceAt", "t,zero", "y")],
        [
            ("SequenceEmpty", "", "s", {"dtype": TensorProto.FLOAT}),
            ("Loop", "four,yes,s", "t", {"body": GROWING}),
            ("ConcatFromSequence", "t", "y", {"axis": 0, "new_axis": 1}),
        ],
        [
            SPLIT,
            ("SequenceMap", "s,two_f", "t,u", {"body": ABSOLUTE}),
            ("SequenceAt", "t,one", "a"),
            ("SequenceAt", "u,two", "b"),
            ("Mul", "a,b", "y"),
        ],
        [
            ("If", "yes", "s", {"then_branch": FIRST, "else_branch": LAST}),
            ("SequenceLength", "s", "y"),
        ],
        [("Optional", "x", "o"), ("OptionalHasElement", "o", "y")],
    ],
    ids=lambda nodes: " ".join(n[0] for n in nodes),
)
def test_sequences(nodes: list[tuple[Any, ...]]) -> None:
    made = model(*nodes)
    (want,) = ReferenceEvaluator(made).run(None, {"x": X})  # type: ignore[misc]  # one output
    graph = load(made)
    got = evaluate(graph, {v.name: X for v in graph.inputs})["y"]
    assert got.shape == np.shape(want) and got.dtype == np.asarray(want).dtype
    np.testing.assert_array_equal(got, want)


def test_optional_values() -> None:
    graph = load(model(("Optional", "x", "o"), ("OptionalGetElement", "o", "y")))
    np.testing.assert_array_equal(evaluate(graph, {"x": X})["y"], X)
    absent = model(("Optional", "", "o"), ("OptionalHasElement", "o", "y"))
    assert not evaluate(load(absent), {"x": X})["y"]
    with pytest.raises(ModelError, match="optional value that is there"):
        load(model(("Optional", "", "o"), ("OptionalGetElement", "o", "y")))


@pytest.mark.parametrize(
    ("nodes", "error", "message"),
    [
        ([("SequenceAt", "x,zero", "y")], ModelError, "expected a sequence .*found a tensor"),
        ([SPLIT, ("Relu", "s", "y")], ModelError, "expected a tensor .*a sequence of 3 tensors"),
        ([SPLIT, ("SequenceAt", "s,four", "y")], ModelError, "expected one of 3 tensors, found 4"),
        ([SPLIT, ("SequenceAt", "s", "y")], ModelError, "expected input number 2"),
        ([SPLIT, ("SequenceInsert", "s,one", "y")], ModelError, "expected a tensor of f32"),
        ([("SplitToSequence", "x,zero", "y")], ModelError, "expected at least 1, found 0"),
        ([("SplitToSequence", "x,sizes", "y", {"axis": 1})], ModelError, "add up to 4"),
        ([("SequenceConstruct", "x,one", "y")], ModelError, "tensors of one type"),
        (
            [("SequenceEmpty", "", "s"), ("ConcatFromSequence", "s", "y", {"axis": 0})],
            ModelError, "an empty sequence",
        ),
    ],
)  # fmt: skip
def test_bad_sequences(nodes: list[tuple[Any, ...]], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        load(model(*nodes))
