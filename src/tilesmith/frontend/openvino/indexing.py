"""OpenVINO's operators that search, scatter and group: buckets, unique elements, embeddings."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from tilesmith.frontend.common.bags import bags_of
from tilesmith.frontend.common.body import Body
from tilesmith.frontend.common.distinct import unique_elements
from tilesmith.frontend.common.networks import LayerNode
from tilesmith.frontend.common.recurrence import over_time
from tilesmith.frontend.common.slices import places_of, replaced
from tilesmith.frontend.common.slots import Result
from tilesmith.frontend.openvino.elements import element_type, openvino_layer
from tilesmith.frontend.openvino.shapes import axis_at, from_front
from tilesmith.graph.nodes import Value
from tilesmith.ir import extents
from tilesmith.ir.dtypes import i64
from tilesmith.ir.types import Dim
from tilesmith.ops import functions as fn
from tilesmith.ops import gather, reduce, scan, scatter, slicing


def _turned(x: Value, axis: int, to: int) -> Value:
    """`x` with an axis moved."""
    order = [i for i in range(x.type.rank) if i != axis]
    order.insert(to, axis)
    return x.transpose(*order)


def _updated(n: LayerNode, x: Value, indices: Value, updates: Value, axis: int) -> Value:
    """`x` with the slices at `indices` of an axis replaced."""
    rank = indices.type.rank
    rows = updates
    for i in range(rank):
        rows = _turned(rows, axis + i, i)
    place = n.reshape(indices, (*indices.type.shape, 1))
    return _turned(n.add(scatter.ScatterNd(), _turned(x, axis, 0), place, rows), 0, axis)


@openvino_layer("ScatterUpdate")
def scatter_update(n: LayerNode) -> Result:
    x, axis = n.input(0), axis_at(n, 3)
    return _updated(n, x, from_front(n, n.input(1), x.type.shape[axis]), n.input(2), axis)


@openvino_layer("SliceScatter")
def slice_scatter(n: LayerNode) -> Result:
    """The tensor with a slice replaced."""
    x = n.input(0)
    starts, ends, steps = (n.int_list(n.input(i), "a bound") for i in range(2, 5))
    axes = range(len(starts)) if n.optional(5) is None else n.int_list(n.input(5), "axes")
    cut = slicing.Slice(starts, ends, n.axes(tuple(axes), x.type.rank), steps)
    return replaced(n, x, places_of(n, x, cut), n.input(1))


def _buckets(n: LayerNode, x: Value, edges: Value, counts_equal: bool) -> Value:
    """For each number the edges before it.  Edges have an axis more than x, or are a list."""
    wide = n.reshape(x, (*x.type.shape, 1))
    before = edges <= wide if counts_equal else edges < wide
    return before.cast(i64).sum((x.type.rank,)).cast(element_type(n, "output_type", "i64"))


@openvino_layer("Bucketize")
def bucketize(n: LayerNode) -> Result:
    x, edges = n.input(0), n.input(1)
    if x.dtype is not edges.dtype:
        n.unsupported(f"buckets of {edges.dtype} for {x.dtype}")
    return _buckets(n, x, edges, not n.attr_flag("with_right_bound", True))


@openvino_layer("SearchSorted")
def search_sorted(n: LayerNode) -> Result:
    edges, x = n.input(0), n.input(1)
    if edges.type.rank > 1:
        edges = n.reshape(edges, (*edges.type.shape[:-1], 1, edges.type.shape[-1]))
    return _buckets(n, x, edges, n.attr_flag("right_mode", False))


@openvino_layer("Unique")
def unique(n: LayerNode) -> Result:
    x = n.input(0)
    axis = None if n.optional(1) is None else axis_at(n, 1)
    y, *numbers = unique_elements(n, x, axis, n.attr_flag("sorted", True))
    kinds = ("index_element_type", "index_element_type", "count_element_type")
    return y, *(v.cast(element_type(n, k, "i64")) for v, k in zip(numbers, kinds, strict=True))


# Embeddings


def _row(n: LayerNode, table: Value, number: Value) -> Value:
    """The row of empty bags; zeros for a negative number."""
    row = n.add(gather.Gather(0), table, fn.maximum(number.cast(i64), 0).reshape())
    return fn.where(number.cast(i64).reshape() < 0, 0, row)


def _weighted(n: LayerNode, rows: Value, weights: Value | None) -> Value:
    if weights is None:
        return rows
    missing = [1] * (rows.type.rank - weights.type.rank)
    return rows * n.reshape(weights, (*weights.type.shape, *missing))


def _bags(
    n: LayerNode, bag: Value, bags: Dim, default: Value | None, weights: Value | None, mean: bool
) -> Value:
    """The sum or the mean of the rows of each bag.

    bag: the bag of each index.
    default: the number of the row that empty bags have.
    """
    table, indices = n.input(0), n.input(1)
    rows = _weighted(n, n.add(gather.Gather(0), table, indices.cast(i64)), weights)
    place = n.reshape(bag, (bag.type.shape[0], 1))
    width = rows.type.shape[1:]
    zeros = n.expand(n.const(0, rows.dtype), (bags, *width))
    y = n.add(scatter.ScatterNd("add"), zeros, place, rows)
    ones = n.expand(n.const(1, i64), bag.type.shape)
    none = n.expand(n.const(0, i64), (bags,))
    sizes = n.add(scatter.ScatterElements(0, "add"), none, bag, ones)
    sizes = n.reshape(sizes, (bags, *[1] * len(width)))
    if mean:
        y = y / fn.maximum(sizes, 1).cast(y.dtype)
    return y if default is None else fn.where(sizes.equals(0), _row(n, table, default), y)


def _takes_means(n: LayerNode) -> bool:
    return n.attr_string("reduction", "sum", ("sum", "mean")) == "mean"


@openvino_layer("EmbeddingBagOffsets", "EmbeddingBagOffsetsSum")
def embedding_bags(n: LayerNode) -> Result:
    offsets = n.input(2)
    bags = offsets.type.shape[0]
    bag = bags_of(n, offsets.cast(i64), n.input(1).type.shape[0])
    mean = _takes_means(n)
    return _bags(n, bag, bags, n.optional(3), n.optional(4), mean)


@openvino_layer("EmbeddingSegmentsSum")
def embedding_segments(n: LayerNode) -> Result:
    bags = n.one_extent(n.input(3), "the number of segments")
    return _bags(n, n.input(2).cast(i64), bags, n.optional(4), n.optional(5), False)


@openvino_layer("EmbeddingBagPacked", "EmbeddingBagPackedSum")
def packed_embedding_bags(n: LayerNode) -> Result:
    rows = n.add(gather.Gather(0), n.input(0), n.input(1).cast(i64))
    rows = _weighted(n, rows, n.optional(2))
    mean = _takes_means(n)
    return rows.mean((1,)) if mean else rows.sum((1,))


# Sequences of symbols


@openvino_layer("CTCGreedyDecoder", "CTCGreedyDecoderSeqLen")
def ctc_greedy_decoder(n: LayerNode) -> Result:
    """The likeliest symbol of each step without repetitions and blanks, followed by -1.

    The older operator has scores [steps, batch, symbols] and a mask [steps, batch]; the newer has
    scores [batch, steps, symbols] and lengths.
    """
    is_old = n.layer.kind == "CTCGreedyDecoder"
    scores = n.input(0).transpose(1, 0, 2) if is_old else n.input(0)
    batch, steps, symbols = scores.type.shape
    number = n.positions(steps, 2, 1)
    if is_old:
        is_there = n.input(1).transpose(1, 0).differs(0)
    else:
        is_there = number < n.reshape(n.input(1).cast(i64), (batch, 1))
    blank = n.of_dims((extents.difference(symbols, 1),), ())
    if not is_old and n.optional(2) is not None:
        blank = n.input(2).cast(i64).reshape()
    best = n.add(reduce.ArgMax(2, False), scores)
    is_shown = is_there & best.differs(blank)
    if n.attr_flag("ctc_merge_repeated" if is_old else "merge_repeated", True):
        before = n.add(gather.Gather(1), best, fn.maximum(n.positions(steps) - 1, 0))
        is_shown = is_shown & (best.differs(before) | number.equals(0))
    ends = n.add(scan.CumSum(1), is_shown.cast(i64))
    place = fn.where(is_shown, ends - 1, n.of_dims((steps,), ()))
    empty = n.expand(n.const(-1, i64), (batch, extents.total((steps, 1))))
    y = n.add(scatter.ScatterElements(1), empty, place, best)
    y = n.add(slicing.Slice((0,), (steps,), (1,), (1,)), y)
    if is_old:
        return n.reshape(y.cast(scores.dtype), (batch, steps, 1, 1))
    lengths = is_shown.cast(i64).sum((1,))
    types = ("classes_index_type", "sequence_length_type")
    return tuple(v.cast(element_type(n, t, "i32")) for v, t in zip((y, lengths), types))


@openvino_layer("GatherTree")
def gather_tree(n: LayerNode) -> Result:
    """The symbols [steps, batch, beams] of the best beams, read from the last step to the first.
    The end's symbol follows each sequence.
    """
    symbols, parents, longest, end = (n.input(i) for i in range(4))
    steps, batch, beams = symbols.type.shape
    pairs = n.add(slicing.Concat(2), symbols, parents)
    own = n.expand(n.positions(beams, 2, 1), (batch, beams))
    last = n.reshape(longest.cast(i64), (batch, 1)) - 1

    def step(
        body: Body, number: Value, pair: Value, before: Sequence[Value]
    ) -> tuple[Sequence[Value], Value]:
        inner = replace(n, builder=body)
        number = inner.of_dims((extents.difference(steps, 1),), ()) - number.cast(i64)
        shown, parent = inner.add(slicing.Split(1, (beams, beams)), pair)
        place = before[0]
        is_there = number <= body.capture(last)
        symbol = inner.add(gather.GatherElements(1), shown, place)
        following = inner.add(gather.GatherElements(1), parent.cast(i64), place)
        after = fn.where(is_there, following, place)
        return (after,), fn.where(is_there, symbol, body.capture(end))

    _, y = over_time(n, "beams", pairs, (own,), step, backward=True)
    ended = n.add(scan.CumSum(0), y.equals(end).cast(i64))
    return fn.where(ended > 0, end, y)


@openvino_layer("RandomUniform", "Multinomial")
def random_numbers(n: LayerNode) -> Result:
    return n.unsupported("numbers drawn at random, which would differ from OpenVINO's")
