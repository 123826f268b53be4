"""Chains of selects that read elements in their branches: kernels hold few of them."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

import tilesmith as ts
from tilesmith.frontend.load import load
from tilesmith.graph.nodes import Fused
from tilesmith.graph.passes.fuse import MAX_BRANCHES, fuse, node_structure

CONSTANTS = {"tenth": 0.1, "quarter": 0.25, "one": 1.0, "zero": 0.0}


def chain(steps: int, seed: int) -> Any:
    """A chain of steps that choose by y and w, by the sign of x, or by whether it is a number."""
    rng, nodes, x = np.random.default_rng(seed), [], "x"

    def add(op: str, *inputs: str) -> str:
        nodes.append(helper.make_node(op, inputs, [f"v{len(nodes)}"]))
        return nodes[-1].output[0]

    for kind in rng.integers(0, 3, steps):
        if kind == 0:
            first = add("Where", add("Greater", "y", "tenth"), x, "quarter")
            x = add("Add", first, add("Where", add("Greater", "w", "tenth"), x, "one"))
        elif kind == 1:
            x = add("Where", add("Greater", x, "zero"), x, add("Neg", x))
        else:
            x = add("Where", add("IsNaN", x), "zero", x)
    values = [helper.make_tensor_value_info(n, TensorProto.FLOAT, [64]) for n in ("x", "y", "w", x)]
    stored = [numpy_helper.from_array(np.float32(v), n) for n, v in CONSTANTS.items()]
    graph = helper.make_graph(nodes, "g", values[:3], values[3:], stored)
    opset = [helper.make_opsetid("", 17)]
    return helper.make_model(graph, opset_imports=opset, ir_version=8)


@pytest.mark.parametrize("seed", range(6))
def test_answers_and_kernels(seed: int) -> None:
    """Without a bound, some of these took minutes to compile."""
    model = chain(20, seed)
    kernels = [n.op.body for n in fuse(load(model)).nodes if isinstance(n.op, Fused)]
    counts = [sum(node_structure(n).branches for n in body.nodes) for body in kernels]
    assert MAX_BRANCHES // 2 < max(counts) <= MAX_BRANCHES
    rng = np.random.default_rng(seed)
    feeds = {n: rng.standard_normal(64).astype(np.float32) for n in ("x", "y", "w")}
    session = onnxruntime.InferenceSession(model.SerializeToString())
    (wanted,) = session.run(None, feeds)
    (found,) = ts.compile(model, threads=1).run(feeds).values()
    np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-5)
