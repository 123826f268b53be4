"""Graphs of ONNX Runtime as models of ONNX.

ONNX Runtime shows a session's graph after its first passes: constants are folded, functions are
inlined.  Names of values are those by which both sides know them.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import onnx
from onnx import AttributeProto, TensorProto
from onnx.helper import make_opsetid, make_tensor_type_proto

from .api import Api, OrtError

_INT, _INTS, _FLOAT, _FLOATS, _STRING, _STRINGS, _GRAPH, _TENSOR = range(1, 9)
"""Kinds of attributes, by ONNX Runtime's numbers."""


@dataclass(slots=True)
class Read:
    """A graph of ONNX Runtime as a model of ONNX.

    model: the model.  It has no functions, and only initialisers that no caller can override.
    nodes: the addresses of the graph's nodes.
    types: by name, the types of values that are tensors.  A type has no shape where ONNX Runtime
        does not know the rank; an open extent without a name is named after its value and axis.
    unreadable: positions of nodes with an attribute that the C API can't show.
    """

    model: onnx.ModelProto
    nodes: list[int]
    types: dict[str, onnx.TypeProto] = field(default_factory=dict)
    unreadable: set[int] = field(default_factory=set)


def read(api: Api, graph: int) -> Read:
    """Convert a graph, given by its address, to a model."""
    nodes = [n for n in api.list("Graph_Nodes", graph) if n is not None]
    model = onnx.ModelProto(ir_version=api.Graph_GetOnnxIRVersion(graph))
    count = api.Graph_GetNumOperatorSets(graph)
    domains, versions = (ctypes.c_char_p * count)(), (ctypes.c_int64 * count)()
    api.Graph_GetOperatorSets(graph, domains, versions, count)
    model.opset_import.extend(
        make_opsetid(d.decode(), v) for d, v in zip(domains, versions, strict=True)
    )
    reader = _Reader(api)
    content = Read(model, nodes, reader.types)
    model.graph.CopyFrom(reader.graph(graph, ()))
    for i, node in enumerate(nodes):
        try:
            model.graph.node.append(reader.node(node))
        except OrtError:
            model.graph.node.append(reader.node(node, with_attributes=False))
            content.unreadable.add(i)
    return content


