"""Embeddings: rows of a table, and sums of them."""

from __future__ import annotations

from tilesmith.frontend.aten.node import AtenNode
from tilesmith.frontend.aten.reductions import vector_norm
from tilesmith.frontend.aten.registry import aten_op
from tilesmith.graph.nodes import Value
from tilesmith.ir import extents
from tilesmith.ir.dtypes import bool_, i64
from tilesmith.ops import elementwise as ew
from tilesmith.ops import gather, scan, scatter, slicing

_ROOM = 1e-7
"""What ATen adds to a norm before it divides by it."""

_SUM, _MEAN, _MAX = range(3)
"""Modes of bags, by ATen's numbers."""


@aten_op("aten.embedding.default")
def embedding(
    n: AtenNode,
    weight: Value,
    indices: Value,
    padding_idx: int = -1,
    scale_grad_by_freq: bool = False,
    sparse: bool = False,
) -> Value:
    return n.add(gather.Gather(0), weight, n.from_front(indices, weight.type.shape[0]))


@aten_op("aten.embedding_renorm.default")
def embedding_renorm(
    n: AtenNode, self: Value, indices: Value, max_norm: float, norm_type: float
) -> Value:
    """The table, in which the rows at `indices` have a norm of at most `max_norm`."""
    at = n.from_front(indices, self.type.shape[0])
    places = n.reshape(at, (extents.product(indices.type.shape), 1))
    rows = n.add(gather.GatherNd(), self, places)
    norms = vector_norm(n, rows, norm_type, -1, keepdim=True)
    limit, room = n.tensor(max_norm, self.dtype), n.tensor(_ROOM, self.dtype)
    scale = n.add(ew.Div(), limit, n.add(ew.Add(), norms, room))
    is_long = n.add(ew.Greater(), norms, limit)
    rows = n.add(ew.Where(), is_long, n.add(ew.Mul(), rows, scale), rows)
    return n.add(scatter.ScatterNd(), self, places, rows)


@aten_op("aten._embedding_bag.default", "aten._embedding_bag_forward_only.default")
def embedding_bag(
    n: AtenNode, weight: Value, indices: Value, offsets: Value, scale_grad_by_freq: bool = False,
    mode: int = _SUM, sparse: bool = False, per_sample_weights: Value | None = None,
    include_last_offset: bool = False, padding_idx: int = -1,
) -> tuple[Value, Value, Value]:  # fmt: skip
    """Rows summed up, averaged or compared by bags; the bag of each index; rows in each bag.

    Bag b has the indices from `offsets[b]` on.  Rows of `padding_idx` do not count.  The fourth
    result of ATen's, which is for gradients, is not computed.
    """
    count = indices.type.shape[0]
    starts = n.cast(offsets, i64)
    bags = starts.type.shape[0]
    if include_last_offset:
        bags = extents.difference(bags, 1)
        starts = n.add(slicing.Slice((0,), (bags,), (0,), (1,)), starts)
    # How many bags begin at an index or before it; an offset may be `count`, of an empty bag.
    marks = n.full(0, (extents.total((count, 1)),), i64)
    marks = n.add(scatter.ScatterElements(0, "add"), marks, starts, n.full(1, (bags,), i64))
    begun = n.add(slicing.Slice((0,), (count,), (0,), (1,)), n.add(scan.CumSum(0), marks))
    bag = n.add(ew.Sub(), begun, n.tensor(1))
    rows = n.add(gather.Gather(0), weight, n.from_front(indices, weight.type.shape[0]))
    if padding_idx < 0:  # all rows count
        is_row = n.full(True, (count,), bool_)
    else:
        is_row = n.add(ew.NotEqual(), n.cast(indices, i64), n.tensor(padding_idx))
    sizes = n.add(
        scatter.ScatterElements(0, "add"), n.full(0, (bags,), i64), bag, n.cast(is_row, i64)
    )
    if per_sample_weights is not None:
        rows = n.add(ew.Mul(), rows, n.reshape(per_sample_weights, (count, 1)))
    neutral = weight.dtype.min if mode == _MAX else 0
    rows = n.add(ew.Where(), n.reshape(is_row, (count, 1)), rows, n.tensor(neutral, rows.dtype))
    width = weight.type.shape[1]
    result = n.add(
        scatter.ScatterNd("max" if mode == _MAX else "add"),
        n.full(neutral, (bags, width), rows.dtype), n.reshape(bag, (count, 1)), rows,
    )  # fmt: skip
    sizes_column = n.reshape(sizes, (bags, 1))
    if mode == _MEAN:
        divisor = n.cast(n.add(ew.Max(), sizes_column, n.tensor(1)), result.dtype)
        result = n.add(ew.Div(), result, divisor)
    if mode == _MAX:  # an empty bag is zeros
        result = n.add(ew.Where(), n.truth(sizes_column), result, n.tensor(0, result.dtype))
    return result, bag, sizes
