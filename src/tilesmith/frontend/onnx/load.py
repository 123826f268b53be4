"""From an ONNX model to a Graph: `load` is the frontend's one entry."""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np

from tilesmith.frontend.onnx import registry
from tilesmith.frontend.onnx.errors import ValuesNeededError
from tilesmith.frontend.onnx.external import ExternalFiles
from tilesmith.frontend.onnx.importer import Frame, Importer, opsets_of
from tilesmith.frontend.onnx.problems import report
from tilesmith.frontend.onnx.proto import ModelSource, Source, newest_opset, read_model, text
from tilesmith.frontend.onnx.slots import FAILED, TensorList
from tilesmith.frontend.onnx.tensors import checked_shape, element_type
from tilesmith.graph.builder import Builder, array_type
from tilesmith.graph.nodes import Graph, Value
from tilesmith.graph.passes.dce import dce
from tilesmith.ir.types import TensorType
from tilesmith.support.errors import ModelError, UnsupportedError

Shapes: TypeAlias = "Mapping[str, Sequence[int] | int]"


def load(
    source: ModelSource,
    shapes: Shapes | None = None,
    values: Mapping[str, np.ndarray] | None = None,
    opened: set[str] | None = None,
) -> Graph:
    """The graph of an ONNX model: a path, the file's bytes, or an `onnx.ModelProto`.

    `shapes` gives the shapes of inputs whose dimensions the model leaves open, by input name
    (`{"x": (1, 3, 224, 224)}`) or by the name of a dimension (`{"batch": 1}`). `values` fixes
    inputs to constants: they are no inputs of the graph any more (for models whose shapes depend
    on an input's value).  `opened` takes in the names of the files of external data.

    Raises ModelError when the model is damaged, inconsistent or needs `shapes`; UnsupportedError,
    which lists every node that cannot be imported; its subclass ValuesNeededError when `values`
    would help.
    """
    found = read_model(source)
    name = found.name or "the model"
    try:
        files = ExternalFiles(found.folder, opened)
        return _load(found, name, dict(shapes or {}), dict(values or {}), files)
    except ValuesNeededError as e:
        raise ValuesNeededError(_message(name, e), e.inputs) from None
    except UnsupportedError as e:
        raise UnsupportedError(_message(name, e)) from None
    except ModelError as e:
        raise ModelError(_message(name, e)) from None
    except RecursionError:
        raise ModelError(f"{name}: functions or sub-graphs stand too deep in one another") from None


def _message(name: str, error: Exception) -> str:
    """The error on one line, after the model's name; names in it may hold anything."""
    message = str(error) if str(error).startswith(name) else f"{name}: {error}"
    return "".join(c if c.isprintable() else repr(c)[1:-1] for c in message)


def _load(
    source: Source,
    name: str,
    shapes: dict[str, Any],
    values: dict[str, np.ndarray],
    files: ExternalFiles,
) -> Graph:
    model = source.model
    opsets = _checked_opsets(model)
    proto = model.graph
    builder = Builder(text(proto.name, "the graph's name") or "main")
    importer = Importer(builder, files, model.functions)
    frame = Frame(opsets)
    importer.initializers(proto, frame, frozenset(values), source.weights)
    stored = set(frame.names)
    inputs = [i for i in proto.input if text(i.name, "an input's name") not in stored]
    types = _input_types(inputs, shapes, values)
    for value_info in inputs:
        input_name = value_info.name
        if not input_name or input_name in frame.names:
            raise ModelError(f"two inputs are named {input_name!r}; names must be there and unique")
        if input_name in values:
            frame.names[input_name] = importer.constant(values[input_name])
        else:
            frame.names[input_name] = builder.input(input_name, types[input_name])
    importer.body(proto.node, frame, "graph")
    outputs: list[Value] = []
    for o in proto.output:
        output_name = text(o.name, "an output's name")
        if output_name not in frame:
            raise ModelError(f"output {output_name!r} is defined by no node, input or initializer")
        value = frame.find(output_name)
        if isinstance(value, Value):
            _check_declared(o, value, bool(shapes or values))
            outputs.append(value)
        elif isinstance(value, TensorList):
            raise UnsupportedError(
                f"output {output_name!r} is a sequence; only tensors are supported"
            )
        elif value is not FAILED:
            raise ModelError(f"output {output_name!r} has no value")
    if importer.problems:
        raise report(importer.problems, name)
    if not outputs:
        raise ModelError("expected at least one output, found none")
    return dce(builder.finish(outputs, [o.name for o in proto.output]))


def _checked_opsets(model: Any) -> dict[str, int]:
    opsets = opsets_of(model)
    if not opsets:
        raise ModelError("expected opset_import to name an operator set, found none")
    newest = newest_opset()
    version = opsets.get("")
    if version is not None and not registry.OLDEST_OPSET <= version <= newest:
        raise UnsupportedError(
            f"the model uses opset {version}; supported are {registry.OLDEST_OPSET} to {newest} "
            "(the newest that the installed onnx package knows)"
        )
    return opsets