class _Reader:
    """A converter of graphs.  types: by name, the types of all values so far."""

    def __init__(self, api: Api) -> None:
        self._api = api
        self.types: dict[str, onnx.TypeProto] = {}

    def graph(self, graph: int, nodes: Iterable[int]) -> onnx.GraphProto:
        api = self._api
        made = onnx.GraphProto(name="graph")
        made.node.extend(map(self.node, nodes))
        made.input.extend(map(self._declared, api.list("Graph_Inputs", graph)))
        made.output.extend(map(self._declared, api.list("Graph_Outputs", graph)))
        for info in api.list("Graph_Initializers", graph):
            if api.ValueInfo_IsConstantInitializer(info):
                value = api.ValueInfo_GetInitializerValue(info)
                made.initializer.append(self._tensor(value, self._name(info)))
        return made

    def node(self, node: int, with_attributes: bool = True) -> onnx.NodeProto:
        """Convert a node.  Raises OrtError for an attribute that the C API can't show."""
        api = self._api
        made = onnx.NodeProto(
            name=api.Node_GetName(node).decode(),
            op_type=api.Node_GetOperatorType(node).decode(),
            domain=api.Node_GetDomain(node).decode(),
            input=map(self._seen, api.list("Node_Inputs", node)),
            output=map(self._seen, api.list("Node_Outputs", node)),
        )
        if with_attributes:
            graphs = self._graphs(node)
            for attribute in api.list("Node_Attributes", node):
                name = api.OpAttr_GetName(attribute).decode()
                if name in graphs:
                    made.attribute.append(graphs[name])
                elif attribute is not None:
                    made.attribute.append(self._attribute(attribute, name))
        return made

    def _graphs(self, node: int) -> dict[str, AttributeProto]:
        api, count = self._api, self._api.Node_GetNumSubgraphs(node)
        graphs, names = (ctypes.c_void_p * count)(), (ctypes.c_char_p * count)()
        if count:
            api.Node_GetSubgraphs(node, graphs, count, names)
        made = {}
        for address, name in zip(graphs, names, strict=True):
            inner = [n for n in api.list("Graph_Nodes", address) if n is not None]
            graph = self.graph(address, inner)
            made[name.decode()] = AttributeProto(
                name=name.decode(), type=AttributeProto.GRAPH, g=graph
            )
        return made

    def _name(self, info: int | None) -> str:
        return "" if info is None else self._api.GetValueInfoName(info).decode()

    def _seen(self, info: int | None) -> str:
        """The name of a value.  Its type is added to `types`."""
        name = self._name(info)
        if name and info is not None and name not in self.types:
            type_ = self._type(info, name)
            if type_ is not None:
                self.types[name] = type_
        return name

    def _declared(self, info: int | None) -> onnx.ValueInfoProto:
        name = self._seen(info)
        return onnx.ValueInfoProto(name=name, type=self.types.get(name))

    def _type(self, info: int, name: str) -> onnx.TypeProto | None:
        """The type of a value; None if it is no tensor."""
        api = self._api
        whole = api.GetValueInfoTypeInfo(info)
        tensor = whole and api.CastTypeInfoToTensorInfo(whole)
        if not tensor:
            return None
        element = api.GetTensorElementType(tensor)
        if not api.TensorTypeAndShape_HasShape(tensor):
            return make_tensor_type_proto(element, None)
        rank = api.GetDimensionsCount(tensor)
        extents, symbols = (ctypes.c_int64 * rank)(), (ctypes.c_char_p * rank)()
        api.GetDimensions(tensor, extents, rank)
        api.GetSymbolicDimensions(tensor, symbols, rank)
        shape = [
            n if n >= 0 else (s or b"").decode() or f"{name}.{axis}"
            for axis, (n, s) in enumerate(zip(extents, symbols, strict=True))
        ]
        return make_tensor_type_proto(element, shape)

    def _tensor(self, value: int, name: str) -> TensorProto:
        api = self._api
        element, shape, rank = api.GetTensorElementTypeAndShapeDataReference(value)
        extents = list((ctypes.c_int64 * rank).from_address(shape)) if rank else []
        made = TensorProto(name=name, data_type=element, dims=extents)
        count = 1
        for n in extents:
            count *= n
        if element == TensorProto.STRING:
            made.string_data.extend(self._strings(value, count))
        elif count:
            made.raw_data = ctypes.string_at(api.GetTensorData(value), _bytes_of(element, count))
        return made

    def _strings(self, value: int, count: int) -> list[bytes]:
        size = self._api.GetStringTensorDataLength(value)
        text, begins = ctypes.create_string_buffer(size), (ctypes.c_size_t * count)()
        self._api.GetStringTensorContent(value, text, size, begins, count)
        bounds = [*begins, size]
        return [text.raw[a:b] for a, b in pairwise(bounds)]

    def _attribute(self, attribute: int, name: str) -> AttributeProto:
        api, kind = self._api, self._api.OpAttr_GetType(attribute)
        made = AttributeProto(name=name)
        if kind == _TENSOR:
            value = api.OpAttr_GetTensorAttributeAsOrtValue(attribute)
            made.type = AttributeProto.TENSOR
            made.t.CopyFrom(self._tensor(value, ""))
            api.ReleaseValue(value)
            return made
        content = api.contents(attribute, kind)
        match kind:
            case _ if kind == _INT:
                made.type, made.i = AttributeProto.INT, _numbers(content, ctypes.c_int64)[0]
            case _ if kind == _INTS:
                made.type = AttributeProto.INTS
                made.ints.extend(_numbers(content, ctypes.c_int64))
            case _ if kind == _FLOAT:
                made.type, made.f = AttributeProto.FLOAT, _numbers(content, ctypes.c_float)[0]
            case _ if kind == _FLOATS:
                made.type = AttributeProto.FLOATS
                made.floats.extend(_numbers(content, ctypes.c_float))
            case _ if kind == _STRING:
                made.type, made.s = AttributeProto.STRING, content
            case _ if kind == _STRINGS:
                made.type = AttributeProto.STRINGS
                made.strings.extend(content.split(b"\0")[:-1])
            case _:
                raise OrtError(f"attribute {name!r} is of kind {kind}, which can't be read")
        return made


def _numbers(content: bytes, type_: Any) -> list[Any]:
    count = len(content) // ctypes.sizeof(type_)
    return list((type_ * count).from_buffer_copy(content))


def _bytes_of(element: int, count: int) -> int:
    """Bytes of so many elements; several small ones share a byte."""
    if element in NARROW:
        return (count * NARROW[element] + 7) // 8
    return count * onnx.helper.tensor_dtype_to_np_dtype(element).itemsize


_NARROW_BITS = {"INT4": 4, "UINT4": 4, "FLOAT4E2M1": 4, "INT2": 2, "UINT2": 2}

NARROW = {
    number: _NARROW_BITS[name]
    for name, number in TensorProto.DataType.items()
    if name in _NARROW_BITS
}
"""Bits of element types of less than a byte."""
