"""Nodes that the reference evaluator of the `onnx` package runs."""

from __future__ import annotations

import base64
from typing import Any

import numpy as np

from tilesmith.support.errors import ModelError

from .moves import RESHAPES, movement
from .native import WithNative
from .table import Function, host_function


@host_function("onnx", prepared=True)
def onnx_model(model: str) -> Function:
    """The function for a model, given as its bytes in base64.  An input that is None is omitted.

    Raises ModelError without the `onnx` package.
    """
    try:
        import onnx
        from onnx.reference import ReferenceEvaluator
    except ImportError as e:
        raise ModelError(
            f"a node of this model runs on the host by the package onnx, which is not here ({e}); "
            "install it: pip install onnx"
        ) from None
    proto = onnx.ModelProto.FromString(base64.b64decode(model))
    names = [i.name for i in proto.graph.input]
    if len(proto.graph.node) == 1 and (moved := _movement(proto.graph.node[0], names)) is not None:
        return moved
    from .loops import Loop  # delayed: needs the package onnx

    evaluator = ReferenceEvaluator(proto, new_ops=[Loop])

    def run(*inputs: Any) -> tuple[Any, ...]:
        with np.errstate(all="ignore"):
            return tuple(evaluator.run(None, dict(zip(names, inputs, strict=True))))

    return WithNative(run, ("Reshape",)) if _is_reshape(proto.graph, names) else run


def _is_reshape(graph: Any, names: list[str]) -> bool:
    """Whether a graph has a single node, which reshapes the graph's first input."""
    if len(graph.node) != 1 or not names:
        return False
    (node,) = graph.node
    of_onnx = node.domain in ("", "ai.onnx")
    return of_onnx and node.op_type in RESHAPES and node.input[0] == names[0]


def _movement(node: Any, names: list[str]) -> Function | None:
    """The function for a node that only moves elements of the inputs `names`."""
    import onnx

    attributes = {a.name: onnx.helper.get_attribute_value(a) for a in node.attribute}
    places = [names.index(i) if i in names else -1 for i in node.input]
    return movement(node.op_type, node.domain, attributes, places)
