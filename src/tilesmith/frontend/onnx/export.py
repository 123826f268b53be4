"""Graphs as ONNX models.

A frontend's graph, which has the source's operators, is written node by node.  Composite operators
that ONNX lacks are expanded.  Files use opset 21, the first with blocked quantisation.  Operators
of later opsets are expanded.  Types between nodes are omitted, since readers infer them.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from tilesmith.graph.nodes import Graph
from tilesmith.graph.passes.decompose import decompose_only
from tilesmith.support.arguments import checked
from tilesmith.support.errors import UnsupportedError, UsageError
from tilesmith.support.folders import filled, writing, written

from .exported import WRITERS
from .writer import Writer

if TYPE_CHECKING:
    from onnx import ModelProto

OPSET, IR_VERSION = 21, 10

LARGEST = 1 << 31
"""Upper bound on the bytes of a protobuf message; larger models have a second file for weights."""


def to_onnx(graph: Graph) -> ModelProto:
    """An ONNX model that computes `graph`.  Open dimensions stay open; their ranges are not
    written.

    Raises UnsupportedError with the names of all operators that ONNX lacks, or for an extent that
    ONNX can't compute from the shapes of the inputs.
    """
    from onnx import helper

    graph = decompose_only(graph, lambda op: type(op) not in WRITERS)
    lacking = sorted({n.op.name for n in graph.nodes if type(n.op) not in WRITERS})
    if lacking:
        raise UnsupportedError(f"no form in ONNX is known for {', '.join(lacking)}")
    writer = Writer(graph)
    for node in graph.nodes:
        if node not in writer.written:
            WRITERS[type(node.op)](writer, node)
    inputs = [writer.info(writer.name(v), v) for v in graph.inputs]
    for name, v in zip(graph.output_names, graph.outputs, strict=True):
        writer.put("Identity", [writer.name(v)], [name])
    outputs = [writer.info(n, v) for n, v in zip(graph.output_names, graph.outputs, strict=True)]
    body = helper.make_graph(writer.nodes, graph.name, inputs, outputs, writer.initializers)
    opsets = [helper.make_opsetid("", OPSET)]
    return helper.make_model(
        body, opset_imports=opsets, ir_version=IR_VERSION, producer_name="tilesmith"
    )


@checked(UsageError)
def save_onnx(graph: Graph, path: str | os.PathLike[str]) -> None:
    """Write `graph` to an ONNX file, with its weights inside, or in a second file if they exceed 2
    GB.

    Raises UnsupportedError for a graph that ONNX has no form for, UsageError if the file can't be
    written.
    """
    model, file = to_onnx(graph), Path(path)
    with writing(file):
        save_model(model, graph, file)


def save_model(model: ModelProto, graph: Graph, file: Path) -> None:
    """Write the model of `graph`, with a second file if weights are large.  Raises OSError."""
    import onnx
    from onnx import serialization

    large = sum(c.data.array.nbytes for c in graph.constants) >= LARGEST - (1 << 24)
    if large:
        with filled(file.parent) as made:
            onnx.save_model(
                model, made / file.name, save_as_external_data=True, location=f"{file.name}.data"
            )
        return
    form = serialization.registry.get_format_from_file_extension(file.suffix) or "protobuf"
    with written(file) as f:
        f.write(serialization.registry.get(form).serialize_proto(model))
