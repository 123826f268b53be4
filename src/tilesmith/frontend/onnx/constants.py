"""ONNX's operators that make tensors: constants, ranges, shapes, windows, filters."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from tilesmith.frontend.common.computed import along
from tilesmith.frontend.common.host_values import string_constant
from tilesmith.frontend.common.limits import checked_dims
from tilesmith.frontend.common.lists import joined, listed
from tilesmith.frontend.common.ranges import ranged
from tilesmith.frontend.common.slots import Result
from tilesmith.frontend.onnx import attributes as at
from tilesmith.frontend.onnx.node import OnnxNode
from tilesmith.frontend.onnx.objects import STRING, strings_in
from tilesmith.frontend.onnx.registry import onnx_op
from tilesmith.frontend.onnx.tensors import Contents, decode, decode_sparse, element_type
from tilesmith.graph.nodes import Value
from tilesmith.ir import extents
from tilesmith.ir.dtypes import DType, f32, f64, i64
from tilesmith.ir.types import Dim
from tilesmith.ops import slicing
from tilesmith.ops.functions import cos, exp, floor, log, maximum, where

_LARGEST = 1 << 24
"""Upper bound on the elements of a constant made here; a model that asks for more is hostile."""


@onnx_op("Constant", since=1)
def constant(n: OnnxNode) -> Result:
    names = n.attributes.names
    if len(names) != 1:
        n.bad(f"expected one attribute with the value, found {', '.join(names) or 'none'}")
    name, what = names[0], f"the value of {n.loc!r}"
    if name == "value":
        tensor = n.attributes.get("value", at.TENSOR)
        if tensor is not None and tensor.data_type == STRING:
            return string_constant(n.builder, strings_in(tensor, what), n.loc)
        return _stored(n, decode(tensor, n.files, what))
    if name == "sparse_value" and n.version >= 11:
        sparse = n.attributes.get("sparse_value", at.SPARSE_TENSOR)
        return _stored(n, decode_sparse(sparse, n.files, what))
    if n.version >= 12:
        if name == "value_float":
            return n.const(n.attr_float(name), f32)
        if name == "value_int":
            return n.const(n.attr_int(name), i64)
        if name == "value_floats":
            return n.const(n.attr_floats(name), f32)
        if name == "value_ints":
            return n.const(n.attr_ints(name), i64)
        if name == "value_string":
            return string_constant(n.builder, np.array(n.attr_string(name), object), n.loc)
        if name == "value_strings":
            return string_constant(n.builder, np.array(n.attr_strings(name), object), n.loc)
    return n.bad(f"has unknown attribute {name!r}")


def _stored(n: OnnxNode, contents: Contents) -> Value:
    return n.builder.lazy_constant(contents.type, contents.data)


def filled(n: OnnxNode, dims: tuple[Dim, ...], value: object, dtype: DType) -> Value:
    """A tensor whose elements are all `value`; takes no memory until its contents are needed."""
    return n.const(value, dtype).expand(*checked_dims(dims, "shape"))


@onnx_op("ConstantOfShape", since=9)
def constant_of_shape(n: OnnxNode) -> Result:
    dims = n.extents(n.input(0), "shape")
    tensor = n.attributes.get("value", at.TENSOR)
    if tensor is None:
        return filled(n, dims, 0, f32)
    contents = decode(tensor, n.files, "attribute 'value'")
    if contents.type.size != 1:
        n.bad(f"attribute 'value': expected one element, found {contents.type}")
    return filled(n, dims, contents.data.array.reshape(()), contents.type.dtype)


@onnx_op("Shape", since=1)
def shape_of(n: OnnxNode) -> Result:
    dims = n.input(0).type.shape
    if n.version >= 15:
        start, end = n.attr_int("start", 0), n.attr_int("end") if n.has("end") else None
        dims = dims[start:end]  # both ends are clipped, as in Python
    return n.of_dims(dims, (len(dims),))


@onnx_op("Size", since=1)
def size_of(n: OnnxNode) -> Result:
    return n.of_dims((extents.product(n.input(0).type.shape),), ())


@onnx_op("Range", since=11)
def range_of(n: OnnxNode) -> Result:
    # `stash_type` is the type in which ONNX adds the steps of a float range.  Here this is the type
    # of the range.
    n.ignore("stash_type")
    return ranged(n, [n.input(i) for i in range(3)])


def _check_size(n: OnnxNode, dims: tuple[int, ...]) -> None:
    if math.prod(dims) > _LARGEST:
        n.unsupported(f"a constant of {math.prod(dims)} elements; at most {_LARGEST}")


@onnx_op("EyeLike", since=9)
def eye_like(n: OnnxNode) -> Result:
    x = n.input(0)
    if x.type.rank != 2:
        n.bad(f"expected a matrix, found {x.type}")
    dtype = element_type(n.attr_int("dtype"), "attribute 'dtype'") if n.has("dtype") else x.dtype
    k = n.attr_int("k", 0)
    row, column = (n.positions(d, 2, a) for a, d in enumerate(x.type.shape))
    return where((row + k).equals(column), n.const(1, dtype), n.const(0, dtype))


@onnx_op("NonZero", since=9)
def non_zero(n: OnnxNode) -> Result:
    x = n.input(0)
    y = n.places(x if x.type.rank else n.reshape(x, (1,)))
    return y if x.type.rank else n.add(slicing.Slice((0,), (0,), (0,), (1,)), y)


def _window(n: OnnxNode, coefficients: tuple[float, float, float]) -> Result:
    """The window a0 - a1 cos(2 pi i / m) + a2 cos(4 pi i / m), computed in f64, then cast."""
    dtype = element_type(n.attr_int("output_datatype", 1), "attribute 'output_datatype'")
    points = listed(n.input(0))
    (length,) = n.measured(points)
    m = maximum(points if n.attr_flag("periodic", True) else points - 1, 1).cast(f64)
    angle = (n.positions(length).cast(f64) * (2 * math.pi)) / m
    a0, a1, a2 = coefficients
    value = a0 - cos(angle) * a1
    if a2:
        value = value + cos(angle * 2.0) * a2
    return value.cast(dtype)


@onnx_op("MelWeightMatrix", since=17)
def mel_weight_matrix(n: OnnxNode) -> Result:
    """Triangular filters over frequencies, with corners at even distances in mel."""
    names = ("num_mel_bins", "dft_length", "sample_rate", "lower_edge_hertz", "upper_edge_hertz")
    if not all(n.is_known(n.input(i)) for i in range(5)):
        dtype = element_type(n.attr_int("output_datatype", 1), "attribute 'output_datatype'")
        operands = [n.input(i) for i in range(5)]
        return _mel_filters(n, operands[:3], operands[3:], dtype)
    bins, length, rate, *edges = (n.scalar(n.input(i), what) for i, what in enumerate(names))
    bins, length, rate = int(bins), int(length), int(rate)
    low, high = (float(e) for e in edges)
    dtype = element_type(n.attr_int("output_datatype", 1), "attribute 'output_datatype'")
    if bins < 1 or length < 1 or rate < 1 or not 0 <= low <= high <= rate / 2:
        n.bad(
            "expected positive sizes and edges from 0 to half the rate, found "
            f"{bins}, {length}, {rate}, {low}, {high}"
        )
    rows = length // 2 + 1
    _check_size(n, (rows, bins))
    first, last = (2595 * math.log10(1 + e / 700) for e in (low, high))
    mel = np.arange(bins + 2) * ((last - first) / (bins + 2)) + first
    corners = ((length + 1) * (700 * (10 ** (mel / 2595) - 1)) // rate).astype(int)
    matrix = np.zeros((rows, bins))
    for i, (start, centre, end) in enumerate(zip(corners, corners[1:], corners[2:], strict=False)):
        rising, falling = np.arange(start, centre + 1), np.arange(centre, end)
        matrix[rising, i] = (rising - start) / (centre - start) if centre > start else 1
        if end > centre:
            matrix[falling, i] = (end - falling) / (end - centre)
    return n.const(matrix.astype(dtype.numpy))


def _mel_filters(
    n: OnnxNode, sizes: Sequence[Value], edges: Sequence[Value], dtype: DType
) -> Value:
    """The matrix of triangular filters for computed (bins, length, rate) and edges in Hz."""
    bins, length, rate = (listed(v) for v in sizes)
    low, high = (listed(v, f64) for v in edges)
    rows, columns = n.measured(joined(length / 2 + 1, bins))
    first, last = (log(edge / 700.0 + 1.0) * (2595 / math.log(10)) for edge in (low, high))
    width = (last - first) / (bins + 2).cast(f64)

    def corner(offset: int) -> Value:
        mel = (n.positions(columns) + offset).cast(f64) * width + first
        hertz = (exp(mel * (math.log(10) / 2595)) - 1.0) * 700.0
        place = floor((length + 1).cast(f64) * hertz / rate.cast(f64))
        return along(place, 1, 2)

    start, centre, end = (corner(i) for i in range(3))
    bin_of = along(n.positions(rows).cast(f64), 0, 2)
    up = where(start < centre, (bin_of - start) / maximum(centre - start, 1.0), bin_of * 0.0 + 1.0)
    down = (end - bin_of) / maximum(end - centre, 1.0)
    zero = bin_of * 0.0
    rising = where((start < bin_of + 1.0) & (bin_of < centre + 1.0), up, zero)
    falls = (centre < bin_of + 1.0) & (bin_of < end)
    return where(falls, down, rising).cast(dtype)


@onnx_op("HannWindow", since=17)
def hann_window(n: OnnxNode) -> Result:
    return _window(n, (0.5, 0.5, 0.0))


@onnx_op("HammingWindow", since=17)
def hamming_window(n: OnnxNode) -> Result:
    return _window(n, (25 / 46, 21 / 46, 0.0))


@onnx_op("BlackmanWindow", since=17)
def blackman_window(n: OnnxNode) -> Result:
    return _window(n, (0.42, 0.5, 0.08))
