"""Core ML's slices, crops and pads."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tilesmith.frontend.common import computed
from tilesmith.frontend.common.lists import listed
from tilesmith.frontend.common.slots import Result
from tilesmith.frontend.coreml.node import MilNode
from tilesmith.frontend.coreml.registry import mil_op
from tilesmith.graph.nodes import Value
from tilesmith.ir import extents
from tilesmith.ir.dtypes import i64
from tilesmith.ir.types import Dim
from tilesmith.ops import scatter, shape, slicing
from tilesmith.ops.functions import where

_FAR = (1 << 31) - 1
"""An index past the end of every axis."""


def _bounds(n: MilNode, x: Value) -> tuple[Value, Value, tuple[int, ...], tuple[bool, ...]]:
    """The starts, the ends, the steps, and for each axis whether a single element is taken.

    Where a mask is true, the start or end is replaced by the respective end of the axis.
    """
    rank = x.type.rank
    begin, end = (listed(n.input(name)) for name in ("begin", "end"))
    steps = n.ints("stride", (1,) * rank)
    masks = [n.mask(f"{name}_mask", rank) for name in ("begin", "end", "squeeze")]
    if any(v.type.rank != 1 or v.type.shape != (rank,) for v in (begin, end)) or len(steps) != rank:
        n.bad(f"expected {rank} begins, ends and strides, found {begin.type} and {end.type}")
    steps = tuple(1 if single else s for s, single in zip(steps, masks[2], strict=True))
    backward = np.array(steps) < 0
    first = np.where(backward, _FAR, 0)
    last = np.where(backward, -_FAR, _FAR)
    next_ = begin + 1
    after = where(next_.equals(0), _FAR, next_)  # -1: the last element
    begin = where(n.const(np.array(masks[0])), n.const(first, i64), begin)
    end = where(n.const(np.array(masks[1])), n.const(last, i64), end)
    end = where(n.const(np.array(masks[2])), after, end)
    return begin, end, steps, masks[2]


@mil_op("slice_by_index")
def slice_by_index(n: MilNode) -> Result:
    x = n.input("x")
    begin, end, steps, single = _bounds(n, x)
    axes = tuple(range(x.type.rank))
    if n.is_known(begin) and n.is_known(end):
        op = slicing.Slice(n.dims(begin, "begin"), n.dims(end, "end"), axes, steps)
        y = n.add(op, x)
    else:
        y = computed.sliced(n, x, begin, end, axes, n.const(steps, i64))
        kept = [1 if s else d for s, d in zip(single, y.type.shape, strict=True)]
        y = computed.viewed(n, y, tuple(kept)) if any(single) else y
    return n.add(shape.Squeeze(tuple(a for a in axes if single[a])), y) if any(single) else y


@mil_op("slice_by_size")
def slice_by_size(n: MilNode) -> Result:
    x = n.input("x")
    begin, size = listed(n.input("begin")), listed(n.input("size"))
    begin = where(begin < 0, begin + n.of_dims(x.type.shape), begin)
    end = where(size.equals(-1), n.of_dims(x.type.shape), begin + size)
    axes = tuple(range(x.type.rank))
    if not (n.is_known(begin) and n.is_known(end)):
        return computed.sliced(n, x, begin, end, axes, None)
    steps = (1,) * len(axes)
    return n.add(slicing.Slice(n.dims(begin, "begin"), n.dims(end, "end"), axes, steps), x)


@mil_op("slice_update")
def slice_update(n: MilNode) -> Result:
    """x with the elements of a slice replaced by `update`."""
    x, update = n.input("x"), n.input("update")
    begin, _, steps, single = _bounds(n, x)
    rank = x.type.rank
    taken = iter(update.type.shape)
    dims: list[Dim] = [1 if s else next(taken) for s in single]
    update = n.reshape(update, dims)
    own = n.of_dims(x.type.shape)
    begin = where(begin < 0, begin + own, begin)
    first = [n.add(slicing.Slice((a,), (a + 1,), (0,), (1,)), begin) for a in range(rank)]
    places = [
        n.reshape(n.positions(d) * steps[a] + first[a], (*[1] * a, d, *[1] * (rank - a)))
        for a, d in enumerate(dims)
    ]
    wide = (n.expand(p, (*dims, 1)) for p in places)
    return n.add(scatter.ScatterNd(), x, n.add(slicing.Concat(rank), *wide), update)


def _padded(
    n: MilNode, x: Value, before: Sequence[Dim], after: Sequence[Dim], mode: str, filler: float
) -> Value:
    """x with borders around its last axes."""
    zeros = (0,) * (x.type.rank - len(before))
    op = slicing.Pad((*zeros, *before, *zeros, *after), mode, filler)
    return n.add(op, x)


_MODES = {"constant": "constant", "reflect": "reflect", "replicate": "edge"}


@mil_op("pad")
def pad(n: MilNode) -> Result:
    x = n.input("x")
    mode = _MODES[n.text("mode", "constant", tuple(_MODES))]
    filler = n.number("constant_val", 0.0)
    filler = filler if x.dtype.is_float else bool(filler) if x.dtype.is_bool else int(filler)
    pads = n.extents(listed(n.input("pad")), "pad")
    if len(pads) % 2 or len(pads) > 2 * x.type.rank:
        n.bad(f"pad: expected two numbers for each of the last axes, found {len(pads)}")
    return _padded(n, x, pads[::2], pads[1::2], mode, filler)


@mil_op("crop")
def crop(n: MilNode) -> Result:
    x, rows, columns = n.input("x"), n.ints("crop_height"), n.ints("crop_width")
    before, after = ([-r, -c] for r, c in zip(rows, columns, strict=True))
    return _padded(n, x, before, after, "constant", 0)


def part(n: MilNode, x: Value, axis: int, start: Dim, count: Dim) -> Value:
    """`count` elements of x along an axis."""
    end = extents.total((start, count))
    return n.add(slicing.Slice((start,), (end,), (axis,), (1,)), x)
