"""Any graph, after any pass, as an ONNX file for viewers such as Netron.

Operators are nodes of the domain `tilesmith`, with their attributes.  A fused group is a node of
the domain `tilesmith.fused`.  The node's function, which viewers can open, holds the group's nodes.
The file is valid ONNX, but only viewers can use it; `export.save_onnx` writes models that run
elsewhere.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from tilesmith.graph.nodes import Fused, Graph, Node, Value
from tilesmith.support.folders import writing

from .export import IR_VERSION, OPSET, save_model
from .writer import CODES, Writer

if TYPE_CHECKING:
    from onnx import FunctionProto, GraphProto, ModelProto

DOMAIN = "tilesmith"
GROUPS = f"{DOMAIN}.fused"


def viewed(graph: Graph) -> ModelProto:
    """The ONNX model that displays `graph`."""
    from onnx import helper

    functions: list[FunctionProto] = []
    body = _graph(graph, functions)
    opsets = [helper.make_opsetid("", OPSET), helper.make_opsetid(DOMAIN, 1)]
    return helper.make_model(
        body,
        opset_imports=[*opsets, helper.make_opsetid(GROUPS, 1)],
        ir_version=IR_VERSION,
        producer_name="tilesmith",
        functions=functions,
    )


def save_view(graph: Graph, path: Path) -> None:
    """Write the result of `viewed` to a file.  Raises UsageError if that is not possible."""
    with writing(path):
        save_model(viewed(graph), graph, path)


def _graph(graph: Graph, functions: list[FunctionProto]) -> GraphProto:
    from onnx import helper

    writer = Writer(graph)
    for node in graph.nodes:
        _put(writer, node, functions)
    for name, v in zip(graph.output_names, graph.outputs, strict=True):
        writer.put("Identity", [writer.name(v)], [name])
    results = zip(graph.output_names, graph.outputs, strict=True)
    between = [v for n in graph.nodes for v in n.outputs]
    return helper.make_graph(
        writer.nodes,
        graph.name or "graph",
        [_info(writer.name(v), v) for v in graph.inputs],
        [_info(name, v) for name, v in results],
        writer.initializers,
        value_info=[_info(writer.name(v), v) for v in between],
    )


def _put(writer: Writer, node: Node, functions: list[FunctionProto]) -> None:
    from onnx import helper

    if isinstance(node.op, Fused):
        kind, attributes, domain = _function(node, functions), _layouts(node), GROUPS
    else:
        kind, attributes, domain = node.op.name, _attributes(node, functions), DOMAIN
    inputs, outputs = ([writer.name(v) for v in vs] for vs in (node.inputs, node.outputs))
    writer.put(kind, inputs, outputs, domain=domain, doc_string=node.loc or None)
    writer.nodes[-1].attribute.extend(helper.make_attribute(k, v) for k, v in attributes.items())


def _function(node: Node, functions: list[FunctionProto]) -> str:
    """Add a function to the model with the body of a fused group; return its name."""
    from onnx import helper

    assert isinstance(node.op, Fused)
    body = node.op.body
    writer = Writer(body)
    for inner in body.nodes:
        _put(writer, inner, functions)
    for name, v in zip(body.output_names, body.outputs, strict=True):
        writer.put("Identity", [writer.name(v)], [name])
    constants = [helper.make_node("Constant", [], [t.name], value=t) for t in writer.initializers]
    kind = f"{'_'.join(dict.fromkeys(n.op.name for n in body.nodes))[:60]}_{len(functions)}"
    opsets = [helper.make_opsetid("", OPSET), helper.make_opsetid(DOMAIN, 1)]
    functions.append(
        helper.make_function(
            GROUPS, kind, [writer.name(v) for v in body.inputs], list(body.output_names),
            [*constants, *writer.nodes], [*opsets, helper.make_opsetid(GROUPS, 1)],
        )
    )  # fmt: skip
    return kind


def _attributes(node: Node, functions: list[FunctionProto]) -> dict[str, Any]:
    """The operator's attributes that have a value, and the layouts of its results."""
    shown: dict[str, Any] = {}
    for name, value in node.op.attributes.items():
        if isinstance(value, Graph):
            shown[name] = _graph(value, functions)
        elif isinstance(value, (int, float, str)) and not isinstance(value, np.generic):
            shown[name] = int(value) if isinstance(value, bool) else value
        elif isinstance(value, tuple) and value and all(type(n) is int for n in value):
            shown[name] = list(value)
        elif value is not None:
            shown[name] = str(value)
    return shown | _layouts(node)


def _layouts(node: Node) -> dict[str, Any]:
    """The layouts of a node's results, as an attribute."""
    layouts = [str(v.layout) for v in node.outputs if v.layout is not None]
    return {"layouts": ", ".join(layouts)} if layouts else {}


def _info(name: str, v: Value) -> Any:
    """The type of a value, with open sizes by name.  The type is omitted if ONNX lacks the element
    type.
    """
    from onnx import TensorProto, helper

    shape = [d if isinstance(d, int) else str(d) for d in v.type.shape]
    return helper.make_tensor_value_info(name, CODES.get(v.dtype, TensorProto.UNDEFINED), shape)
