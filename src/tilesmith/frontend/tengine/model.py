"""Tengine's `.tmfile`, version 2: tables that refer to one another by offsets.

    header    version, offset of the model
    model     offsets of its subgraphs, of which there is one
    subgraph  layouts, offsets of nodes, tensors and buffers
    node      numbers of its inputs and outputs, offset of its operator
    operator  number of its kind, offset of its parameters
    tensor    kind, element type, dims, number of its buffer

A vector is a count and as many offsets or numbers.  Offset 0 stands for nothing.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from tilesmith.frontend.common.inputs import Declared
from tilesmith.frontend.common.networks import Layer, Network
from tilesmith.frontend.common.source import Source
from tilesmith.ir.dtypes import f32
from tilesmith.support.cursor import Cursor
from tilesmith.support.errors import ModelError, UnsupportedError

_CONSTANT_NODE, _INPUT_NODE = 4, 12
_CONSTANT = 2
"""The kind of a tensor that the file stores."""

_DTYPES = {0: "<f4", 1: "<f2", 2: "i1", 3: "u1", 4: "<i4", 5: "<i2"}
_F32 = 0

_WINDOW = "kernel_h kernel_w stride_h stride_w"
_PADS = "pad_h0 pad_w0 pad_h1 pad_w1"
OPERATORS: dict[int, tuple[str, str]] = {
    1: ("BatchNormalize", "rescale_factor:f eps:f caffe_flavor"),
    3: ("Concat", "axis"),
    5: (
        "Convolution",
        f"{_WINDOW} dilation_h dilation_w input_channel output_channel group activation {_PADS}",
    ),
    8: ("Dropout", ""),
    9: ("Eltwise", "type caffe_flavor shift:f power:f scale:f"),
    10: ("Flatten", "axis end_axis"),
    11: ("FullyConnected", "num_output"),
    13: ("Lrn", "local_size alpha:f beta:f norm_region k:f"),
    16: ("Pooling", f"pool_method {_WINDOW} global caffe_flavor {_PADS}"),
    17: ("PReLU", ""),
    20: ("ReLU", "negative_slope:f"),
    21: ("ReLU6", ""),
    23: ("Reshape", "is_mxnet reverse re_shape is_onnx"),
    26: ("Scale", "axis num_axes bias_term"),
    28: ("Softmax", "axis"),
    36: ("Tanh", ""),
    37: ("Sigmoid", ""),
    66: ("InstanceNorm", "eps:f"),
    74: ("BroadMul", ""),
    107: ("LayerNorm", "eps:f"),
}
"""By the number in a file: the name that Tengine has for an operator, and its parameters.  They are
of 32 bits: an f32 if `:f` follows the name, otherwise an integer.  `re_shape` is an offset.
"""


class _File:
    """Parts of a file, by their offsets."""

    def __init__(self, content: memoryview) -> None:
        self._content = content

    def at(self, offset: int) -> Cursor:
        return Cursor(self._content, ".tmfile", offset)

    def table(self, offset: int, codes: str, what: str) -> tuple[Any, ...]:
        """The fields of a table; `codes` are their types in `struct`."""
        return self.at(offset).numbers(codes, what)

    def vector(self, offset: int, what: str, code: str = "I") -> tuple[int, ...]:
        if not offset:
            return ()
        cursor = self.at(offset)
        return cursor.numbers(f"{cursor.number('I', what)}{code}", what)

    def text(self, offset: int, what: str) -> str:
        if not offset:
            return ""
        size, place = self.table(offset, "II", what)
        stored = bytes(self.at(place).bytes(size, what))
        return stored.rstrip(b"\0").decode("utf-8", "replace")


@dataclass(frozen=True, slots=True)
class _Tensor:
    """A tensor.

    name: its name in the file, with a number behind it if another tensor has the name, too.
    dims: its shape; empty if the file leaves it open.
    contents: reads a constant; None for other tensors.
    """

    name: str
    dims: tuple[int, ...]
    contents: Callable[[], np.ndarray] | None


def read(source: Source) -> Network:
    """The network.  Raises ModelError for damaged files, and UnsupportedError for quantised models
    and for those with channels last.
    """
    assert source.content is not None
    file = _File(memoryview(source.content))
    (root,) = file.table(8, "I", "the header")
    _, _, subgraphs, _ = file.table(root, "iiII", "the model")
    graphs = file.vector(subgraphs, "subgraphs")
    if len(graphs) != 1:
        raise ModelError(f".tmfile: expected one subgraph, found {len(graphs)}")
    _, *layouts, ins, outs, nodes, tensors, buffers, _, _ = file.table(
        graphs[0], "IiiIIIIIII", "the subgraph"
    )
    if any(layouts):
        raise UnsupportedError("a .tmfile with channels last; convert the model with layout NCHW")
    stored = file.vector(buffers, "buffers")
    values = _tensors(file, file.vector(tensors, "tensors"), stored)
    layers: dict[int, Layer] = {}
    ends: dict[int, tuple[str, ...]] = {}
    for place in file.vector(nodes, "nodes"):
        number, layer = _layer(file, place, values)
        if number in ends:
            raise ModelError(f".tmfile: node number {number} is that of two nodes")
        ends[number] = layer.outputs
        if layer.kind not in (_kind(_CONSTANT_NODE), _kind(_INPUT_NODE)):
            layers[number] = layer
    inputs = _named(ends, file.vector(ins, "inputs"), "input")
    outputs = _named(ends, file.vector(outs, "outputs"), "output")
    by_name = {t.name: t for t in values}
    return Network(
        "Tengine",
        tuple(Declared(name, f32, by_name[name].dims or None) for name in inputs),
        {name: name for name in outputs},
        tuple(layers.values()),
        {t.name: t.contents for t in values if t.contents is not None},
        is_resizable=True,
    )


def _named(ends: dict[int, tuple[str, ...]], numbers: Sequence[int], what: str) -> list[str]:
    """The results of nodes."""
    missing = [n for n in numbers if n not in ends]
    if missing:
        raise ModelError(f".tmfile: {what} node {missing[0]} is not in the file")
    return [name for n in numbers for name in ends[n]]


def _tensors(file: _File, places: Sequence[int], buffers: Sequence[int]) -> list[_Tensor]:
    result: list[_Tensor] = []
    names: set[str] = set()
    for place in places:
        _, buffer, dims, name, _, _, kind, type_ = file.table(place, "IIIIIiii", "a tensor")
        number = len(result)
        called = file.text(name, f"the name of tensor {number}") or f"tensor{number}"
        while called in names:
            called = f"{called}#{number}"
        names.add(called)
        shape = file.vector(dims, f"the shape of tensor {called}", "i")
        if kind != _CONSTANT:
            if type_ != _F32:
                raise UnsupportedError(
                    f"tensor {called}: expected elements of f32, found type {type_}"
                )
            result.append(_Tensor(called, shape if min(shape, default=0) > 0 else (), None))
            continue
        if buffer >= len(buffers) or type_ not in _DTYPES or min(shape, default=0) < 0:
            raise ModelError(
                f"tensor {called}: expected a shape, a type from 0 to {max(_DTYPES)} and a buffer "
                f"below {len(buffers)}, found {list(shape)}, {type_} and {buffer}"
            )
        contents = partial(
            _contents, file, buffers[buffer], called, shape, np.dtype(_DTYPES[type_])
        )
        result.append(_Tensor(called, shape, contents))
    return result


def _contents(
    file: _File, place: int, name: str, shape: tuple[int, ...], dtype: np.dtype
) -> np.ndarray:
    size, offset = file.table(place, "II", f"the buffer of tensor {name}")
    if not offset:
        raise ModelError(
            f"tensor {name}: the file has no contents for it, like Tengine's files for benchmarks"
        )
    if size < dtype.itemsize * math.prod(shape):
        raise ModelError(
            f"tensor {name}: expected {dtype.itemsize * math.prod(shape)} bytes, found {size}"
        )
    return file.at(offset).array(dtype, shape, f"tensor {name}")


def _kind(number: int) -> str:
    return OPERATORS[number][0] if number in OPERATORS else f"operator {number}"


def _layer(file: _File, place: int, tensors: Sequence[_Tensor]) -> tuple[int, Layer]:
    """A node's number, and the node."""
    number, reads, makes, operator, name, _ = file.table(place, "6I", "a node")
    called = file.text(name, f"the name of node {number}") or f"node{number}"
    _, kind, params = file.table(operator, "3I", f"the operator of node {called}")
    ends = [file.vector(v, f"the tensors of node {called}") for v in (reads, makes)]
    for index in (*ends[0], *ends[1]):
        if index >= len(tensors):
            raise ModelError(f"node {called}: expected tensors below {len(tensors)}, found {index}")
    fields = OPERATORS[kind][1].split() if kind in OPERATORS else []
    codes = "".join("f" if field.endswith(":f") else "i" for field in fields)
    numbers = file.table(params, codes, f"the parameters of node {called}") if params else ()
    attributes: dict[str, Any] = {
        field.removesuffix(":f"): n for field, n in zip(fields, numbers, strict=False)
    }
    if "re_shape" in attributes:
        what = f"the shape of node {called}"
        attributes["re_shape"] = file.vector(attributes["re_shape"] & 0xFFFFFFFF, what, "i")
    inputs, outputs = (tuple(tensors[i].name for i in end) for end in ends)
    return number, Layer(_kind(kind), called, inputs, outputs, attributes)
