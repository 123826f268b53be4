"""Vector loads of elements at known distances, as loads of contiguous vectors that cover them.

The vectors may include elements that adjacent unrolled loads read.  So they start at multiples of
their width where possible.  Then adjacent loads share vectors, and no vector crosses a cache line
needlessly.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from tilesmith.ir import expr as ir
from tilesmith.ir.affine import affine_form, from_affine
from tilesmith.ir.dtypes import i64
from tilesmith.ir.expr import Expr, const, reached, reads_memory
from tilesmith.ir.lane_offsets import lane_offsets
from tilesmith.loop.nodes import Buffer, Store

Place = tuple[Buffer, Expr]
"""A buffer, and an index into the buffer without its constant term."""

Reach = dict[Place, tuple[int, int]]
"""For each place, the first and the last element certainly read, relative to the place."""


def place(buffer: Buffer, index: Expr) -> tuple[Place, tuple[int, ...]] | None:
    """The place of a vector access, and the distance of each lane from it; None if not known."""
    lanes = lane_offsets(index)
    if lanes is None:
        return None
    terms, constant = affine_form(lanes[0])
    offsets = tuple(constant + o for o in lanes[1])
    return (buffer, from_affine(terms)), offsets


def reach(stores: Iterable[Store]) -> Reach:
    """For each place, the range of elements that the vector loads of consecutive stores certainly
    read, whatever the values of the masks.
    """
    ranges: Reach = {}
    for s in stores:
        own = known_lanes(s.mask)
        if s.mask is not None and own is None:
            continue
        for load in _unconditional(s.value):
            mask = known_lanes(load.mask)
            if not isinstance(load.buffer, Buffer) or (load.mask is not None and mask is None):
                continue
            where = place(load.buffer, load.indices[0]) if load.indices else None
            if where is None or reads_memory(where[0][1]):
                continue
            read = [o for i, o in enumerate(where[1]) if _all_on(i, own, mask)]
            if read:
                low, high = ranges.get(where[0], (read[0], read[0]))
                ranges[where[0]] = min(low, *read), max(high, *read)
    return ranges


def _all_on(lane: int, *masks: tuple[bool, ...] | None) -> bool:
    return all(m is None or m[lane] for m in masks)


def _unconditional(root: Expr) -> Iterator[ir.Load]:
    """The vector loads with strides other than 0 and 1 that `root` certainly executes."""
    ends = (ir.Load, ir.Select)
    for e in reached([root], lambda e: () if isinstance(e, ends) else e.children):
        if isinstance(e, ir.Load):
            index = e.indices[0] if len(e.indices) == 1 else None
            unit = isinstance(index, ir.Ramp) and index.stride is const(1)
            if index is not None and index.lanes > 1 and not unit:
                yield e


def known_lanes(mask: Expr | None) -> tuple[bool, ...] | None:
    """For each lane, whether a mask holds; None if this is not known at compile time."""
    if isinstance(mask, ir.Binary) and mask.op == "and":
        a, b = known_lanes(mask.a), known_lanes(mask.b)
        return None if a is None or b is None else tuple(x and y for x, y in zip(a, b, strict=True))
    if isinstance(mask, ir.Broadcast) and isinstance(mask.value, ir.Const):
        return (bool(mask.value.value),) * mask.lanes
    if not isinstance(mask, ir.Compare) or mask.lanes == 1 or mask.a.dtype is not i64:
        return None
    a, b = lane_offsets(mask.a), lane_offsets(mask.b)
    if a is None or b is None:
        return None
    (terms, left), (others, right) = affine_form(a[0]), affine_form(b[0])
    if terms != others:
        return None
    holds = _HOLDS[mask.op]
    return tuple(holds(left + x, right + y) for x, y in zip(a[1], b[1], strict=True))


_HOLDS = {
    "lt": int.__lt__,
    "le": int.__le__,
    "eq": int.__eq__,
    "ne": int.__ne__,
}


def cover(offsets: Sequence[int], low: int, high: int, lanes: int) -> tuple[int, list[int]]:
    """`(width, starts)` of contiguous vectors within `low..high` that contain all `offsets`."""
    width = 1 << (min(lanes, high - low + 1).bit_length() - 1)
    starts: list[int] = []
    for o in sorted(set(offsets)):
        if starts and o < starts[-1] + width:
            continue
        start = o - o % width
        if start < low or start + width - 1 > high:
            start = max(low, min(o, high - width + 1))
        starts.append(start)
    return width, starts
