"""Nodes that ONNX's reference evaluator runs on the host.

These are nodes that can't become native code (see `fallback=` of `tilesmith.compile`), and nodes
that read strings or other host objects and have no function of their own (`object_op`).
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tilesmith.frontend.common.folding import FoldingBuilder
from tilesmith.frontend.common.host_values import as_value, element, scalar, tensor_of
from tilesmith.frontend.common.slots import Slot
from tilesmith.frontend.onnx.attributes import Attributes
from tilesmith.frontend.onnx.proto import messages
from tilesmith.frontend.onnx.types import type_of_text
from tilesmith.graph.control import Host
from tilesmith.graph.nodes import Value
from tilesmith.host_functions import prepare
from tilesmith.ir.dtypes import DType, string, u8, unknown
from tilesmith.ir.types import TensorType
from tilesmith.support.errors import ModelError, UnsupportedError

_STAND_IN = u8
"""The element type that replaces strings while an import function infers shapes."""


@dataclass(frozen=True, slots=True)
class ReferenceNode:
    """A node of the source model that the reference evaluator is to run.

    builder: makes the graph.
    node: the NodeProto.
    domain: domain of its operator.
    opsets: domain -> version.
    attributes: the node's attributes.
    inputs: the node's inputs by name, in order, including values that sub-graphs capture.
    loc: the node's location, for messages.
    """

    builder: FoldingBuilder
    node: Any
    domain: str
    opsets: Mapping[str, int]
    attributes: Attributes
    inputs: Mapping[str, Slot]
    loc: str

    def run(self, types: Sequence[TensorType] | None, is_fallback: bool) -> list[Slot]:
        """The node's outputs, None for those that it omits.

        types: types of its outputs; by default from the operator's definition.

        Raises UnsupportedError if the reference evaluator lacks the operator.
        """
        settings = json.dumps({"model": base64.b64encode(self._model()).decode()})
        try:
            prepare("onnx", settings)
        except Exception as e:  # the onnx package has several kinds of errors
            raise UnsupportedError(
                f"the operator is not supported, nor by the reference evaluator ({_first_line(e)})"
            ) from None
        named = [i for i, o in enumerate(self.node.output) if o]
        result_types = self._defined() if types is None else types
        op = Host(
            "onnx", settings, tuple(result_types[i] for i in named), self.node.op_type, is_fallback
        )
        values = [as_value(self.builder, s, self.loc) for s in self.inputs.values()]
        label = next((o for o in self.node.output if o), "")
        made = self.builder.add(op, *values, loc=self.loc, name=label)
        results = dict(zip(named, made if isinstance(made, tuple) else (made,), strict=True))
        return [results.get(i) for i in range(len(self.node.output))]

    def _model(self) -> bytes:
        """A model of this node alone."""
        model = messages().ModelProto(ir_version=8)
        for domain, version in self.opsets.items():
            model.opset_import.add(domain=domain, version=version)
        graph = model.graph
        graph.name = "node"
        node = graph.node.add()
        node.CopyFrom(self.node)
        del node.attribute[:]
        for name in self.attributes.names:
            attribute = node.attribute.add()
            attribute.CopyFrom(self.attributes.find(name))
            attribute.name = name
        for name in self.inputs:
            graph.input.add(name=name)
        for name in filter(None, node.output):
            graph.output.add(name=name)
        return model.SerializeToString()

    def _defined(self) -> list[TensorType]:
        """The types of the outputs from the operator's definition.  Their ranks are unknown."""
        import onnx  # imported here, since few models need it

        try:
            version = self.opsets.get(self.domain, 1)
            schema: Any = onnx.defs.get_schema(self.node.op_type, version, self.domain)
        except onnx.defs.SchemaError:
            return [scalar(unknown)] * len(self.node.output)
        bound: dict[str, DType] = {}
        for i, name in enumerate(self.node.input):
            slot = self.inputs.get(name)
            if isinstance(slot, Value) and schema.inputs:
                formal = schema.inputs[min(i, len(schema.inputs) - 1)]
                bound.setdefault(formal.type_str, slot.dtype)
        return [scalar(_result(schema, i, bound)) for i in range(len(self.node.output))]


def _result(schema: Any, number: int, bound: Mapping[str, DType]) -> DType:
    """The host type of output `number`."""
    if not schema.outputs:
        return unknown
    formal = schema.outputs[min(number, len(schema.outputs) - 1)].type_str
    dtype = bound.get(formal) or type_of_text(formal)
    return dtype if dtype.form not in (None, "tensor") else tensor_of(element(dtype))


def by_stand_in(
    builder: FoldingBuilder,
    slots: Sequence[Slot],
    make: Callable[[Sequence[Slot]], Sequence[Slot]],
    has_bodies: bool,
) -> list[Value] | None:
    """A node's outputs when numbers of the same shapes replace its strings.  None if the outputs'
    shapes can't be found in this way.

    make: imports the node with other inputs.
    has_bodies: whether the node has sub-graphs, whose operators may need strings.
    """
    if any(isinstance(s, Value) and s.dtype.is_host and s.dtype is not string for s in slots):
        return None
    stand_ins = [
        builder.add(Host("none", "", (TensorType(_STAND_IN, s.shape),)))
        if isinstance(s, Value) and s.dtype is string
        else s
        for s in slots
    ]
    try:
        made = make(stand_ins)
    except UnsupportedError:
        return None
    except ModelError as e:
        if has_bodies:
            return None
        if not any(isinstance(s, Value) and s.dtype is _STAND_IN for s in slots):
            e.args = (re.sub(rf"\b{_STAND_IN}\b", str(string), str(e)), *e.args[1:])
        raise
    return [s for s in made if isinstance(s, Value)] if all(made) else None


def types_for_strings(values: Sequence[Value]) -> list[TensorType]:
    """The types of a node's outputs.  `values` are its outputs with numbers in place of strings."""
    return [TensorType(string if v.dtype is _STAND_IN else v.dtype, v.shape) for v in values]


def _first_line(error: Exception) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0][:200]
