"""ONNX's If."""

from __future__ import annotations

from typing import Any

from tilesmith.frontend.common.branches import branched
from tilesmith.frontend.common.slots import Result
from tilesmith.frontend.onnx import attributes as at
from tilesmith.frontend.onnx.node import OnnxNode
from tilesmith.frontend.onnx.registry import onnx_op


def graph_attribute(n: OnnxNode, name: str) -> Any:
    graph = n.attributes.get(name, at.GRAPH)
    if graph is None:
        n.bad(f"expected attribute {name!r}, which is required; found none")
    return graph


@onnx_op("If", since=1)
def if_(n: OnnxNode) -> Result:
    branches = graph_attribute(n, "then_branch"), graph_attribute(n, "else_branch")
    return branched(n, n.input(0), branches)
