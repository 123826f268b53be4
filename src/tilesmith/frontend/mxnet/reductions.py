"""MXNet's reductions, products of matrices, and selections of elements by their indices."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from tilesmith.frontend.common.networks import LayerNode
from tilesmith.frontend.common.shaping import reversed_sequences
from tilesmith.frontend.common.slots import Result
from tilesmith.frontend.mxnet.registry import dtype_of, is_listed, mxnet_op
from tilesmith.graph.nodes import Value
from tilesmith.ir import extents
from tilesmith.ir.dtypes import i64
from tilesmith.ir.types import Dim
from tilesmith.ops import functions as fn
from tilesmith.ops import gather, reduce, scan, scatter, slicing, sort
from tilesmith.ops import matmul as mm


def _axes(n: LayerNode, rank: int) -> tuple[int, ...]:
    axes = n.axes(n.attr_ints("axis"), rank) if is_listed(n, "axis") else tuple(range(rank))
    if n.attr_flag("exclude", False):
        return tuple(a for a in range(rank) if a not in axes) if is_listed(n, "axis") else axes
    return axes


def _reduction(n: LayerNode, make: Callable[..., Any], skips_nan: float | None = None) -> Result:
    x = n.input()
    if n.has("dtype"):
        x = x.cast(dtype_of(n))
    if skips_nan is not None:
        x = fn.where(fn.is_nan(x), skips_nan, x)
    y = n.add(make(_axes(n, x.type.rank), n.attr_flag("keepdims", False)), x)
    return _listed(n, y)


def _listed(n: LayerNode, y: Value) -> Value:
    """A result; a scalar becomes [1], except in MXNet's NumPy interface, which has scalars."""
    return n.reshape(y, (1,)) if y.type.rank == 0 and not n.layer.kind.startswith("_np") else y


for _make, _names in {
    reduce.ReduceMax: ("max", "max_axis", "_np_max", "_np_amax"),
    reduce.ReduceMean: ("mean", "_npi_mean"),
    reduce.ReduceMin: ("min", "min_axis", "_np_min", "_np_amin"),
    reduce.ReduceProd: ("prod", "_np_prod", "_np_product"),
    reduce.ReduceSum: ("sum", "sum_axis", "_np_sum"),
}.items():
    mxnet_op(*_names)(partial(_reduction, make=_make))
mxnet_op("nansum")(partial(_reduction, make=reduce.ReduceSum, skips_nan=0.0))
mxnet_op("nanprod")(partial(_reduction, make=reduce.ReduceProd, skips_nan=1.0))


@mxnet_op("norm", "_npi_norm")
def norm(n: LayerNode) -> Result:
    make = {1: reduce.ReduceL1, 2: reduce.ReduceL2}.get(n.attr_int("ord", 2))
    if make is None:
        n.unsupported(f"order {n.attr_int('ord')}")
    return _reduction(n, make)


@mxnet_op("argmax", "argmin", "argmax_channel", "_npi_argmax", "_npi_argmin")
def arg_extreme(n: LayerNode) -> Result:
    x, keep = n.input(), n.attr_flag("keepdims", False)
    rank = x.type.rank
    flat = not n.has("axis") and n.layer.kind != "argmax_channel"
    if flat:
        x = n.reshape(x, (extents.product(x.type.shape),))
    axis = 0 if flat else n.axis(n.attr_int("axis", 1), rank)
    make = reduce.ArgMin if "argmin" in n.layer.kind else reduce.ArgMax
    place = n.add(make(axis, keep and not flat), x)
    place = n.reshape(place, (1,) * rank if keep else ()) if flat else place
    return place if "_npi" in n.layer.kind else _listed(n, place.cast(x.dtype))


@mxnet_op("cumsum", "_np_cumsum")
def cumsum(n: LayerNode) -> Result:
    x = n.input()
    if not n.has("axis"):
        x = n.reshape(x, (extents.product(x.type.shape),))
    x = x.cast(dtype_of(n, default=x.dtype))
    return n.add(scan.CumSum(n.axis(n.attr_int("axis", 0), x.type.rank)), x)


