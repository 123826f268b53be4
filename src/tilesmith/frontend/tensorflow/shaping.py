"""TensorFlow's operators that make, change and cut shapes, and that look elements up.  Most share
their import function with TFLite.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from tilesmith.frontend.common.computed import taken
from tilesmith.frontend.common.lists import listed
from tilesmith.frontend.common.options import OptionNode
from tilesmith.frontend.common.shaping import gathered
from tilesmith.frontend.common.slots import Result
from tilesmith.frontend.common.suppression import suppressed
from tilesmith.frontend.tensorflow.node import TfNode
from tilesmith.frontend.tensorflow.registry import tf_op
from tilesmith.frontend.tflite import scattering, selection, shapes, slices
from tilesmith.frontend.tflite.shapes import axis_input
from tilesmith.graph.nodes import Value
from tilesmith.ir import extents
from tilesmith.ir.dtypes import f32, i32, i64
from tilesmith.ir.types import same_dim
from tilesmith.ops import gather, scatter, slicing
from tilesmith.ops.functions import where

_SHARED: dict[str, Callable[[OptionNode], Result]] = {
    "ArgMax": selection.arg_max, "ArgMin": selection.arg_min,
    "BroadcastArgs": shapes.broadcast_args, "BroadcastTo": shapes.broadcast_to,
    "Bucketize": selection.bucketize, "ExpandDims": shapes.expand_dims, "Fill": shapes.fill,
    "GatherNd": selection.gather_nd, "MatrixDiag": selection.matrix_diag,
    "MatrixSetDiag": selection.matrix_set_diag, "MirrorPad": slices.mirror_pad,
    "OneHot": selection.one_hot, "Pack": shapes.pack, "Pad": slices.pad, "PadV2": slices.pad_with,
    "Range": shapes.range_of, "Rank": shapes.rank,
    "ReverseSequence": slices.reverse_sequence, "ReverseV2": slices.reverse,
    "ScatterNd": scattering.scatter_nd, "Shape": shapes.shape_of, "Slice": slices.cut,
    "SparseToDense": scattering.sparse_to_dense, "Split": shapes.split,
    "SplitV": shapes.split_sizes, "Squeeze": shapes.squeeze, "StridedSlice": slices.strided_slice,
    "Tile": shapes.tile, "TopKV2": selection.top_k, "Transpose": shapes.transpose,
    "Unique": selection.unique, "Unpack": shapes.unpack, "Where": selection.where_true,
    "ZerosLike": shapes.zeros_like,
}  # fmt: skip
for _name, _function in _SHARED.items():
    tf_op(_name)(_function)


@tf_op("Reshape")
def reshape(n: TfNode) -> Result:
    return shapes.reshaped(n, n.input(0), n.input(1))


@tf_op("OnesLike")
def ones_like(n: TfNode) -> Result:
    return n.expand(n.const(1, n.input(0).dtype), n.input(0).type.shape)


@tf_op("Size")
def size(n: TfNode) -> Result:
    count = extents.product(n.input(0).type.shape)
    return n.of_dims((count,), ()).cast(n.output_dtype())


@tf_op("ShapeN")
def shapes_of(n: TfNode) -> Result:
    return tuple(n.of_dims(x.type.shape).cast(n.output_dtype()) for x in n.inputs)


@tf_op("ConcatV2", "Concat")
def concat(n: TfNode) -> Result:
    *parts, axis = n.inputs if n.kind == "ConcatV2" else (*n.inputs[1:], n.inputs[0])
    number = n.axis(int(n.scalar(axis, "axis")), parts[0].type.rank)
    return n.add(slicing.Concat(number), *parts)


@tf_op("InvertPermutation")
def invert_permutation(n: TfNode) -> Result:
    x = n.input(0)
    (count,) = x.type.shape
    rows = n.reshape(x, (count, 1))
    places = n.positions(count).cast(x.dtype)
    return n.add(scatter.ScatterNd(), places, rows, places)


@tf_op("LinSpace")
def linspace(n: TfNode) -> Result:
    start, stop, count = n.input(0), n.input(1), n.one_extent(n.input(2), "num")
    steps = n.positions(count).cast(start.dtype)
    last = n.of_dims((extents.larger(extents.difference(count, 1), 1),), ()).cast(start.dtype)
    return start + steps * ((stop - start) / last)


@tf_op("BroadcastGradientArgs")
def broadcast_gradient_args(n: TfNode) -> Result:
    n.unsupported("gradients")


# Looking up


@tf_op("GatherV2", "Gather", "ResourceGather")
def gather_slices(n: TfNode) -> Result:
    is_variable = n.kind == "ResourceGather"
    x = n.read(n.resource()) if is_variable else n.input(0)
    axis = axis_input(n, 2, x.type.rank) if n.kind == "GatherV2" else n.int("batch_dims")
    return gathered(n, x, n.input(1), axis, n.int("batch_dims"))


@tf_op("ResourceGatherNd")
def gather_nd_of_variable(n: TfNode) -> Result:
    return n.add(gather.GatherNd(0), n.read(n.resource()), n.input(1))


@tf_op("UniqueV2")
def unique_along(n: TfNode) -> Result:
    if n.input(0).type.rank != 1:
        n.unsupported(f"unique slices of {n.input(0).type}")
    return selection.unique(n)


@tf_op("TopK")
def top_k(n: TfNode) -> Result:
    return selection.top_k(replace(n, slots=(n.input(0), n.const(n.int("k"), i32))))


@tf_op("InTopKV2", "InTopK")
def in_top_k(n: TfNode) -> Result:
    predictions, targets = n.input(0), n.input(1)
    own = n.reshape(targets.cast(i64), (*targets.type.shape, 1))
    chosen = n.add(gather.GatherElements(1), predictions, own)
    better = (predictions > chosen).cast(i64).sum((1,))
    k = n.input(2).cast(i64) if n.kind == "InTopKV2" else n.const(n.int("k"), i64)
    return better < k


@tf_op("SearchSorted", "LowerBound", "UpperBound")
def bound(n: TfNode) -> Result:
    """The index in each sorted row at which each value could be inserted.

    UpperBound gives the last such index, the other operators give the first.
    """
    lines, values = n.input(0), n.input(1)
    wide = n.reshape(values, (*values.type.shape, 1))
    sorted_ = n.reshape(lines, (lines.type.shape[0], 1, lines.type.shape[1]))
    before = sorted_ <= wide if n.kind == "UpperBound" else sorted_ < wide
    return before.cast(i32).sum((2,)).cast(n.dtype("out_type", i32))


@tf_op("TensorScatterUpdate", "TensorScatterAdd", "TensorScatterSub", "TensorScatterMax",
       "TensorScatterMin")  # fmt: skip
def scattered(n: TfNode) -> Result:
    x, indices, updates = (n.input(i) for i in range(3))
    how = n.kind.removeprefix("TensorScatter").lower()
    if how == "sub":
        how, updates = "add", -updates
    return n.add(scatter.ScatterNd("none" if how == "update" else how), x, indices, updates)


# Matrices


@tf_op("MatrixBandPart")
def band_part(n: TfNode) -> Result:
    """The diagonals from `lower` below the main diagonal to `upper` above it, and 0 elsewhere.  A
    negative number means all diagonals on its side.
    """
    x = n.input(0)
    rows, columns = x.type.shape[-2:]
    below = n.positions(rows, 2, 0) - n.positions(columns, 2, 1)
    lower, upper = (n.input(i).cast(i64) for i in (1, 2))
    inside = ((lower < 0) | (below <= lower)) & ((upper < 0) | (-below <= upper))
    return where(inside, x, 0)


@tf_op("MatrixDiagPart", "MatrixDiagPartV3", "MatrixDiagPartV2")
def diagonal(n: TfNode) -> Result:
    x = n.input(0)
    if len(n.slots) > 1 and n.int_list(n.input(1), "k") not in ((0,), (0, 0)):
        n.unsupported("diagonals other than the main one")
    rows, columns = x.type.shape[-2:]
    shorter = extents.smaller(rows, columns)
    own = n.positions(rows, 2, 0).equals(n.positions(columns, 2, 1))
    return where(own, x, 0).sum((x.type.rank - (1 if same_dim(shorter, rows) else 2),))


@tf_op("MatrixDiagV3", "MatrixDiagV2")
def from_diagonal(n: TfNode) -> Result:
    if n.int_list(n.input(1), "k") not in ((0,), (0, 0)) or any(
        d not in (-1, None) for d in (n.scalar(n.input(2), "rows"), n.scalar(n.input(3), "columns"))
    ):
        n.unsupported("diagonals other than the main one")
    return selection.matrix_diag(n)


@tf_op("MatrixSetDiagV3", "MatrixSetDiagV2")
def with_diagonal(n: TfNode) -> Result:
    if n.int_list(n.input(2), "k") not in ((0,), (0, 0)):
        n.unsupported("diagonals other than the main one")
    return selection.matrix_set_diag(n)


@tf_op("Roll")
def roll(n: TfNode) -> Result:
    x = n.input(0)
    shifts, axes = n.int_list(n.input(1), "shift"), n.int_list(n.input(2), "axis")
    for shift, axis in zip(shifts, n.axes(axes, x.type.rank), strict=True):
        extent = x.type.shape[axis]
        places = (n.positions(extent) - shift) % n.of_dims((extent,), ())
        x = n.add(gather.Gather(axis), x, places)
    return x


@tf_op("Bincount", "DenseBincount")
def bincount(n: TfNode) -> Result:
    """The number of occurrences of each number, or the sum of their weights."""
    x, weights = n.input(0), n.input(2)
    if x.type.rank > 1:
        n.unsupported(f"counts of {x.type}, not a list")
    count = n.one_extent(n.input(1), "size")
    dtype = n.output_dtype()
    if n.flag("binary_output"):
        n.unsupported("flags instead of counts")
    ones = n.expand(n.const(1, dtype), x.type.shape)
    added = ones if same_dim(extents.product(weights.type.shape), 0) else weights
    zeros = n.expand(n.const(0, dtype), (count,))
    return n.add(scatter.ScatterNd("add"), zeros, n.reshape(x, (*x.type.shape, 1)), added)


# Boxes


def _kept(n: TfNode, overlap: Value, least: Value) -> Value:
    """The indices of the boxes that are kept, the best first, i32."""
    boxes, scores = n.input(0).cast(f32), n.input(1).cast(f32)
    most = listed(n.input(2))
    wide = n.reshape(boxes, (1, *boxes.type.shape)), n.reshape(scores, (1, 1, *scores.type.shape))
    limits = most, listed(overlap, f32), listed(least, f32)
    chosen = suppressed(n, *wide, limits)
    return n.add(gather.Gather(1), chosen, n.const(2, i64)).cast(i32)


@tf_op("NonMaxSuppression", "NonMaxSuppressionV2", "NonMaxSuppressionV3")
def suppression(n: TfNode) -> Result:
    is_first = n.kind == "NonMaxSuppression"
    overlap = n.const(n.float("iou_threshold", 0.5), f32) if is_first else n.input(3)
    lowest = n.const(float("-inf"), f32)
    return _kept(n, overlap, n.input(4) if n.kind.endswith("V3") else lowest)


@tf_op("NonMaxSuppressionV4", "NonMaxSuppressionV5")
def suppression_counted(n: TfNode) -> Result:
    """Suppression of boxes with the number of kept boxes as another result."""
    if n.kind.endswith("V5") and n.scalar(n.input(5), "soft_nms_sigma"):
        n.unsupported("scores that fall with the overlap (soft_nms_sigma)")
    kept = _kept(n, n.input(3), n.input(4))
    count = n.of_dims(kept.type.shape, ()).cast(i32)
    padded = kept
    if n.flag("pad_to_max_output_size"):
        size_ = n.one_extent(n.input(2), "max_output_size")
        more = extents.difference(size_, kept.type.shape[0])
        padded = n.add(slicing.Pad((0, more)), kept)
    if n.kind.endswith("V4"):
        return padded, count
    scores = taken(n, n.input(1), 0, padded.cast(i64))
    if n.flag("pad_to_max_output_size"):
        inside = n.positions(padded.type.shape[0]) < count.cast(i64)
        scores = where(inside, scores, 0)
    return padded, scores, count
