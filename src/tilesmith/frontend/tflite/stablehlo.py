"""StableHLO's operators in TFLite files that equal operators of ours."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tilesmith.frontend.common import computed
from tilesmith.frontend.common.lists import joined, listed, picked
from tilesmith.frontend.common.slots import Result
from tilesmith.frontend.tflite.model import OPEN
from tilesmith.frontend.tflite.node import TfliteNode
from tilesmith.frontend.tflite.registry import same_operators, stored_op, tflite_op
from tilesmith.frontend.tflite.slices import updated
from tilesmith.graph.nodes import Value
from tilesmith.ir import extents
from tilesmith.ir.types import Dim, same_dim
from tilesmith.ops import activation as act
from tilesmith.ops import elementwise as ew
from tilesmith.ops import slicing
from tilesmith.ops.base import Op
from tilesmith.ops.einsum import Einsum
from tilesmith.ops.functions import clamp, where

_UNARY: dict[str, Callable[[], Op]] = {
    "ABS": ew.Abs,
    "COSINE": ew.Cos,
    "EXPONENTIAL": ew.Exp,
    "FLOOR": ew.Floor,
    "LOG": ew.Log,
    "LOGISTIC": act.Sigmoid,
    "NEGATE": ew.Neg,
    "RSQRT": ew.Rsqrt,
    "TANH": ew.Tanh,
}
_BINARY: dict[str, Callable[[], Op]] = {
    "ADD": ew.Add,
    "DIVIDE": ew.Div,
    "MAXIMUM": ew.Max,
    "MINIMUM": ew.Min,
    "MULTIPLY": ew.Mul,
    "POWER": ew.Pow,
    "REMAINDER": lambda: ew.Mod(fmod=True),
    "SHIFT_LEFT": lambda: ew.BitShift("left"),
    "SUBTRACT": ew.Sub,
}
_COMPARISONS: dict[str, Callable[[], Op]] = {
    "EQ": ew.Equal,
    "NE": ew.NotEqual,
    "GE": ew.GreaterEqual,
    "GT": ew.Greater,
    "LE": ew.LessEqual,
    "LT": ew.Less,
}
"""Comparisons, in the order of their numbers in files."""

same_operators(_UNARY, prefix="STABLEHLO_")
_STORED = ("ADD", "MAXIMUM", "MINIMUM", "MULTIPLY")
same_operators(_BINARY, 2, "STABLEHLO_", _STORED)


@tflite_op("STABLEHLO_AND")
def both(n: TfliteNode) -> Result:
    return n.input(0) & n.input(1)


@tflite_op("STABLEHLO_OR")
def either(n: TfliteNode) -> Result:
    return n.input(0) | n.input(1)


@tflite_op("STABLEHLO_COMPARE")
def compare(n: TfliteNode) -> Result:
    make = _COMPARISONS[n.choice("comparison_direction", tuple(_COMPARISONS))]
    return n.add(make(), n.input(0), n.input(1))


@tflite_op("STABLEHLO_CBRT")
def cube_root(n: TfliteNode) -> Result:
    x = n.input(0)
    return n.add(ew.Sign(), x) * abs(x) ** (1 / 3)


@stored_op("STABLEHLO_SELECT")
def select(n: TfliteNode) -> Result:
    return where(n.input(0), n.input(1), n.input(2))


@tflite_op("STABLEHLO_CLAMP")
def clamped(n: TfliteNode) -> Result:
    return clamp(n.input(1), n.input(0), n.input(2))


@tflite_op("STABLEHLO_CONVERT")
def convert(n: TfliteNode) -> Result:
    return n.input(0).cast(n.output_tensor().dtype)


def _output_dims(n: TfliteNode) -> tuple[int, ...]:
    """The dimensions that the file declares for the output; at most one is open."""
    dims = n.output_tensor().dims
    if dims is None or dims.count(OPEN) > 1:
        n.unsupported(f"an output of shape {dims}, which only its declaration states")
    return dims


@stored_op("STABLEHLO_RESHAPE")
def reshape(n: TfliteNode) -> Result:
    return n.input(0).reshape(*_output_dims(n))


@stored_op("STABLEHLO_TRANSPOSE")
def transpose(n: TfliteNode) -> Result:
    x = n.input(0)
    return x.transpose(*n.axes(n.options("permutation"), x.type.rank))


@stored_op("STABLEHLO_CONCATENATE")
def concatenate(n: TfliteNode) -> Result:
    if not n.inputs:
        n.bad("expected at least one input, found none")
    axis = n.axis(n.option("dimension"), n.inputs[0].type.rank)
    return n.add(slicing.Concat(axis), *n.inputs)


@stored_op("STABLEHLO_BROADCAST_IN_DIM")
def broadcast_in_dim(n: TfliteNode) -> Result:
    x, axes = n.input(0), n.options("broadcast_dimensions")
    dims: list[Dim] = list(n.output_tensor().dims or ())
    if len(n.axes(axes, len(dims))) != x.type.rank or list(axes) != sorted(axes):
        n.bad(f"expected an ascending axis of {dims} for each of {x.type}, found {list(axes)}")
    wide: list[Dim] = [1] * len(dims)
    for a, d in zip(axes, x.type.shape, strict=True):
        wide[a] = d
    dims = [w if same_dim(d, OPEN) else d for d, w in zip(dims, wide, strict=True)]
    return n.expand(n.reshape(x, wide), dims)


@tflite_op("STABLEHLO_IOTA")
def iota(n: TfliteNode) -> Result:
    result = n.output_tensor()
    axis = n.axis(n.option("iota_dimension"), len(result.shape))
    numbers = n.positions(result.shape[axis], len(result.shape), axis)
    return n.expand(numbers.cast(result.dtype), result.shape)


@stored_op("STABLEHLO_SLICE")
def cut(n: TfliteNode) -> Result:
    x = n.input(0)
    lists = [n.options(name) for name in ("start_indices", "limit_indices", "strides")]
    if any(len(v) != x.type.rank for v in lists) or min(lists[2], default=1) < 1:
        n.bad(f"expected starts, limits and strides above 0 for {x.type}, found {lists}")
    starts, ends, steps = lists
    return n.add(slicing.Slice(starts, ends, tuple(range(x.type.rank)), steps), x)


def _starts(n: TfliteNode, first: int, rank: int) -> Value:
    """Starts along all axes, from a single input or from an input per axis."""
    inputs = [listed(n.input(i)) for i in range(first, len(n.slots))]
    starts = joined(*inputs) if inputs else n.of_dims(())
    if starts.type.size != rank:
        n.bad(f"expected {rank} starts, found {starts.type}")
    return starts


@stored_op("STABLEHLO_DYNAMIC_SLICE")
def dynamic_slice(n: TfliteNode) -> Result:
    x, sizes = n.input(0), n.options("slice_sizes")
    rank = x.type.rank
    starts = _starts(n, 1, rank)
    if len(sizes) != rank or min(sizes, default=0) < 0:
        n.bad(f"slice_sizes: expected {rank} numbers of 0 or more, found {list(sizes)}")
    room = n.of_dims([extents.difference(d, s) for d, s in zip(x.type.shape, sizes, strict=True)])
    starts = clamp(starts, 0, room)
    for axis, size in enumerate(sizes):
        if not same_dim(x.type.shape[axis], size):
            x = computed.taken(n, x, axis, n.positions(size) + picked(starts, axis))
    return x


@stored_op("STABLEHLO_DYNAMIC_UPDATE_SLICE")
def dynamic_update_slice(n: TfliteNode) -> Result:
    x = n.input(0)
    return updated(n, x, n.input(1), _starts(n, 2, x.type.rank))


@stored_op("STABLEHLO_PAD")
def pad(n: TfliteNode) -> Result:
    x, filler = n.input(0), n.input(1)
    names = ("edge_padding_low", "edge_padding_high", "interior_padding")
    low, high, inner = (n.options(name) for name in names)
    return padded(n, x, low, high, inner, filler)


def padded(
    n: TfliteNode,
    x: Value,
    low: Sequence[int],
    high: Sequence[int],
    inner: Sequence[int],
    filler: Value,
) -> Value:
    """`x` with `low` elements before each axis, `high` after it, and `inner` between neighbours."""
    rank = x.type.rank
    if not len(low) == len(high) == len(inner) == rank or min(inner, default=0) < 0:
        n.bad(f"expected borders for {x.type}, found {low}, {high}, {inner}")
    for axis, gap in enumerate(inner):
        if gap:  # `gap` columns of filler after each column but the last
            dims = list(x.type.shape)
            x = x.reshape(*dims[: axis + 1], 1, *dims[axis + 1 :])
            x = _bordered(n, x, {axis + 1: (0, gap)}, filler)
            dims[axis] = extents.product((dims[axis], gap + 1))
            x = _bordered(n, x.reshape(*dims), {axis: (0, -gap)}, filler)
    return _bordered(n, x, dict(enumerate(zip(low, high, strict=True))), filler)


def _bordered(n: TfliteNode, x: Value, borders: dict[int, tuple[int, int]], filler: Value) -> Value:
    pads: Sequence[int] = [borders.get(a, (0, 0))[i] for i in (0, 1) for a in range(x.type.rank)]
    if n.is_known(filler):
        return n.add(slicing.Pad(tuple(pads), "constant", n.scalar(filler, "the filler")), x)
    axes = tuple(range(x.type.rank))
    return computed.padded(n, x, n.of_dims(pads), axes, "constant", n.reshape(filler, ()))


@tflite_op("STABLEHLO_DOT_GENERAL")
def dot_general(n: TfliteNode) -> Result:
    a, b = n.input(0), n.input(1)
    names = [f"{side}_{kind}_dimensions" for kind in ("batching", "contracting")
             for side in ("lhs", "rhs")]  # fmt: skip
    ranks = (a.type.rank, b.type.rank) * 2
    lists = [n.axes(n.options(name), rank) for name, rank in zip(names, ranks, strict=True)]
    if len(lists[0]) != len(lists[1]) or len(lists[2]) != len(lists[3]) or sum(ranks[:2]) > 26:
        n.bad(f"expected pairs of axes, found {lists}")
    letters = iter("abcdefghijklmnopqrstuvwxyz")
    left, right = [""] * a.type.rank, [""] * b.type.rank
    for of_left, of_right in ((lists[0], lists[1]), (lists[2], lists[3])):
        for i, j in zip(of_left, of_right, strict=True):
            left[i] = right[j] = next(letters)
    batch = [left[i] for i in lists[0]]
    free = [[i for i, name in enumerate(side) if not name] for side in (left, right)]
    for side, axes in zip((left, right), free, strict=True):
        for i in axes:
            side[i] = next(letters)
    result = [*batch, *(left[i] for i in free[0]), *(right[i] for i in free[1])]
    return n.add(Einsum(f"{''.join(left)},{''.join(right)}->{''.join(result)}"), a, b)
