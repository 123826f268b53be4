"""Import of an ONNX model as a Graph."""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import count
from typing import Any

import numpy as np

from tilesmith.frontend.common.errors import errors_name
from tilesmith.frontend.common.external import ExternalFiles
from tilesmith.frontend.common.folding import FoldingBuilder
from tilesmith.frontend.common.host_values import as_value, tensor_of
from tilesmith.frontend.common.inputs import Declared, Given, fixed, input_types
from tilesmith.frontend.common.slots import FAILED, Absent, TensorList
from tilesmith.frontend.common.source import Source
from tilesmith.frontend.onnx.importer import Frame, OnnxImporter, domain_of, opsets_of
from tilesmith.frontend.onnx.joined import joined
from tilesmith.frontend.onnx.proto import newest_opset, read_model, text
from tilesmith.frontend.onnx.registry import FAMILIAR_OPSET, OLDEST_OPSET
from tilesmith.frontend.onnx.structure import node_name
from tilesmith.frontend.onnx.tensors import Contents, element_type
from tilesmith.frontend.onnx.types import host_type_of
from tilesmith.graph.nodes import Graph, Value
from tilesmith.graph.passes.dce import dce
from tilesmith.ir.dtypes import string
from tilesmith.ir.extents import are_equal
from tilesmith.ir.sizes import LARGEST
from tilesmith.support.errors import ModelError, UnsupportedError, UsageError
from tilesmith.support.logs import logger

_log = logger("sizes")

_SHOWN = 8
"""Upper bound on the initializers that a message lists."""

_ANONYMOUS = ("?", "_", "-1", "*")
"""Exporters' names for unnamed open dimensions.  Each use is a dimension of its own."""


def load(source: Source, given: Given) -> Graph:
    """The graph of an ONNX model (see `frontend.load`)."""
    model, weights = read_model(source)
    name = source.name or (model.graph.name if isinstance(model.graph.name, str) else "")
    with errors_name(name):
        return _graph(
            model, weights, given, ExternalFiles(source.folder, source.opened, source.home)
        )


def nodes(source: Source) -> list[tuple[str, str]]:
    """The names and operators of the nodes of an ONNX model."""
    model, _ = read_model(source)
    listed = ((n, domain_of(n), text(n.op_type, "an operator's name")) for n in model.graph.node)
    return [(node_name(n), f"{domain}.{op}" if domain else op) for n, domain, op in listed]


def _graph(
    model: Any,
    weights: Mapping[int, np.ndarray],
    given: Given,
    files: ExternalFiles,
) -> Graph:
    _check_model(model)
    frame = Frame(opsets=_checked_opsets(model))
    proto = model.graph
    builder = FoldingBuilder(text(proto.name, "the graph's name") or "main", given.for_training)
    builder.without_dropout = given.without_dropout
    importer = OnnxImporter(
        builder, files, model.functions, given.fallback, given.in_place, given.weights
    )
    importer.initializers(proto, frame, frozenset(given.values), weights, frozenset(given.optional))
    _check_optional(given, proto, frame, importer.defaults)
    stored = {*frame.names, *importer.defaults}
    inputs = [_declared(i) for i in proto.input if text(i.name, "an input's name") not in stored]
    values = fixed(inputs, given.values)
    for dimension in joined(proto, inputs):
        given.symbols.declare(dimension, 0, LARGEST)
    types = input_types(inputs, given, values)
    for declared in inputs:
        name = declared.name
        if not name or name in frame.names:
            raise ModelError(f"two inputs are named {name!r}; names must be there and unique")
        if name in values:
            frame.names[name] = builder.constant(values[name])
        else:
            frame.names[name] = builder.input(name, types[name])
    for name in given.optional:
        frame.names[name] = builder.input(name, importer.defaults[name].type)
    importer.body(proto.node, frame, "graph")
    outputs: list[Value] = []
    for o in proto.output:
        output_name = text(o.name, "an output's name")
        if output_name not in frame:
            raise ModelError(f"output {output_name!r} is defined by no node, input or initializer")
        value = frame.find(output_name)
        if isinstance(value, (TensorList, Absent)):
            value = as_value(builder, value, output_name)
        if isinstance(value, Value):
            _check_declared(o, value, bool(given.shapes or values))
            outputs.append(value)
        elif value is not FAILED:
            raise ModelError(f"output {output_name!r} has no value")
    importer.check()
    if not outputs:
        raise ModelError("expected at least one output, found none")
    graph = builder.finish(outputs, _distinct([o.name for o in proto.output]))
    first = len(graph.inputs) - len(given.optional)
    defaults = ((first + i, importer.defaults[n].data) for i, n in enumerate(given.optional))
    return dce(replace(graph, defaults=tuple(defaults)))


