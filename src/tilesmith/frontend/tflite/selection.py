"""TFLite's operators that look elements up, or whose results depend on the order of elements."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from tilesmith.frontend.common.distinct import groups
from tilesmith.frontend.common.lists import joined, listed
from tilesmith.frontend.common.options import OptionNode
from tilesmith.frontend.common.shaping import gathered
from tilesmith.frontend.common.slots import Result
from tilesmith.frontend.tflite.node import TfliteNode
from tilesmith.frontend.tflite.registry import stored_op, tflite_op
from tilesmith.frontend.tflite.shapes import axis_input
from tilesmith.graph.nodes import Value
from tilesmith.ir import extents
from tilesmith.ir.dtypes import f32, i32, i64
from tilesmith.ir.types import same_dim
from tilesmith.ops import gather, reduce, rules, sort
from tilesmith.ops.functions import where


@stored_op("GATHER")
def gather_slices(n: OptionNode) -> Result:
    x, indices = n.input(0), n.input(1)
    return gathered(n, x, indices, n.axis(n.option("axis"), x.type.rank), n.option("batch_dims"))


@stored_op("GATHER_ND")
def gather_nd(n: OptionNode) -> Result:
    return n.add(gather.GatherNd(0), n.input(0), n.input(1))


@stored_op("ONE_HOT")
def one_hot(n: OptionNode) -> Result:
    indices, on, off = n.input(0), n.input(2), n.input(3)
    depth = n.one_extent(n.input(1), "depth")
    values = joined(listed(off, on.dtype), listed(on, on.dtype))
    # A negative index selects nothing.  `OneHot` would count it from the end.
    indices = where(indices < 0, n.of_dims((depth,), ()), indices.cast(i64))
    return n.add(gather.OneHot(depth, n.option("axis")), indices, values)


@stored_op("EMBEDDING_LOOKUP")
def embedding_lookup(n: TfliteNode) -> Result:
    rows = n.add(gather.Gather(0), n.input(1), n.input(0))
    to = n.output_tensor()
    if not rows.dtype.is_int or not to.dtype.is_float:
        return rows
    q = n.quantization(n.input_tensor(1))  # the rows of a quantised table become real numbers
    if q.axis or q.zero_points.any():
        n.unsupported("a table whose zero points are not 0, or whose rows have several scales")
    numbers = rows.cast(to.dtype)
    if q.is_single:
        return numbers * q.scale
    scales = n.add(gather.Gather(0), n.const(q.scales, to.dtype), n.input(0))
    return numbers * n.reshape(scales, (*scales.type.shape, *[1] * (rows.type.rank - 1)))


@stored_op("WHERE")
def where_true(n: OptionNode) -> Result:
    return n.places(n.input(0)).transpose(1, 0).cast(n.output_dtype())


@stored_op("TOPK_V2")
def top_k(n: OptionNode) -> Result:
    x = n.input(0)
    count = n.input(1)
    if not x.type.rank or count.type.size != 1:
        n.bad(f"expected lines and their number of results, found {x.type} and {count.type}")
    (k,) = n.measured(listed(count), bounds=[x.type.shape[-1]])
    values, places = n.add(sort.TopK(k, x.type.rank - 1), x)
    return values, places.cast(n.output_dtype(1))


@stored_op("UNIQUE")
def unique(n: OptionNode) -> Result:
    x = n.input(0)
    if x.type.rank != 1 or same_dim(x.type.shape[0], 0):
        n.unsupported(f"unique elements of {x.type}")
    (count,) = x.type.shape
    rows = x.reshape(count, 1)
    _, order = n.add(sort.TopK(count, 0, largest=False), rows)
    firsts, inverse, _ = groups(n, rows, listed(order), is_sorted=False)
    return n.add(gather.Gather(0), x, firsts), inverse.cast(n.output_dtype(1))


def _place(n: OptionNode, make: Callable[..., gather.Op]) -> Value:
    x = n.input(0)
    place = n.add(make(axis_input(n, 1, x.type.rank), False), x.cast(i32) if x.dtype.is_bool else x)
    return place.cast(n.output_dtype())


@stored_op("ARG_MAX")
def arg_max(n: OptionNode) -> Result:
    return _place(n, reduce.ArgMax)


@stored_op("ARG_MIN")
def arg_min(n: OptionNode) -> Result:
    return _place(n, reduce.ArgMin)


@tflite_op("BUCKETIZE")
def bucketize(n: OptionNode) -> Result:
    x, boundaries = n.input(0), n.option("boundaries")
    if not isinstance(boundaries, np.ndarray):  # no boundaries
        return n.expand(n.const(0, i32), x.type.shape)
    wide = n.reshape(x.cast(f32), (*x.type.shape, 1))
    return (~(wide < boundaries)).cast(i32).sum((x.type.rank,))


def _diagonal(n: OptionNode, shape: tuple[extents.Dim, ...]) -> Value:
    """Whether an element of matrices of this shape is on the diagonal."""
    rows, columns = shape[-2:]
    return n.positions(rows, 2, 0).equals(n.positions(columns, 2, 1))


@stored_op("MATRIX_DIAG")
def matrix_diag(n: OptionNode) -> Result:
    x = n.input(0)
    if not x.type.rank:
        n.bad(f"expected diagonals, found {x.type}")
    shape = (*x.type.shape, x.type.shape[-1])
    wide = n.reshape(x, (*x.type.shape, 1))
    return where(_diagonal(n, shape), wide, 0)


@stored_op("MATRIX_SET_DIAG")
def matrix_set_diag(n: OptionNode) -> Result:
    x, diagonal = n.input(0), n.input(1)
    if x.type.rank < 2:
        n.bad(f"expected matrices, found {x.type}")
    dims = x.type.shape
    rows, columns = dims[-2:]
    if extents.is_at_most(rows, columns):
        wanted, shape = (*dims[:-2], rows), (*dims[:-1], 1)
    elif extents.is_at_most(columns, rows):
        wanted, shape = (*dims[:-2], columns), (*dims[:-2], 1, columns)
    else:
        n.unsupported(f"a diagonal of matrices of which rows or columns may be more, {x.type}")
    if not rules.equal_shapes("matrix_set_diag", diagonal.type.shape, wanted):
        n.bad(f"diagonal: expected {list(wanted)}, found {diagonal.type}")
    return where(_diagonal(n, dims), n.reshape(diagonal, shape), x)