@mxnet_op("topk", "sort", "argsort", "_npx_topk", "_npi_sort", "_npi_argsort")
def topk(n: LayerNode) -> Result:
    x, kind = n.input(), n.layer.kind
    is_top = "topk" in kind
    axis = n.axis(n.attr_int("axis", -1), x.type.rank)
    ascends = n.attr_flag("is_ascend", not is_top)
    extent = x.type.shape[axis]
    count: Dim = n.attr_int("k", 1) if is_top else 0
    best, places = n.add(sort.TopK(count or extent, axis, not ascends), x)
    returns = n.attr_string("ret_typ", "indices", among=("both", "indices", "mask", "value"))
    if not is_top:
        returns = "indices" if "arg" in kind else "value"
    if returns == "value":
        return best
    if returns == "mask":
        zeros = n.expand(n.const(0, x.dtype), x.type.shape)
        ones = n.expand(n.const(1, x.dtype), places.type.shape)
        return n.add(scatter.ScatterElements(axis), zeros, places, ones)
    places = places.cast(dtype_of(n, default=i64 if kind.startswith("_npi") else dtype_of(n)))
    return (best, places) if returns == "both" else places


# Products


@mxnet_op("dot", "_np_dot")
def dot(n: LayerNode) -> Result:
    """The product of a and b, summed over the last axis of a and the first axis of b.

    In MXNet's NumPy interface, the sum is over the second-last axis of b.
    """
    a, b = n.input(0), n.input(1)
    if n.attr_flag("transpose_a", False):
        a = a.transpose(*range(1, a.type.rank), 0)
    if n.attr_flag("transpose_b", False):
        b = b.transpose(b.type.rank - 1, *range(b.type.rank - 1))
    if n.layer.kind == "_np_dot" and b.type.rank > 1:
        b = b.transpose(b.type.rank - 2, *(i for i in range(b.type.rank) if i != b.type.rank - 2))
    lead, rest = a.type.shape[:-1], b.type.shape[1:]
    a = n.reshape(a, (extents.product(lead), a.type.shape[-1]))
    b = n.reshape(b, (b.type.shape[0], extents.product(rest)))
    return n.reshape(n.add(mm.MatMul(), a, b), (*lead, *rest))


@mxnet_op("batch_dot", "_npx_batch_dot", "_linalg_gemm2", "linalg_gemm2", "_npi_matmul")
def batch_dot(n: LayerNode) -> Result:
    if n.attr_int("axis", -2) != -2:
        n.unsupported("matrices whose rows are along another axis")
    op = mm.MatMul(n.attr_flag("transpose_a", False), n.attr_flag("transpose_b", False))
    y = n.add(op, n.input(0), n.input(1))
    return y * n.attr_float("alpha", 1.0) if n.has("alpha") else y


@mxnet_op("_contrib_div_sqrt_dim")
def div_sqrt_dim(n: LayerNode) -> Result:
    x = n.input()
    return x / fn.sqrt(n.of_dims(x.type.shape[-1:], ()).cast(x.dtype))


# Selections


def _clipped(n: LayerNode, indices: Value, extent: Dim, mode: str) -> Value:
    """Indices, which may be floats, as i64 in range: wrapped or clipped, as `mode` says."""
    whole = indices.cast(i64)
    size = n.of_dims((extent,), ())
    if mode == "wrap":
        return whole % size
    return fn.minimum(fn.maximum(whole, 0), size - 1)


@mxnet_op("Embedding", "_npx_embedding", "_contrib_SparseEmbedding")
def embedding(n: LayerNode) -> Result:
    table = n.input(1)
    return n.add(gather.Gather(0), table, _clipped(n, n.input(), table.type.shape[0], "clip"))


@mxnet_op("take", "_npi_take")
def take(n: LayerNode) -> Result:
    x = n.input()
    axis, mode = n.axis(n.attr_int("axis", 0), x.type.rank), n.attr_string("mode", "clip")
    return n.add(gather.Gather(axis), x, _clipped(n, n.input(1), x.type.shape[axis], mode))


