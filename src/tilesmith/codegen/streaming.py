"""Streaming stores, which write results that are too large for any cache past the caches.

An ordinary store to a line that is not cached first reads the line from memory, so a copy moves 3
bytes instead of 2.  A streaming store (LLVM's `!nontemporal`) writes a whole line without reading
it.  It is faster only where whole lines are written.  It is slower where the next kernel would have
found the result in a cache.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable
from itertools import pairwise

from tilesmith.ir.affine import affine_form
from tilesmith.ir.expr import Const, Expr
from tilesmith.ir.lane_offsets import lane_offsets
from tilesmith.ir.target import LINE_BYTES, Target
from tilesmith.loop.nodes import Buffer, Func, Store

# Minimum size in bytes of a streaming store: narrower stores have no vector instruction.
_LEAST_BYTES = 16


def streamed(func: Func, loaded: Collection[Buffer], target: Target) -> frozenset[Buffer]:
    """The outputs of `func` to write past the caches.  If all outputs together exceed
    every cache, these are the outputs that `func` does not read, else none.

    With ordinary stores, the first results would already be evicted at the end.  So a reader that
    begins with the first results loses nothing.
    """
    sizes = {b: b.dtype.bytes * math.prod(map(_extent, b.shape)) for b in func.outputs}
    if not target.overflows(sum(sizes.values())):
        return frozenset()
    return frozenset(b for b in sizes if b not in loaded)


def _extent(extent: Expr | int) -> int:
    """The extent as a number; 0 if it is not known."""
    if isinstance(extent, Const):
        return int(extent.value)
    return extent if isinstance(extent, int) else 0


def whole_lines(stores: Iterable[Store], buffers: Collection[Buffer]) -> dict[Store, int]:
    """The stores that together write whole cache lines of `buffers`, each with its alignment in
    bytes.

    stores: consecutive stores.
    buffers: buffers that start at a cache line.
    """
    runs: dict[tuple[object, ...], list[tuple[Store, int, int]]] = {}
    for s in stores:
        if s.buffer not in buffers or s.mask is not None or len(s.indices) != 1:
            continue
        lanes = lane_offsets(s.indices[0])
        if lanes is None or not _is_run(lanes[1]):
            continue
        terms, constant = affine_form(lanes[0])
        size = s.buffer.dtype.bytes
        first, bytes_ = (constant + min(lanes[1])) * size, len(lanes[1]) * size
        if math.gcd(LINE_BYTES, *(k * size for k in terms.values())) != LINE_BYTES:
            continue
        whole_vector = bytes_ >= _LEAST_BYTES and bytes_ & (bytes_ - 1) == 0
        if whole_vector and first % min(bytes_, LINE_BYTES // 2) == 0:
            key = (s.buffer, frozenset(terms.items()))
            runs.setdefault(key, []).append((s, first, bytes_))
    chosen: dict[Store, int] = {}
    for group in runs.values():
        written = {b for _, first, n in group for b in range(first, first + n, _LEAST_BYTES)}
        for s, first, n in group:
            last = -(-(first + n) // LINE_BYTES) * LINE_BYTES
            line = first - first % LINE_BYTES
            if all(b in written for b in range(line, last, _LEAST_BYTES)):
                chosen[s] = math.gcd(LINE_BYTES, first)
    return chosen


def _is_run(offsets: tuple[int, ...]) -> bool:
    """True for contiguous lanes, in either direction."""
    steps = {b - a for a, b in pairwise(offsets)}
    return len(steps) == 1 and steps <= {1, -1}
