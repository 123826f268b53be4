"""Facts about an ONNX file."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

from tilesmith.frontend.common.inspection import Inspection
from tilesmith.frontend.common.source import Source
from tilesmith.frontend.onnx.custom import import_function
from tilesmith.frontend.onnx.importer import domain_of, opsets_of
from tilesmith.frontend.onnx.proto import read_model, text
from tilesmith.frontend.onnx.registry import OBJECTS, OPERATORS, standard_function
from tilesmith.frontend.onnx.structure import subgraphs
from tilesmith.frontend.onnx.tensors import ELEMENT_TYPES
from tilesmith.support.errors import ModelError


def inspect(source: Source) -> Inspection:
    """Facts about an ONNX file.  Raises ModelError if it is damaged."""
    model, weights = read_model(source)
    graph = model.graph
    if not model.HasField("graph"):
        raise ModelError("expected an ONNX model, found one without a graph")
    opsets = opsets_of(model)
    functions = {(domain_of(f), f.name) for f in model.functions}
    operators: Counter[str] = Counter()
    unsupported: set[str] = set()
    bodies = [(graph.node, opsets), *((f.node, opsets_of(f, opsets)) for f in model.functions)]
    for nodes, versions in bodies:
        for node in _all_nodes(nodes):
            domain, name = domain_of(node), text(node.op_type, "an operator's name")
            shown = f"{domain}.{name}" if domain else name
            operators[shown] += 1
            if (domain, name) not in functions and not _is_known(
                domain, name, versions.get(domain, 0)
            ):
                unsupported.add(shown)
    stored = {t.name for t in graph.initializer}
    kept = sum(w.nbytes for w in weights.values())
    producer = " ".join(p for p in (model.producer_name, model.producer_version) if p)
    listed = ", ".join(f"{d or 'ai.onnx'} {v}" for d, v in sorted(opsets.items()))
    return Inspection(
        f"ONNX, IR version {model.ir_version}, opsets {listed}",
        producer,
        {i.name: _type(i) for i in graph.input if i.name not in stored},
        {o.name: _type(o) for o in graph.output},
        operators,
        frozenset(unsupported),
        kept + sum(_stored_bytes(t) for i, t in enumerate(graph.initializer) if i not in weights),
        {p.key: p.value for p in model.metadata_props},
    )


def _all_nodes(nodes: Any) -> Iterator[Any]:
    """The nodes, and those of sub-graphs in them."""
    left = [*nodes]
    while left:
        node = left.pop()
        yield node
        for graph in subgraphs(node):
            left += graph.node


def _is_known(domain: str, name: str, version: int) -> bool:
    tables = (OPERATORS, OBJECTS)
    if any(t.find(domain, name, version) is not None for t in tables):
        return True
    if import_function(domain, name) is not None:
        return True
    return standard_function(domain, name, version) is not None


def _stored_bytes(tensor: Any) -> int:
    """The bytes of a stored tensor, in the file or in a file of external data."""
    for entry in tensor.external_data:
        if entry.key == "length" and entry.value.isdigit():
            return int(entry.value)
    return tensor.ByteSize()


def _type(value_info: Any) -> str:
    """The declared type as text."""
    kind = value_info.type.WhichOneof("value")
    if kind != "tensor_type":
        return str(kind or "no type").removesuffix("_type")
    tensor = value_info.type.tensor_type
    dtype = ELEMENT_TYPES.get(tensor.elem_type)
    name = "string" if dtype is None else dtype.name
    if not tensor.HasField("shape"):
        return f"{name} of unknown rank"
    dims = (
        str(d.dim_value) if d.WhichOneof("value") == "dim_value" else d.dim_param or "?"
        for d in tensor.shape.dim
    )
    return f"{name}[{','.join(dims)}]"
