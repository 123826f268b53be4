"""NNVM's graphs, TVM's format before Relay, as Relay programs.

A graph is a JSON object with nodes, the numbers of the nodes that are arguments, and the results.
A node has an operator, attributes (texts) and inputs (number of a node, number of its result).
"""

from __future__ import annotations

import ast
import json
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from tilesmith.ir.dtypes import DType, f32
from tilesmith.support.errors import DAMAGED, ModelError

from . import syntax as sx
from .node import OPERATORS
from .parse import element_type

_NAMES = {
    "elemwise_add": "add", "elemwise_sub": "subtract", "elemwise_mul": "multiply",
    "elemwise_div": "divide", "elemwise_pow": "power", "elemwise_mod": "mod",
    "elemwise_max": "maximum", "elemwise_min": "minimum", "broadcast_add": "add",
    "broadcast_sub": "subtract", "broadcast_mul": "multiply", "broadcast_div": "divide",
    "broadcast_pow": "power", "broadcast_mod": "mod", "broadcast_max": "maximum",
    "broadcast_min": "minimum", "broadcast_equal": "equal", "broadcast_not_equal": "not_equal",
    "broadcast_greater": "greater", "broadcast_less": "less",
    "broadcast_greater_equal": "greater_equal", "broadcast_less_equal": "less_equal",
    "flip": "reverse", "pad": "nn.pad", "flatten": "nn.batch_flatten", "resize": "image.resize2d",
    "block_grad": "copy", "matmul": "nn.matmul", "layout_transform": "layout_transform",
    "__layout_transform__": "layout_transform",
}  # fmt: skip
"""Relay's names of operators by NNVM's.  Other operators have the same name, or `nn.` before it."""

_ATTRIBUTES = {
    ("reshape", "shape"): "newshape", ("nn.leaky_relu", "alpha"): "alpha",
    ("strided_slice", "stride"): "strides", ("nn.upsampling", "scale"): "scale_h",
}  # fmt: skip
"""Relay's names of attributes, by Relay's operator and NNVM's name.  Others have the same name."""

_SCALARS = {
    "__add_scalar__": ("add", False), "__sub_scalar__": ("subtract", False),
    "__rsub_scalar__": ("subtract", True), "__mul_scalar__": ("multiply", False),
    "__div_scalar__": ("divide", False), "__rdiv_scalar__": ("divide", True),
    "__pow_scalar__": ("power", False), "__rpow_scalar__": ("power", True),
}  # fmt: skip
"""Operators of a tensor and a number: Relay's operator, and whether the number comes first."""

_SEVERAL = ("nn.batch_norm", "nn.dropout", "split")
"""Operators whose result is a tuple."""


def read_nnvm(content: bytes | memoryview) -> sx.Module:
    """The program of a graph.  Raises ModelError if it is damaged."""
    try:
        graph = json.loads(bytes(content))
        return _module(graph["nodes"], graph["heads"])
    except DAMAGED as e:
        raise ModelError(f"the graph: {type(e).__name__}: {e}") from None


def _module(nodes: Any, heads: Any) -> sx.Module:
    names = _unique(str(node["name"]) for node in nodes)
    results: list[sx.Expr | None] = []  # None for a tuple of results
    parameters: list[tuple[str, sx.Type]] = []
    bindings: list[tuple[str, sx.Expr]] = []

    def value(entry: Any) -> sx.Expr:
        number, index = entry[0], entry[1]
        if not isinstance(number, int) or not isinstance(index, int):
            raise ModelError(f"expected the numbers of a node and of its result, found {entry}")
        if not 0 <= number < len(results):
            raise ModelError(f"node {number} is used before it is defined")
        known = results[number]
        if known is None:
            return sx.Item(sx.Name(names[number]), index)
        if index:
            raise ModelError(f"node {names[number]!r} has no result number {index}")
        return known

    for name, node in zip(names, nodes, strict=True):
        attributes = {k: _value(v) for k, v in (node.get("attrs") or {}).items()}
        if node["op"] == "null":
            parameters.append((name, _type(attributes)))
        else:
            inputs = tuple(value(entry) for entry in node["inputs"])
            bindings.append((name, _call(node["op"], inputs, attributes)))
        is_tuple = _relay(node["op"]) in _SEVERAL
        results.append(None if is_tuple else sx.Name(name))
    outputs = tuple(value(entry) for entry in heads)
    result = outputs[0] if len(outputs) == 1 else sx.Tuple(outputs)
    main = sx.Function(tuple(parameters), sx.Block(tuple(bindings), result))
    return sx.Module({"main": main}, "NNVM")


def _unique(names: Iterable[str]) -> list[str]:
    taken: dict[str, None] = {}
    for name in names:
        own, count = name, 1
        while own in taken:
            count += 1
            own = f"{name}_{count}"
        taken[own] = None
    return [*taken]


def _value(text: Any) -> Any:
    """An attribute's text as a number or a list of numbers; any other text stays."""
    try:
        return _tuples(ast.literal_eval(text))
    except (RecursionError, SyntaxError, TypeError, ValueError):
        return text


def _tuples(value: Any) -> Any:
    return tuple(map(_tuples, value)) if isinstance(value, (list, tuple)) else value


def _type(attributes: Mapping[str, Any]) -> sx.Type:
    shape, dtype = attributes.get("__shape__"), attributes.get("__dtype__", "float32")
    known: DType | None = element_type(str(dtype))
    return sx.Tensor(tuple(map(int, shape)), known or f32) if isinstance(shape, tuple) else None


def _relay(operator: str) -> str:
    name = _NAMES.get(operator, operator)
    return f"nn.{name}" if OPERATORS.find("", f"nn.{name}") is not None else name


def _call(operator: str, inputs: tuple[sx.Expr, ...], attributes: dict[str, Any]) -> sx.Expr:
    if operator in _SCALARS:
        name, is_first = _SCALARS[operator]
        literal = sx.Literal(np.array(attributes["scalar"], np.float32))
        number = sx.Call(sx.Operator("cast_like"), (literal, inputs[0]), {})
        pair = (number, inputs[0]) if is_first else (inputs[0], number)
        return sx.Call(sx.Operator(name), pair, {})
    name = _relay(operator)
    has_bias = attributes.pop("use_bias", False) in (True, 1, "True") and len(inputs) > 2
    if name == "nn.dense" or name.startswith("nn.conv"):
        inputs, bias = inputs[:2], inputs[2:]
    else:
        bias, has_bias = (), False
    if name in ("concatenate", "stack"):
        inputs = (sx.Tuple(inputs),)
    if name == "nn.upsampling" and "scale" in attributes:
        attributes["scale_w"] = float(attributes["scale"])
        attributes["scale"] = float(attributes["scale"])
        method = attributes.get("method", "NEAREST_NEIGHBOR")
        attributes["method"] = str(method).lower()
    renamed = {_ATTRIBUTES.get((name, k), k): v for k, v in attributes.items()}
    if name.startswith("nn.conv") and "layout" in renamed:
        renamed["data_layout"] = renamed.pop("layout")
    call = sx.Call(sx.Operator(name), inputs, renamed)
    if not has_bias:
        return call
    axis = -1 if name == "nn.dense" else str(attributes.get("layout", "NC")).index("C")
    return sx.Call(sx.Operator("nn.bias_add"), (call, *bias), {"axis": axis})
