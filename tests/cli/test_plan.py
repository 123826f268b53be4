"""`tilesmith check MODEL --plan`: what becomes of each node, before anything is compiled."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from tilesmith import driver
from tilesmith.cli.fates import FATES, plan_of
from tilesmith.frontend.onnx.operators import OPERATORS

FLOAT, INT, BOOL = TensorProto.FLOAT, TensorProto.INT64, TensorProto.BOOL


@pytest.fixture
def path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A dense layer, shape arithmetic, a branch, and an operator that only the host has."""
    monkeypatch.delitem(OPERATORS._entries, ("", "Unique"))

    def value(name: str, shape: list, kind: int = FLOAT) -> onnx.ValueInfoProto:
        return helper.make_tensor_value_info(name, kind, shape)

    def side(op: str) -> onnx.GraphProto:
        node = helper.make_node(op, ["act"], ["z"], name=op.lower())
        return helper.make_graph([node], op, [], [value("z", ["n", 4])])

    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["m"], name="dense"),
        helper.make_node("Relu", ["m"], ["act"], name="activation"),
        helper.make_node("Shape", ["act"], ["s"], name="shape"),
        helper.make_node("Gather", ["s", "zero"], ["rows"], name="rows"),
        helper.make_node(
            "If", ["c"], ["b"], "choice", then_branch=side("Exp"), else_branch=side("Tanh")
        ),
        helper.make_node("Unique", ["k"], ["u"], name="unique"),
    ]
    graph = helper.make_graph(
        nodes,
        "g",
        [value("x", ["n", 4]), value("c", [], BOOL), value("k", [3])],
        [value("b", ["n", 4]), value("rows", [], INT), value("u", ["found"])],
        [
            numpy_helper.from_array(np.ones((4, 4), np.float32), "w"),
            numpy_helper.from_array(np.int64(0), "zero"),
        ],
    )
    path = tmp_path / "m.onnx"
    opset = [helper.make_opsetid("", 20)]
    onnx.save(helper.make_model(graph, opset_imports=opset, ir_version=9), path)
    return path


TABLE = """\
node        operator  becomes   kernels  fused with
dense       MatMul    native          0  activation
activation  Relu      native          0  dense
shape       Shape     folded
rows        Gather    folded
choice      If        branch        1-2
unique      Unique    fallback
"""


def test_the_table(tilesmith, path):
    done = tilesmith("check", path, "--plan", "--dynamic", "n=2:64", "--expected", "n=8")
    assert done.code == 0, done.err
    table, counts, dimensions = done.out.split("\n\n")[:3]
    rows = [line.split() for line in table.splitlines()]
    found = {row[0]: row[1:] for row in rows}
    assert found["dense"][1] == "native" and found["dense"][3:] == ["activation"]
    assert found["dense"][2] == found["activation"][2]
    assert found["shape"] == ["Shape", "folded"]
    assert found["choice"][:2] == ["If", "branch"] and "-" in found["choice"][2]
    assert found["unique"] == ["Unique", "fallback"]
    assert counts.startswith("6 nodes, ")
    assert "1 fallback: ONNX's reference evaluator runs it on the host" in counts
    assert dimensions.splitlines()[1].split() == ["n", "2", "64", "8", "inputs"]


def test_the_same_as_json(tilesmith, path):
    found = tilesmith("check", path, "--plan", "--json").json
    assert [n["name"] for n in found["nodes"]] == [row.split()[0] for row in TABLE.splitlines()[1:]]
    assert all(n["fate"] in FATES for n in found["nodes"])
    (size,) = found["dimensions"]
    assert size["name"] == "n" and size["low"] == 1 and not size["is_measured"]
    inside = [k for n in found["nodes"] for k in n["kernels"]]
    assert set(inside) <= set(range(found["kernels"]))


def test_nothing_is_compiled(path):
    made = driver.kernels_made()
    plan_of(driver.Request.of(path))
    assert driver.kernels_made() == made


def test_a_model_that_is_refused(tilesmith, path):
    refused = tilesmith("check", path, "--plan", "--fallback", "error")
    assert refused.code == 2 and "Unique" in refused.err
