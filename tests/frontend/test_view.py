"""Graphs after any pass, as ONNX files that viewers open."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from tilesmith import driver
from tilesmith.frontend.onnx.view import DOMAIN, GROUPS, save_view, viewed
from tilesmith.graph.nodes import Fused, Graph
from tilesmith.support.errors import UsageError
from tilesmith.support.options import Options


def info(name: str, *shape: int | str, kind: int = TensorProto.FLOAT) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, kind, shape)


def network() -> onnx.GraphProto:
    """conv, relu and pooling of images of any number, with a branch that data choose."""
    w = np.random.default_rng(0).standard_normal((8, 3, 3, 3)).astype(np.float32)
    branches = {
        f"{name}_branch": helper.make_graph(
            [helper.make_node(kind, ["p"], [name])], name, [], [info(name, "n", 8, 1, 1)]
        )
        for name, kind in (("then", "Exp"), ("else", "Tanh"))
    }
    return helper.make_graph(
        [
            helper.make_node("Conv", ["x", "w"], ["c"], name="conv1", pads=[1] * 4),
            helper.make_node("Relu", ["c"], ["r"]),
            helper.make_node("GlobalAveragePool", ["r"], ["p"]),
            helper.make_node("If", ["chosen"], ["y"], **branches),
        ],
        "net",
        [info("x", "n", 3, 8, 8), info("chosen", kind=TensorProto.BOOL)],
        [info("y", "n", 8, 1, 1)],
        [numpy_helper.from_array(w, "w")],
    )


@pytest.fixture(scope="module")
def stages() -> dict[str, Graph]:
    opsets = [helper.make_opsetid("", 18)]
    model = helper.make_model(network(), opset_imports=opsets, ir_version=9)
    session = driver.Session.of(Options())
    graph = driver.load_graph(driver.Request(model.SerializeToString(), session.options), session)
    return {"load": graph, "graph": driver.optimise(graph, session)}


@pytest.mark.parametrize("stage", ["load", "graph"])
def test_the_file_is_valid_and_has_all_nodes(stages, stage: str, tmp_path: Path) -> None:
    graph = stages[stage]
    save_view(graph, tmp_path / "v.onnx")
    model = onnx.load(tmp_path / "v.onnx")
    onnx.checker.check_model(model)
    ours = [n for n in model.graph.node if n.domain in (DOMAIN, GROUPS)]
    assert len(ours) == len(graph.nodes)
    (shape,) = (v.type.tensor_type.shape for v in model.graph.input if v.name == "x")
    assert [d.dim_param or d.dim_value for d in shape.dim] == ["n", 3, 8, 8]
    assert any("conv1" in n.doc_string for n in ours)
    assert any(a.type == a.GRAPH for n in ours for a in n.attribute)  # the branches


def test_a_fused_group_opens(stages) -> None:
    model = viewed(stages["graph"])
    groups = [n for n in stages["graph"].nodes if isinstance(n.op, Fused)]
    bodies = {f.name: f for f in model.functions}
    assert groups
    for node, shown in zip(
        groups, (n for n in model.graph.node if n.domain == GROUPS), strict=True
    ):
        body = bodies[shown.op_type]
        assert isinstance(node.op, Fused)
        inside = [n.op_type for n in body.node if n.domain == DOMAIN]
        assert inside == [n.op.name for n in node.op.body.nodes]
        assert len(body.input) == len(node.inputs) and len(body.output) == len(node.outputs)


def test_a_file_that_can_not_be_written_is_said(stages, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="can't be written"):
        save_view(stages["load"], tmp_path / "absent" / "v.onnx")