def _check_optional(
    given: Given, proto: Any, frame: Frame, defaults: Mapping[str, Contents]
) -> None:
    """Raises UsageError for names that are not names of stored tensors of numbers."""
    for name in given.optional:
        if name in given.values:
            raise UsageError(f"{name!r} is fixed by values=: it can't be optional as well")
        if name in defaults:
            continue
        if name in frame.names:
            raise UsageError(f"optional: initializer {name!r} holds no numbers that can be given")
        stored = [t.name for t in proto.initializer]
        near = difflib.get_close_matches(name, stored, n=1)
        also = [i.name for i in proto.input if i.name in set(stored)]
        listed = ", ".join(map(repr, also[:_SHOWN])) + (", ..." if len(also) > _SHOWN else "")
        hint = f"; did you mean {near[0]!r}?" if near else ""
        raise UsageError(
            f"optional: the model has no initializer {name!r}{hint}; those that it lists as inputs "
            f"are {listed or 'none'}"
        )


def _distinct(names: Sequence[str]) -> list[str]:
    """The names of outputs.  A repeated name gets the next free number."""
    taken, distinct = set(names), list[str]()
    for name in names:
        own = name
        if name in distinct:
            numbered = (f"{name}_{i}" for i in count(2))
            own = next(n for n in numbered if n not in taken)
        taken.add(own)
        distinct.append(own)
    return distinct


def _check_model(model: Any) -> None:
    if not model.HasField("graph") or not (model.graph.node or model.graph.output):
        raise ModelError("expected an ONNX model, found one without a graph")
    if model.ir_version < 1:
        raise ModelError(f"expected ir_version >= 1, found {model.ir_version}")


def _checked_opsets(model: Any) -> dict[str, int]:
    opsets = opsets_of(model)
    if not opsets:
        raise ModelError("expected opset_import to name an operator set, found none")
    version = opsets.get("")
    if version is None or OLDEST_OPSET <= version <= FAMILIAR_OPSET:
        return opsets
    newest = newest_opset()
    if not OLDEST_OPSET <= version <= newest:
        raise UnsupportedError(
            f"the model uses opset {version}; supported are {OLDEST_OPSET} to {newest} "
            "(the newest that the installed onnx package knows)"
        )
    return opsets


def _declared(value_info: Any) -> Declared:
    """An input as declared.  Raises ModelError or UnsupportedError if it is not a tensor."""
    what = f"input {value_info.name!r}"
    kind = value_info.type.WhichOneof("value")
    if kind is None:
        raise ModelError(f"{what} has no type")
    dtype = host_type_of(value_info.type, what)
    if kind != "tensor_type":
        return Declared(value_info.name, dtype, ())
    tensor = value_info.type.tensor_type
    if not tensor.HasField("shape") and dtype is string:
        return Declared(value_info.name, tensor_of(string), ())
    if not tensor.HasField("shape"):
        return Declared(value_info.name, dtype, None)
    dims: list[int | str] = []
    for d in tensor.shape.dim:
        if d.WhichOneof("value") == "dim_value":
            dims.append(int(d.dim_value) if d.dim_value >= 0 else "")  # -1 stands for any size
        else:
            name = text(d.dim_param, "a dimension's name")
            dims.append("" if name in _ANONYMOUS else name)
    return Declared(value_info.name, dtype, tuple(dims))


def _check_declared(value_info: Any, value: Value, overridden: bool) -> None:
    """Raises ModelError when an output's declared element type is not the one that was inferred.

    A shape that differs from the inferred one causes only a warning.  Exporters write declared
    shapes from given names of dimensions, and no node depends on them.
    """
    if (
        value_info.type.WhichOneof("value") != "tensor_type"
        or not value_info.type.tensor_type.elem_type
    ):
        return
    what = f"output {value_info.name!r}"
    declared = element_type(value_info.type.tensor_type.elem_type, what, strings=True)
    if value.dtype is not string and value.dtype.is_host:
        return  # sizes of a host value are known only at run time
    if declared is not value.dtype:
        raise ModelError(f"{what} is declared as {declared}, but the model computes {value.type}")
    if not value_info.type.tensor_type.HasField("shape") or overridden:
        return
    dims = [
        d.dim_value if d.WhichOneof("value") == "dim_value" else None
        for d in value_info.type.tensor_type.shape.dim
    ]
    agree = len(dims) == value.type.rank and all(
        d is None or d < 0 or are_equal(n, d) is not False
        for d, n in zip(dims, value.shape, strict=True)
    )
    if not agree:
        shown = f"[{','.join('?' if d is None else str(d) for d in dims)}]"
        _log.warning(
            "%s is declared as %s%s, but the model computes %s: the declaration is not used",
            what, declared, shown, value.type,
        )  # fmt: skip