@mxnet_op("pick", "choose_element_0index", "_npx_pick")
def pick(n: LayerNode) -> Result:
    x, indices = n.input(0), n.input(1)
    axis = n.axis(n.attr_int("axis", -1), x.type.rank)
    places = _clipped(n, indices, x.type.shape[axis], n.attr_string("mode", "clip"))
    one = (*x.type.shape[:axis], 1, *x.type.shape[axis + 1 :])
    y = n.add(gather.GatherElements(axis), x, n.reshape(places, one))
    return y if n.attr_flag("keepdims", False) else n.reshape(y, (*one[:axis], *one[axis + 1 :]))


@mxnet_op("batch_take")
def batch_take(n: LayerNode) -> Result:
    x = n.input()
    places = _clipped(n, n.input(1), x.type.shape[1], "clip")
    y = n.add(gather.GatherElements(1), x, n.reshape(places, (x.type.shape[0], 1)))
    return n.reshape(y, (x.type.shape[0],))


@mxnet_op("gather_nd", "_npx_gather_nd", "_npi_gather_nd")
def gather_nd(n: LayerNode) -> Result:
    indices = n.input(1).cast(i64)
    return n.add(gather.GatherNd(), n.input(), indices.transpose(*range(1, indices.type.rank), 0))


@mxnet_op("scatter_nd")
def scatter_nd(n: LayerNode) -> Result:
    x, indices = n.input(), n.input(1).cast(i64)
    zeros = n.expand(n.const(0, x.dtype), n.attr_ints("shape"))
    places = indices.transpose(*range(1, indices.type.rank), 0)
    return n.add(scatter.ScatterNd(), zeros, places, x)


@mxnet_op("one_hot", "_npx_one_hot")
def one_hot(n: LayerNode) -> Result:
    dtype = dtype_of(n)
    depth, indices = n.attr_int("depth", low=0), n.input().cast(i64)
    values = n.const([n.attr_float("off_value", 0.0), n.attr_float("on_value", 1.0)], dtype)
    # a negative index gives a row of `off_value`
    return n.add(gather.OneHot(depth), fn.where(indices < 0, depth, indices), values)


@mxnet_op("SequenceMask", "_npx_sequence_mask")
def sequence_mask(n: LayerNode) -> Result:
    x = n.input()
    if not n.attr_flag("use_sequence_length", False):
        return x
    axis = n.attr_int("axis", 0)
    place = n.positions(x.type.shape[axis], x.type.rank, axis)
    lengths = _lengths(n, x, 1 - axis)
    return fn.where(place < lengths, x, n.attr_float("value", 0.0))


def _lengths(n: LayerNode, x: Value, axis: int) -> Value:
    """The lengths of sequences, along `axis` of `x`, the batch; reshaped to broadcast with `x`."""
    own = [d if a == axis else 1 for a, d in enumerate(x.type.shape)]
    return n.reshape(n.input(1).cast(i64), own)


@mxnet_op("SequenceLast")
def sequence_last(n: LayerNode) -> Result:
    x, axis = n.input(), n.attr_int("axis", 0)
    dims = x.type.shape
    rest = (*dims[:axis], *dims[axis + 1 :])
    if not n.attr_flag("use_sequence_length", False):
        return n.reshape(n.add(slicing.Slice((-1,), (1 << 31,), (axis,), (1,)), x), rest)
    one = (*dims[:axis], 1, *dims[axis + 1 :])
    places = n.expand(_lengths(n, x, 1 - axis) - 1, one)
    return n.reshape(n.add(gather.GatherElements(axis), x, places), rest)


@mxnet_op("SequenceReverse")
def sequence_reverse(n: LayerNode) -> Result:
    x = n.input()
    if not n.attr_flag("use_sequence_length", False):
        return n.add(slicing.Flip((0,)), x)
    return reversed_sequences(n, x, n.input(1), 0, 1)
