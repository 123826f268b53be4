"""The loops of an attention kernel's result: heads, rows and columns, in the order in which the
result is stored.

A transpose and a reshape after the second contraction merge heads into one axis.  The axes of the
result are split to undo the merge.  So tiles are stored directly in the result.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from tilesmith.ir.expr import Binary, Const, Expr, Load, Var, const, post_order, same
from tilesmith.ir.simplify import EMPTY, simplify
from tilesmith.ir.target import Target
from tilesmith.ir.types import same_shape
from tilesmith.ops.structure import loads
from tilesmith.strategy.access import expand
from tilesmith.strategy.group import Group
from tilesmith.te.tensor import Compute, IterVar

from .contraction import RegisterTile, best_tile


@dataclass(frozen=True, slots=True, eq=False)
class Result:
    """The stage whose loops contain the loops of all other stages.

    stage: the stage itself.
    indices: the indices at which `stage` reads the second contraction.
    split: axes of `stage` that merge two axes of the second contraction, each with the extent of
        the inner one of the two.
    tile: register tile of the second contraction.
    """

    stage: Compute
    indices: tuple[Expr, ...]
    split: dict[Var, int]
    tile: RegisterTile


def find_result(
    group: Group, values: Compute, epilogue: Iterable[Compute], target: Target
) -> Result:
    """The result stage of a group whose second contraction is `values`, followed by `epilogue`.

    The stage is the group's output, if rows and columns are loops of the output after its axes are
    split.  Otherwise the stage is the last elementwise stage after the contraction.
    """
    out = group.outputs[0].op
    assert isinstance(out, Compute)
    place = reading(out, values)
    if place is not None:
        merged = [not isinstance(i, Var) for i in place[0][-2:]]
        tile = _tile(values, merged[0], merged[1], target)
        if tile is not None:
            return Result(out, *place, tile)
    top = values
    for stage in epilogue:
        own = tuple(x.var for x in stage.axis)
        reads = [x for x in loads(stage) if x.buffer is top.outputs[0]]
        whole = same_shape(_shape(stage), _shape(values))
        if not whole or any(not same(x.indices, own) for x in reads):
            break
        top = stage
    tile = _tile(values, False, False, target)
    assert tile is not None
    return Result(top, tuple(x.var for x in top.axis), {}, tile)


def _tile(
    values: Compute, merged_rows: bool, merged_columns: bool, target: Target
) -> RegisterTile | None:
    """The register tile of the second contraction; None if a merged axis is not divisible by a good
    tile.

    If the result merges an axis with others, the axis must be a multiple of the tile.  A tail tile
    would extend into the next head.
    """
    rows, width = extent(values.axis[-2]), extent(values.axis[-1])
    element = values.outputs[0].dtype.bytes
    lanes = target.vector_lanes(element)
    tile, _ = best_tile(rows, width, target, element)
    if merged_columns and width % tile.columns:
        vectors = _dividing_vectors(width, lanes)
        if vectors is None:
            return None
        tile, _ = best_tile(rows, width, target, element, vectors=vectors)
    height = min(tile.rows, rows)
    if merged_rows and rows % height:
        fit = max(n for n in range(1, height + 1) if rows % n == 0)
        if 2 * fit <= height:
            return None
        height = fit
    return RegisterTile(height, tile.vectors, lanes)


def _dividing_vectors(width: int, lanes: int) -> int | None:
    """Vectors of the widest tile that divides `width`, at most 6; None if there is none.  1 if one
    vector holds `width`.
    """
    if width <= lanes:
        return 1
    return next((v for v in range(6, 0, -1) if width % (v * lanes) == 0), None)


def reading(out: Compute, values: Compute) -> tuple[tuple[Expr, ...], dict[Var, int]] | None:
    """The indices at which `out` reads `values`, and the merged axes.  A merged axis of `out` joins
    two axes of `values`; its entry is the extent of the inner one.  None if `out` reads several
    elements, or if one of the last two indices is neither an axis of `out` nor part of a merged
    axis.
    """
    if out is values:
        return tuple(x.var for x in out.axis), {}
    places: set[tuple[Expr, ...]] = set()
    for body in expand(out, keep=(values,)):
        for e in post_order(body):
            if isinstance(e, Load) and any(e.buffer is t for t in values.outputs):
                places.add(simplified(e.indices, out.axis))
    if len(places) != 1:
        return None
    (indices,) = places
    split: dict[Var, int] = {}
    for i in indices:
        if isinstance(i, (Var, Const)):
            continue
        if not isinstance(i, Binary) or i.op not in ("floordiv", "floormod"):
            return None
        if not isinstance(i.a, Var) or not isinstance(i.b, Const):
            return None
        if split.setdefault(i.a, int(i.b.value)) != i.b.value:
            return None
    if any(isinstance(i, Const) for i in indices[-2:]) or any(i in split for i in indices):
        return None
    return indices, split


def result_loops(
    o: Any, group: Group, result: Result
) -> tuple[list[tuple[int | None, Any, int]], Any, Any]:
    """Loops of stage `o`: (outer loops, the loop over rows, the loop over columns).

    Each outer loop is a triple: axis number in the second contraction (None for an axis of one
    element), loop, extent.
    """
    loops: dict[Expr, tuple[Any, int]] = {}
    stage = result.stage
    for i in dict.fromkeys(d.axis for d in group.layout(stage.outputs[0]).dims):
        axis = stage.axis[i]
        inner = result.split.get(axis.var)
        if inner is None:
            loops[axis.var] = (o.axis[i], extent(axis))
        else:
            outside, inside = o.split(o.axis[i], factor=inner)
            loops[Binary("floordiv", axis.var, const(inner))] = (outside, extent(axis) // inner)
            loops[Binary("floormod", axis.var, const(inner))] = (inside, inner)
    m, d = (loops.pop(i)[0] for i in result.indices[-2:])
    number: dict[Expr, int] = {e: i for i, e in enumerate(result.indices)}
    return [(number.get(e), x, n) for e, (x, n) in loops.items()], m, d


def simplified(indices: Iterable[Expr], axes: Iterable[IterVar]) -> tuple[Expr, ...]:
    """`indices`, simplified with the ranges of `axes`."""
    ctx = EMPTY
    for x in axes:
        ctx = ctx.with_var(x.var, const(0), const(extent(x) - 1))
    return tuple(simplify(i, ctx) for i in indices)


def extent(axis: IterVar) -> int:
    """The extent of an axis, which must be a constant."""
    assert isinstance(axis.extent, int)
    return axis.extent


def _shape(op: Compute) -> tuple[Any, ...]:
    return tuple(x.extent for x in op.axis)