def _input_types(
    inputs: Sequence[Any], shapes: dict[str, Any], values: dict[str, np.ndarray]
) -> dict[str, TensorType]:
    """Types of the graph's inputs, open dimensions filled in from `shapes` and `values`."""
    names = [text(i.name, "an input's name") for i in inputs]
    symbols: dict[str, int] = {}
    for v in values:
        _check_name(v, names, names, "values")
    dims_of = {i.name: _dims(i) for i in inputs}
    dim_names = sorted(
        {d for dims in dims_of.values() for d in dims or () if isinstance(d, str) and d}
    )
    for key, given in shapes.items():
        _check_name(key, [*names, *dim_names], names, "shapes")
        if key in names:
            if isinstance(given, int):
                raise ModelError(f"shapes[{key!r}]: expected a list of dimensions, found {given}")
            _bind(key, dims_of[key], tuple(int(d) for d in given), symbols)
        elif not isinstance(given, int) or given < 0:
            raise ModelError(
                f"shapes[{key!r}]: expected a number for dimension {key!r}, found {given!r}"
            )
        elif symbols.setdefault(key, given) != given:
            raise ModelError(f"dimension {key!r} is given as {symbols[key]} and as {given}")
    for key, array in values.items():
        _bind(key, dims_of[key], array.shape, symbols)
    types: dict[str, TensorType] = {}
    open_inputs: list[str] = []
    for i in inputs:
        what = f"input {i.name!r}"
        element = element_type(i.type.tensor_type.elem_type, what)
        given = values[i.name].shape if i.name in values else shapes.get(i.name)
        if given is None:
            dims = dims_of[i.name]
            given = (
                None
                if dims is None
                else [symbols.get(d, d) if isinstance(d, str) else d for d in dims]
            )
        if given is None or any(isinstance(d, str) for d in given):
            shown = (
                "unknown rank" if given is None else f"[{', '.join(str(d or '?') for d in given)}]"
            )
            open_inputs.append(
                f"{i.name!r}: {element}{shown if given is not None else ' of ' + shown}"
            )
            continue
        types[i.name] = TensorType(element, checked_shape(given, what))
        if i.name in values and array_type(values[i.name]) != types[i.name]:
            raise ModelError(
                f"values[{i.name!r}]: expected {types[i.name]}, found {array_type(values[i.name])}"
            )
    if open_inputs:
        first = open_inputs[0].split("'")[1]
        raise ModelError(
            f"inputs have dimensions that the model leaves open: {'; '.join(open_inputs)}. "
            "Give their shapes: "
            f"shapes={{{first!r}: (1, ...)}}, or --shape {first}=1,... on the command line"
        )
    return types


def _dims(value_info: Any) -> list[int | str] | None:
    """Declared dimensions:

    a number, the name of an open one ("" if it has none); None when the rank is open.
    """
    what = f"input {value_info.name!r}"
    kind = value_info.type.WhichOneof("value")
    if kind is None:
        raise ModelError(f"{what} has no type")
    if kind != "tensor_type":
        raise UnsupportedError(
            f"{what} is a {kind.removesuffix('_type')}; only tensors are supported"
        )
    if not value_info.type.tensor_type.HasField("shape"):
        return None
    dims: list[int | str] = []
    for d in value_info.type.tensor_type.shape.dim:
        if d.WhichOneof("value") == "dim_value":
            if d.dim_value < 0:
                raise ModelError(f"{what}: expected dimensions >= 0, found {d.dim_value}")
            dims.append(int(d.dim_value))
        else:
            dims.append(text(d.dim_param, "a dimension's name"))
    return dims


def _bind(
    name: str, dims: list[int | str] | None, given: tuple[int, ...], symbols: dict[str, int]
) -> None:
    """Checks a given shape against the declared one and notes what open dimensions become."""
    if dims is None:
        return
    shown = f"[{', '.join(str(d or '?') for d in dims)}]"
    if len(dims) != len(given):
        raise ModelError(
            f"input {name!r}: expected {len(dims)} dimensions {shown}, found {list(given)}"
        )
    for d, n in zip(dims, given, strict=True):
        if isinstance(d, int) and d != n:
            raise ModelError(f"input {name!r}: expected shape {shown}, found {list(given)}")
        if isinstance(d, str) and d and symbols.setdefault(d, n) != n:
            raise ModelError(
                f"dimension {d!r} is given as {symbols[d]} and, by input {name!r}, as {n}"
            )


def _check_name(key: str, valid: list[str], inputs: list[str], what: str) -> None:
    if key not in valid:
        near = difflib.get_close_matches(key, valid, n=1)
        hint = f"; did you mean {near[0]!r}?" if near else ""
        raise ModelError(f"{what}: no input is named {key!r}; inputs are {', '.join(inputs)}{hint}")


def _check_declared(value_info: Any, value: Value, overridden: bool) -> None:
    """The model's own claim about an output must agree with what was inferred."""
    if (
        value_info.type.WhichOneof("value") != "tensor_type"
        or not value_info.type.tensor_type.elem_type
    ):
        return
    what = f"output {value_info.name!r}"
    declared = element_type(value_info.type.tensor_type.elem_type, what)
    if declared is not value.dtype:
        raise ModelError(f"{what} is declared as {declared}, but the model computes {value.type}")
    if not value_info.type.tensor_type.HasField("shape") or overridden:
        return
    dims = [
        d.dim_value if d.WhichOneof("value") == "dim_value" else None
        for d in value_info.type.tensor_type.shape.dim
    ]
    agree = len(dims) == value.type.rank and all(
        d is None or n == d for d, n in zip(dims, value.shape, strict=True)
    )
    if not agree:
        shown = f"[{','.join('?' if d is None else str(d) for d in dims)}]"
        raise ModelError(
            f"{what} is declared as {declared}{shown}, but the model computes {value.type}"
        )
