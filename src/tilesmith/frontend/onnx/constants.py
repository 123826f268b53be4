"""ONNX's operators whose result is known when the model is compiled: constants, ranges, shapes,
windows.
"""

from __future__ import annotations

import math

import numpy as np

from tilesmith.frontend.common.limits import checked_dims
from tilesmith.frontend.common.slots import Result
from tilesmith.frontend.onnx import attributes as at
from tilesmith.frontend.onnx import computed_values
from tilesmith.frontend.onnx.node import OnnxNode
from tilesmith.frontend.onnx.objects import STRING, string_constant, strings_in
from tilesmith.frontend.onnx.registry import onnx_op
from tilesmith.frontend.onnx.tensors import Contents, decode, decode_sparse, element_type
from tilesmith.graph.nodes import Value
from tilesmith.ir import extents
from tilesmith.ir.dtypes import DType, f32, i64
from tilesmith.ir.expr import as_expr
from tilesmith.ir.symbols import as_dim
from tilesmith.ir.types import Dim, same_dim
from tilesmith.ops import slicing
from tilesmith.ops.sizes import Iota

_LARGEST = 1 << 24
"""Most elements of a constant that is made here; a model that asks for more is hostile."""


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
    """A tensor of one value, which takes no memory until its contents are needed."""
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
        dims = dims[start:end]  # both clip, as in Python
    return n.of_dims(dims, (len(dims),))


@onnx_op("Size", since=1)
def size_of(n: OnnxNode) -> Result:
    return n.of_dims((extents.product(n.input(0).type.shape),), ())


@onnx_op("Range", since=11)
def range_of(n: OnnxNode) -> Result:
    n.ignore("stash_type")  # the precision of a float range's steps; here it is the type's own
    bounds = [n.builder.contents(n.input(i)) for i in range(3)]
    if all(v.dtype.is_int for v in map(n.input, range(3))) and all(c is not None for c in bounds):
        start, limit, delta = (n.dim(n.input(i), "start, limit or delta") for i in range(3))
        if isinstance(delta, int) and not (isinstance(start, int) and isinstance(limit, int)):
            return _symbolic_range(n, start, limit, delta)
    if not all(n.is_known(n.input(i)) for i in range(3)):
        start, limit, delta = (n.input(i) for i in range(3))
        if len({v.dtype for v in (start, limit, delta)}) > 1:
            n.bad(f"expected numbers of one type, found {start.type}, {limit.type}, {delta.type}")
        return computed_values.ranged(n, start, limit, delta)
    values = [n.array(n.input(i), what) for i, what in enumerate(("start", "limit", "delta"))]
    if any(v.size != 1 for v in values) or len({v.dtype for v in values}) != 1:
        n.bad(
            "expected three numbers of one type, found "
            f"{', '.join(str(n.input(i).type) for i in range(3))}"
        )
    start, limit, delta = (v.reshape(())[()] for v in values)
    if delta == 0 or not all(math.isfinite(v) for v in (start, limit, delta)):
        n.bad(f"expected finite numbers and a step other than 0, found {start}, {limit}, {delta}")
    if values[0].dtype.kind in "iu":
        count = max(-((int(start) - int(limit)) // int(delta)), 0)
    else:
        count = max(math.ceil((float(limit) - float(start)) / float(delta)), 0)
    _check_size(n, (count,))
    steps = np.arange(count).astype(
        np.float64 if values[0].dtype.kind not in "iu" else values[0].dtype
    )
    wide = np.float64 if values[0].dtype.kind not in "iu" else values[0].dtype
    return n.const(
        (np.asarray(start, wide) + steps * np.asarray(delta, wide)).astype(values[0].dtype)
    )


def _symbolic_range(n: OnnxNode, start: Dim, limit: Dim, delta: int) -> Value:
    """`start`, `start + delta` and so on, up to but not including `limit`."""
    if delta == 0:
        n.bad("delta: expected a step other than 0, found 0")
    length = extents.difference(limit, start) if delta > 0 else extents.difference(start, limit)
    rounded = extents.total((length, abs(delta) - 1))
    count = extents.larger(as_dim(as_expr(rounded) // abs(delta)), 0)
    dtype = n.input(0).dtype
    numbers = n.add(Iota(count))
    if delta != 1:
        numbers = numbers * delta
    if not same_dim(start, 0):
        numbers = numbers + n.of_dims((start,), ())
    return numbers.cast(dtype)


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
    if not x.type.is_static:
        row, column = (n.positions(d, 2, a) for a, d in enumerate(x.type.shape))
        diagonal = (row + k).equals(column)
        return diagonal.cast(dtype)
    rows, columns = n.shape(x)
    _check_size(n, (rows, columns))
    k = max(-rows, min(k, columns))
    return n.const(np.eye(rows, columns, k=k).astype(dtype.numpy))


@onnx_op("NonZero", since=9)
def non_zero(n: OnnxNode) -> Result:
    x = n.input(0)
    if n.known(x) is None:
        y = n.places(x if x.type.rank else n.reshape(x, (1,)))
        return y if x.type.rank else n.add(slicing.Slice((0,), (0,), (0,), (1,)), y)
    array = n.array(x, "X")
    _check_size(n, (int(np.count_nonzero(array)), max(array.ndim, 1)))
    return n.const(np.array(np.nonzero(array), np.int64).reshape(array.ndim, -1))


def _window(n: OnnxNode, coefficients: tuple[float, float, float]) -> Result:
    """a0 - a1 cos(2 pi i / m) + a2 cos(4 pi i / m), in f64, then cast."""
    if not n.is_known(n.input(0)):
        periodic = n.attr_flag("periodic", True)
        dtype = element_type(n.attr_int("output_datatype", 1), "attribute 'output_datatype'")
        return computed_values.window(n, n.input(0), periodic, coefficients, dtype)
    size = int(n.scalar(n.input(0), "size"))
    if size < 0:
        n.bad(f"size: expected at least 0, found {size}")
    _check_size(n, (size,))
    m = size if n.attr_flag("periodic", True) else size - 1
    dtype = element_type(n.attr_int("output_datatype", 1), "attribute 'output_datatype'")
    angle = 2 * np.pi * np.arange(size) / max(m, 1)
    a0, a1, a2 = coefficients
    return n.const((a0 - a1 * np.cos(angle) + a2 * np.cos(2 * angle)).astype(dtype.numpy))


@onnx_op("MelWeightMatrix", since=17)
def mel_weight_matrix(n: OnnxNode) -> Result:
    """Triangular filters over the frequencies of a transform; their corners are evenly spaced in
    mel.
    """
    names = ("num_mel_bins", "dft_length", "sample_rate", "lower_edge_hertz", "upper_edge_hertz")
    if not all(n.is_known(n.input(i)) for i in range(5)):
        dtype = element_type(n.attr_int("output_datatype", 1), "attribute 'output_datatype'")
        operands = [n.input(i) for i in range(5)]
        return computed_values.mel_filters(n, operands[:3], operands[3:], dtype)
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


@onnx_op("HannWindow", since=17)
def hann_window(n: OnnxNode) -> Result:
    return _window(n, (0.5, 0.5, 0.0))


@onnx_op("HammingWindow", since=17)
def hamming_window(n: OnnxNode) -> Result:
    return _window(n, (25 / 46, 21 / 46, 0.0))


@onnx_op("BlackmanWindow", since=17)
def blackman_window(n: OnnxNode) -> Result:
    return _window(n, (0.42, 0.5, 0.08))
