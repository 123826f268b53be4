"""Interleaved elements that go to different planes of a result: channels of pixels, phases of
images.

    for b in 2: for i: y[b, i] = x[2 * i + b]
      ->  for i in steps of L: for b in 2: y[b, i : i + L] = x[2 * i + b : 2 * (i + L) : 2]

One plane after the other would read every cache line of `x` once per plane.  All planes together
share the loads, and elements are selected in registers.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from tilesmith.ir.expr import Binary, Const, Expr, Var
from tilesmith.strategy.access import address_terms, places
from tilesmith.strategy.group import Group
from tilesmith.te.tensor import Compute

MOST = 8
"""Upper bound on planes that are written together, since each is a store stream."""


@dataclass(frozen=True, slots=True)
class Planes:
    """The planes of an output, numbered by `axis // step % count` of one axis.

    axis: number of this axis in the output.
    step: number of neighbouring indices that belong to the same plane.
    count: number of planes.
    """

    axis: int
    step: int
    count: int


def interleaved_planes(
    group: Group, op: Compute, inner: int, keep: Iterable[Compute], lanes: int
) -> Planes | None:
    """The planes to which `op` distributes elements that are interleaved along axis number `inner`;
    None if there are none.
    """
    number = {a.var: i for i, a in enumerate(op.axis)}
    for tensor, indices in places(op, keep)[:-1]:
        terms, _ = address_terms(tensor, indices, group.layout(tensor))
        stride = terms.get(op.axis[inner].var, 0)
        if not 2 <= stride <= min(MOST, lanes // 2):
            continue
        for atom in (e for e, k in terms.items() if k == 1):
            digit = _digit(atom, op, number)
            if digit is not None and digit.axis != inner and 2 <= digit.count <= stride:
                return digit
    return None


def _digit(e: Expr, op: Compute, number: dict[Var, int]) -> Planes | None:
    """The planes whose number is `e`.  None unless `e` is a quotient or remainder of an axis, as in
    `Planes`, and `step * count` divides the extent of this axis.
    """
    step, count = 1, 0
    if isinstance(e, Binary) and e.op == "floormod" and isinstance(e.b, Const):
        e, count = e.a, int(e.b.value)
    if isinstance(e, Binary) and e.op == "floordiv" and isinstance(e.b, Const):
        e, step = e.a, int(e.b.value)
    axis = number.get(e) if isinstance(e, Var) else None
    extent = None if axis is None else op.axis[axis].extent
    if axis is None or not isinstance(extent, int) or step < 1:
        return None
    count = count or extent // step
    return Planes(axis, step, count) if count and extent % (step * count) == 0 else None


def split_planes(
    stage: Any, axes: Sequence[Any], sizes: Sequence[int], planes: Planes
) -> tuple[list[Any], list[int], Any] | None:
    """Split the loop over planes off `axes` (outermost first, extents `sizes`).

    Returns the remaining loops, their extents, and the loop over planes.  None if the axis is fused
    with others.
    """
    where = next((n for n, a in enumerate(axes) if a == stage.axis[planes.axis]), None)
    if where is None or where == len(axes) - 1:
        return None
    digit = axes[where]
    left: list[tuple[Any, int]] = []
    if planes.step > 1:
        digit, low = stage.split(digit, factor=planes.step)
        left = [(low, planes.step)]
    periods = sizes[where] // (planes.step * planes.count)
    if periods > 1:
        high, digit = stage.split(digit, factor=planes.count)
        left = [(high, periods), *left]
    loops = [*zip(axes, sizes, strict=True)]
    loops[where : where + 1] = left
    return [a for a, _ in loops], [n for _, n in loops], digit
