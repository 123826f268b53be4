"""Operators of StableHLO that need no function: arithmetic, shapes, slices, products."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tilesmith.frontend.common import computed
from tilesmith.frontend.common.lists import joined, listed, picked
from tilesmith.frontend.common.slices import updated
from tilesmith.frontend.common.slots import Result
from tilesmith.graph.nodes import Value
from tilesmith.ir import extents
from tilesmith.ir.types import Dim, same_dim
from tilesmith.ops import activation as act
from tilesmith.ops import elementwise as ew
from tilesmith.ops import slicing
from tilesmith.ops.base import Op
from tilesmith.ops.einsum import Einsum
from tilesmith.ops.functions import clamp, where

from .node import HloNode
from .registry import hlo_op, same_operators

_UNARY: dict[str, Callable[[], Op]] = {
    "abs": ew.Abs,
    "cosine": ew.Cos,
    "exponential": ew.Exp,
    "floor": ew.Floor,
    "log": ew.Log,
    "logistic": act.Sigmoid,
    "negate": ew.Neg,
    "rsqrt": ew.Rsqrt,
    "tanh": ew.Tanh,
}
_BINARY: dict[str, Callable[[], Op]] = {
    "add": ew.Add,
    "divide": ew.Div,
    "maximum": ew.Max,
    "minimum": ew.Min,
    "multiply": ew.Mul,
    "power": ew.Pow,
    "remainder": lambda: ew.Mod(fmod=True),
    "shift_left": lambda: ew.BitShift("left"),
    "subtract": ew.Sub,
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

same_operators(_UNARY)
same_operators(_BINARY, 2, ("add", "maximum", "minimum", "multiply"))

_OPEN = -1
"""An extent that is not declared."""


@hlo_op("and")
def both(n: HloNode) -> Result:
    return n.input(0) & n.input(1)


@hlo_op("or")
def either(n: HloNode) -> Result:
    return n.input(0) | n.input(1)


@hlo_op("compare")
def compare(n: HloNode) -> Result:
    return compared(n, n.input(0), n.input(1))


def compared(n: HloNode, a: Value, b: Value) -> Value:
    """The comparison of `a` with `b` in the operator's direction."""
    make = _COMPARISONS[n.choice("comparison_direction", tuple(_COMPARISONS))]
    return n.add(make(), a, b)


@hlo_op("cbrt")
def cube_root(n: HloNode) -> Result:
    x = n.input(0)
    return n.add(ew.Sign(), x) * abs(x) ** (1 / 3)


@hlo_op("select", moves=True)
def select(n: HloNode) -> Result:
    return where(n.input(0), n.input(1), n.input(2))


@hlo_op("clamp")
def clamped(n: HloNode) -> Result:
    return clamp(n.input(1), n.input(0), n.input(2))


@hlo_op("convert")
def convert(n: HloNode) -> Result:
    return n.input(0).cast(n.output_dtype())


def _output_dims(n: HloNode) -> tuple[int, ...]:
    """The dimensions that the file declares for the output; at most one is open."""
    dims = n.output_dims()
    if dims is None or dims.count(_OPEN) > 1:
        n.unsupported(f"an output of shape {dims}, which only its declaration states")
    return dims


@hlo_op("reshape", moves=True)
def reshape(n: HloNode) -> Result:
    return n.input(0).reshape(*_output_dims(n))


@hlo_op("transpose", moves=True)
def transpose(n: HloNode) -> Result:
    x = n.input(0)
    return x.transpose(*n.axes(n.options("permutation"), x.type.rank))


@hlo_op("concatenate", moves=True)
def concatenate(n: HloNode) -> Result:
    if not n.inputs:
        n.bad("expected at least one input, found none")
    axis = n.axis(n.option("dimension"), n.inputs[0].type.rank)
    return n.add(slicing.Concat(axis), *n.inputs)


@hlo_op("broadcast_in_dim", moves=True)
def broadcast_in_dim(n: HloNode) -> Result:
    x, axes = n.input(0), n.options("broadcast_dimensions")
    dims: list[Dim] = list(n.output_dims() or ())
    if len(n.axes(axes, len(dims))) != x.type.rank or list(axes) != sorted(axes):
        n.bad(f"expected an ascending axis of {dims} for each of {x.type}, found {list(axes)}")
    wide: list[Dim] = [1] * len(dims)
    for a, d in zip(axes, x.type.shape, strict=True):
        wide[a] = d
    dims = [w if same_dim(d, _OPEN) else d for d, w in zip(dims, wide, strict=True)]
    return n.expand(n.reshape(x, wide), dims)


@hlo_op("iota")
def iota(n: HloNode) -> Result:
    dims = n.output_dims()
    if dims is None or _OPEN in dims:
        n.unsupported(f"an output of shape {dims}, which only its declaration states")
    axis = n.axis(n.option("iota_dimension"), len(dims))
    numbers = n.positions(dims[axis], len(dims), axis)
    return n.expand(numbers.cast(n.output_dtype()), dims)


@hlo_op("slice", moves=True)
def cut(n: HloNode) -> Result:
    x = n.input(0)
    lists = [n.options(name) for name in ("start_indices", "limit_indices", "strides")]
    if any(len(v) != x.type.rank for v in lists) or min(lists[2], default=1) < 1:
        n.bad(f"expected starts, limits and strides above 0 for {x.type}, found {lists}")
    starts, ends, steps = lists
    return n.add(slicing.Slice(starts, ends, tuple(range(x.type.rank)), steps), x)


def _starts(n: HloNode, first: int, rank: int) -> Value:
    """Starts along all axes, from a single input or from an input per axis."""
    inputs = [listed(n.input(i)) for i in range(first, len(n.slots))]
    starts = joined(*inputs) if inputs else n.of_dims(())
    if starts.type.size != rank:
        n.bad(f"expected {rank} starts, found {starts.type}")
    return starts


@hlo_op("dynamic_slice", moves=True)
def dynamic_slice(n: HloNode) -> Result:
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


@hlo_op("dynamic_update_slice", moves=True)
def dynamic_update_slice(n: HloNode) -> Result:
    x = n.input(0)
    return updated(n, x, n.input(1), _starts(n, 2, x.type.rank))


@hlo_op("pad", moves=True)
def pad(n: HloNode) -> Result:
    x, filler = n.input(0), n.input(1)
    names = ("edge_padding_low", "edge_padding_high", "interior_padding")
    low, high, inner = (n.options(name) for name in names)
    return padded(n, x, low, high, inner, filler)


def padded(
    n: HloNode,
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


def _bordered(n: HloNode, x: Value, borders: dict[int, tuple[int, int]], filler: Value) -> Value:
    pads: Sequence[int] = [borders.get(a, (0, 0))[i] for i in (0, 1) for a in range(x.type.rank)]
    if n.is_known(filler):
        return n.add(slicing.Pad(tuple(pads), "constant", n.scalar(filler, "the filler")), x)
    axes = tuple(range(x.type.rank))
    return computed.padded(n, x, n.of_dims(pads), axes, "constant", n.reshape(filler, ()))


@hlo_op("dot_general")
def dot_general(n: HloNode) -> Result:
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
    a, b = (v if v.dtype is n.output_dtype() else v.cast(n.output_dtype()) for v in (a, b))
    return n.add(Einsum(f"{''.join(left)},{''.join(right)}->{''.join(result)}"), a, b)
