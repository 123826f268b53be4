"""Vector indices as one scalar and a number for each lane."""

from __future__ import annotations

from dataclasses import dataclass

from .expr import Binary, Broadcast, Const, Expr, Load, Ramp, const
from .fold import fold_binary


def lane_offsets(e: Expr) -> tuple[Expr, tuple[int, ...]] | None:
    """`(base, offsets)` of a vector index that is a scalar plus a number per lane, else None."""
    if isinstance(e, Ramp) and isinstance(e.stride, Const):
        return e.base, tuple(int(e.stride.value) * i for i in range(e.lanes))
    if isinstance(e, Broadcast):
        return e.value, (0,) * e.lanes
    if not isinstance(e, Binary):
        return None
    a, b = lane_offsets(e.a), lane_offsets(e.b)
    if a is None or b is None:
        return None
    if e.op == "add" or (e.op == "sub" and isinstance(b[0], Const)):
        sign = 1 if e.op == "add" else -1
        offsets = tuple(x + sign * y for x, y in zip(a[1], b[1], strict=True))
        if isinstance(b[0], Const):
            return a[0], tuple(x + sign * int(b[0].value) for x in offsets)
        if isinstance(a[0], Const):
            return b[0], tuple(x + int(a[0].value) for x in offsets)
        return Binary("add", a[0], b[0]), offsets
    if not isinstance(a[0], Const) or not isinstance(b[0], Const):
        return None
    left = [int(a[0].value) + x for x in a[1]]
    right = [int(b[0].value) + x for x in b[1]]
    folded = [fold_binary(e.op, const(x), const(y)) for x, y in zip(left, right, strict=True)]
    if any(f is None for f in folded):
        return None
    return const(0), tuple(int(f.value) for f in folded if f is not None)


@dataclass(frozen=True, slots=True)
class Rows:
    """The positions of a tile's elements: rows of adjacent elements, with equal distances.

    first: the index of the first element, a scalar.
    count: number of rows.
    width: elements of a row.
    distance: elements between the beginnings of neighbouring rows.
    """

    first: Expr
    count: int
    width: int
    distance: int

    def index(self) -> Expr:
        """The vector index of the elements in row-major order, which `rows_of` recognises."""
        size = self.count * self.width
        ramp = Ramp(self.first, const(1), size)
        if self.distance == self.width:
            return ramp
        row = Binary("floordiv", Ramp(const(0), const(1), size), Broadcast(const(self.width), size))
        return ramp + row * Broadcast(const(self.distance - self.width), size)


def rows_of(index: Expr) -> Rows | None:
    """The rows of an index that `Rows.index` made; None for other indices.  Adjacent elements are
    one row.
    """
    if isinstance(index, Ramp):
        size = index.size
        return Rows(index.base, 1, size, size) if index.stride is const(1) else None
    if not isinstance(index, Binary) or not isinstance(index.a, Ramp):
        return None
    product = index.b
    if not isinstance(product, Binary) or not isinstance(product.a, Binary):
        return None
    width, gap = (_repeated(e) for e in (product.a.b, product.b))
    if width < 1 or index.lanes % width:
        return None
    rows = Rows(index.a.base, index.lanes // width, width, width + gap)
    return rows if rows.index() is index else None


def _repeated(e: Expr) -> int:
    """The constant that all lanes hold; 0 for other expressions."""
    value = e.value if isinstance(e, Broadcast) else None
    return int(value.value) if isinstance(value, Const) else 0


def lane_of(e: Expr, lane: int) -> Expr | None:
    """One lane of a sum of contiguous loads, ramps and broadcasts; None for other vectors."""
    if isinstance(e, Broadcast):
        return e.value
    if isinstance(e, Ramp):
        return e.base + e.stride * lane
    if isinstance(e, Load) and e.mask is None and len(e.indices) == 1:
        index = lane_of(e.indices[0], lane) if isinstance(e.indices[0], Ramp) else None
        return None if index is None else Load(e.buffer, (index,))
    if isinstance(e, Binary) and e.op == "add":
        a, b = lane_of(e.a, lane), lane_of(e.b, lane)
        return None if a is None or b is None else a + b
    return None
