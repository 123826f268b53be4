"""Loops of the stages of a Winograd convolution (`te.winograd`).

Transforms are computed vector by vector along the last axis, their first half in registers.  The
products are a matrix product per point: tiles of the image against vectors of the last axis.
"""

from __future__ import annotations

from tilesmith.ir.layout import Layout
from tilesmith.te.schedule import Schedule
from tilesmith.te.stage import Axis, Stage
from tilesmith.te.tensor import Tensor


def schedule_half(half: Stage, reader: Stage, at: Axis) -> None:
    """Schedule the first half of a transform, [point, position, ...], in registers at `at`."""
    half.compute_at(reader, at)
    half.set_scope("register")
    point, position, *others, lane = half.axis
    half.reorder(*others, position, point, lane)
    half.unroll(position)
    half.unroll(point)
    half.vectorize(lane)


def schedule_transform(stage: Stage, half: Stage, lanes: int) -> Axis | None:
    """Schedule a transform, [x, y, ...], in vectors of `lanes`; returns its outermost loop."""
    x, y, *others, last = stage.axis
    vector, lane = stage.split(last, factor=lanes)
    stage.reorder(*others, vector, x, y, lane)
    stage.unroll(x)
    stage.unroll(y)
    stage.vectorize(lane)
    schedule_half(half, stage, vector)
    return others[0] if others else None


def schedule_products(
    s: Schedule, products: Tensor, reader: Stage, at: Axis, place: int, rows: int, lanes: int,
    columns: int | None = None, steps: int = 1,
) -> tuple[Stage, Axis]:  # fmt: skip
    """Schedule the products at loop `at` of `reader`, in register tiles of `rows` rows along axis
    `place` and `columns` columns of the last axis (None: all columns that `at` needs).

    steps: reduction steps to unroll.

    Returns the register stage, and its reduction loop.
    """
    acc = s.cache_write(products, "register")
    stage, own = s[products], s[acc]
    stage.compute_at(reader, at)
    stage.set_scope("heap")
    far, last = [], stage.axis[-1]
    if columns is not None:
        outer, last = stage.split(last, factor=columns)
        far.append(outer)
    column, lane = stage.split(last, factor=lanes)
    outer, row = stage.split(stage.axis[place], factor=rows, tail="roundup")
    others = [a for n, a in enumerate(stage.axis[:-1]) if n != place]
    stage.reorder(*others, *far, outer, row, column, lane)
    own.compute_at(stage, outer)
    s.transform_layout(acc, Layout.with_innermost(acc.rank, acc.rank - 1, lanes))
    _unroll_tile(stage, row, column, lane)
    _, row = own.split(own.axis[place], factor=rows, tail="roundup")
    column, lane = own.split(own.axis[-1], factor=lanes)
    own.reorder(*own.reduce_axis, row, column, lane)
    step = own.reduce_axis[-1]
    if steps > 1:
        step, inner = own.split(step, factor=steps)
        own.unroll(inner)
    _unroll_tile(own, row, column, lane)
    return own, step


def _unroll_tile(stage: Stage, row: Axis, column: Axis, lane: Axis) -> None:
    stage.unroll(row)
    stage.unroll(column)
    stage.vectorize(lane)
