"""Interleaved elements that go to different planes of a result: channels of pixels, phases of
images.

    for b in 2: for i: y[b, i] = x[2 * i + b]
      ->  for i in steps of L: for b in 2: y[b, i : i + L] = x[2 * i + b, and each second]

Taken one plane after the other, every cache line of `x` is read once for each; side by side, the
planes share what is read, and its elements are picked in registers.
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
"""Most planes that are written side by side: each is a stream of its own."""


@dataclass(frozen=True, slots=True)
class Planes:
    """The plane is the digit `axis // step % count` of an axis number of the output."""

    axis: int
    step: int
    count: int


def interleaved_planes(
    group: Group, op: Compute, inner: int, keep: Iterable[Compute], lanes: int
) -> Planes | None:
    """The planes that `op` takes the elements of a tensor apart into while it walks axis number
    `inner`; None when it does nothing of that kind.
    """
    number = {a.var: i for i, a in enumerate(op.axis)}
    for tensor, at in places(op, keep)[:-1]:
        terms, _ = address_terms(tensor, at, group.layout(tensor))
        stride = terms.get(op.axis[inner].var, 0)
        if not 2 <= stride <= min(MOST, lanes // 2):
            continue
        for atom in (e for e, k in terms.items() if k == 1):
            found = _digit(atom, op, number)
            if found is not None and found.axis != inner and 2 <= found.count <= stride:
                return found
    return None


def _digit(e: Expr, op: Compute, number: dict[Var, int]) -> Planes | None:
    """`e` as a digit of an axis whose extent it divides into whole periods."""
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
    """Take the loop over planes out of `axes` (outermost first, extents `sizes`): the loops that
    are left, their extents, and the loop over planes.  None when the axis is fused with others.
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
