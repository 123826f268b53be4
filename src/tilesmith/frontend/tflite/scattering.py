"""TFLite's operators that write at indices, and those that combine rows with the same number."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import numpy as np

from tilesmith.frontend.common.lists import listed
from tilesmith.frontend.common.options import OptionNode
from tilesmith.frontend.common.slots import Result
from tilesmith.frontend.tflite.registry import stored_op, tflite_op
from tilesmith.graph.nodes import Value
from tilesmith.ir import extents
from tilesmith.ir.dtypes import i32, i64, u8
from tilesmith.ir.types import Dim
from tilesmith.ops import gather, reduce, rules, scatter, slicing
from tilesmith.ops.functions import maximum, sqrt, where


def _full(n: OptionNode, value: float, like: Value, dims: Sequence[Dim]) -> Value:
    return n.expand(n.const(value, like.dtype), dims)


@stored_op("SCATTER_ND")
def scatter_nd(n: OptionNode) -> Result:
    indices, updates = n.input(0), n.input(1)
    dims = n.extents(n.input(2), "shape")
    if updates.dtype.is_bool:  # a sum of bools is true if any of them is
        numbers = updates.cast(u8)
        result = n.add(scatter.ScatterNd("max"), _full(n, 0, numbers, dims), indices, numbers)
        return result.cast(updates.dtype)
    return n.add(scatter.ScatterNd("add"), _full(n, 0, updates, dims), indices, updates)


@stored_op("SPARSE_TO_DENSE")
def sparse_to_dense(n: OptionNode) -> Result:
    indices, values, filler = n.input(0), n.input(2), n.input(3)
    dims = n.extents(n.input(1), "output_shape")
    if indices.type.rank < 2:
        count = extents.product(indices.type.shape)
        indices = n.reshape(indices, (count, 1))
    if not values.type.rank:
        values = n.expand(values, indices.type.shape[:1])
    full = n.expand(n.reshape(filler, ()), dims)
    return n.add(scatter.ScatterNd(), full, indices, values)


_COMBINERS = ("SUM", "MEAN", "SQRTN")


@tflite_op("EMBEDDING_LOOKUP_SPARSE")
def embedding_lookup_sparse(n: OptionNode) -> Result:
    """Look up rows by ids, weight and combine them.  Ids whose indices differ only in the last
    element have a common result.
    """
    ids, indices, weights, table = (n.input(i) for i in (0, 1, 3, 4))
    combiner = n.choice("combiner", _COMBINERS)
    outer, inner = n.extents(n.input(2), "dense_shape")[:-1], table.type.shape[1:]
    depth = len(outer)
    if (
        not depth
        or indices.type.rank != 2
        or not rules.equal("embedding_lookup_sparse", indices.type.shape[1], depth + 1)
    ):
        n.bad(f"expected two indices or more for each id, {depth + 1}, found {indices.type}")
    targets = n.add(slicing.Slice((0,), (depth,), (1,), (1,)), indices)

    def summed(rows: Value) -> Value:
        zeros = _full(n, 0, rows, (*outer, *rows.type.shape[1:]))
        return n.add(scatter.ScatterNd("add"), zeros, targets, rows)

    ones = [1] * len(inner)
    weight = n.reshape(weights, (*weights.type.shape, *ones))
    total = summed(n.add(gather.Gather(0), table, ids) * weight)
    if combiner == "SUM":
        return total
    by = summed(weights if combiner == "MEAN" else weights * weights)
    by = n.reshape(by if combiner == "MEAN" else sqrt(by), (*outer, *ones))
    used = n.reshape(summed(weights * 0 + 1), (*outer, *ones))
    return total / where(used.equals(0), 1, by)


@tflite_op("SEGMENT_SUM")
def segment_sum(n: OptionNode) -> Result:
    x, numbers = n.input(0), listed(n.input(1))
    last = maximum(numbers.max((0,), keepdims=True), -1)
    (count,) = n.measured(last + 1)
    zeros = _full(n, 0, x, (count, *x.type.shape[1:]))
    rows = n.reshape(numbers, (*numbers.type.shape, 1))
    return n.add(scatter.ScatterNd("add"), zeros, rows, x)


def unsorted(n: OptionNode, reduction: str) -> Result:
    """Combine the rows with the same number.  Rows with a negative number are left out."""
    x, numbers = n.input(0), n.input(1).cast(i64)
    count = n.one_extent(n.input(2), "num_segments")
    if x.dtype.is_bool:
        n.unsupported(f"segments of {x.type}")
    limits = (np.finfo if x.dtype.is_float else np.iinfo)(x.dtype.numpy)
    start = {"add": 0, "mul": 1, "max": limits.min, "min": limits.max}[reduction]
    rest = x.type.shape[numbers.type.rank :]
    # Rows to leave out are written to an additional last row, which is cut off.
    initial = _full(n, start, x, (extents.total((count, 1)), *rest))
    place = where(numbers < 0, n.of_dims((count,), ()), numbers)
    place = n.reshape(place, (*numbers.type.shape, 1))
    y = n.add(scatter.ScatterNd(reduction), initial, place, x)
    return n.add(slicing.Slice((0,), (count,), (0,), (1,)), y)


for _name, _reduction in {"SUM": "add", "PROD": "mul", "MAX": "max", "MIN": "min"}.items():
    tflite_op(f"UNSORTED_SEGMENT_{_name}")(partial(unsorted, reduction=_reduction))


@tflite_op("HASHTABLE_LOOKUP")
def hashtable_lookup(n: OptionNode) -> Result:
    """The rows of the table for keys, zeros for keys that it lacks, and whether it has them."""
    wanted, keys, rows = listed(n.input(0)), listed(n.input(1)), n.input(2)
    is_same = n.reshape(wanted, (*wanted.type.shape, 1)).equals(keys)
    hits = is_same.cast(i32).max((1,))
    picked = n.add(gather.Gather(0), rows, n.add(reduce.ArgMax(1, False), is_same.cast(i32)))
    ones = [1] * (rows.type.rank - 1)
    is_there = n.reshape(hits > 0, (*hits.type.shape, *ones))
    return where(is_there, picked, n.const(0, rows.dtype)), hits.cast(u8)
