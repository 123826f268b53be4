"""Schedules for contractions: a register tile under elementwise epilogues.

    parallel over batch, column blocks, outer rows
      rows in steps of tile.rows
        acc[rows, columns] in registers
        for windows, k: acc += x (broadcast) * w (vectors)
        epilogue, stored tile by tile; if long, it is a loop over the rows of a copy of acc

`w` is read in column blocks.  A constant `w` is packed at compile time.  A `w` that is not
contiguous along the vector axis is packed in a first pass of the kernel.  If the window of `x` has
padding, `x` is copied once into a buffer with the border.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from tilesmith.ir.expr import Call, index_of, post_order
from tilesmith.ir.layout import Layout
from tilesmith.ir.symbols import expected, expected_size
from tilesmith.ir.types import same_dim
from tilesmith.ops.structure import COSTLY
from tilesmith.perf.cost import constants_place
from tilesmith.te.knobs import Config
from tilesmith.te.schedule import Schedule
from tilesmith.te.tensor import Compute

from .contraction import (
    RegisterTile,
    best_tile,
    column_block,
    column_span,
    is_worth_sharing,
    joined_steps,
    outer_extent,
    reduction_order,
    row_distance,
    single_row_vectors,
    stays_near,
    tile_vectors,
)
from .dot_instructions import dot_for, lane_products_for
from .operands import (
    dot_of_variables,
    lies_along,
    prefetch_block,
    runs_along,
    schedule_operands,
    strides_through,
)
from .product import Product
from .reduction import in_vectors
from .sliding import slide_of, sliding_tile
from .unrolling import UNROLL_FACTORS, unrolled_steps


def schedule_contraction(s: Schedule, p: Product, cfg: Config) -> bool:
    """Schedule the whole group around a product.  This form accepts every product."""
    group, c, target = p.group, p.c, p.target
    joined = joined_steps(group.layouts.get(c.w.buffer))  # type: ignore[arg-type]  # a tensor
    dot = dot_for(c, target) if joined > 1 else dot_of_variables(group, c, p.rows, target, cfg)
    if dot is not None:
        joined = dot.extents[-1]
    span = column_span(c, p.columns, p.lanes)
    scratch = 0 if dot is None else dot.scratch
    tile, steps = _tile(p, span, cfg, scratch)
    epilogue = p.epilogue
    p.inline(s, epilogue)
    schedule_operands(s, group, c, tile, target, cfg, joined)

    acc = kept = p.accumulator(s, "register")
    o = s[p.result]
    is_long = tile.rows > 1 and _is_long(epilogue)
    is_kept = p.result.op is not c.op and cfg.choice("keep", (False, True), is_long)
    if is_kept:
        s[kept].set_scope("stack")
        acc = s.cache_write(kept, "register")
    a = s[acc]
    width = min(tile.columns, span)
    height = min(tile.rows, p.rows)
    level, blocks = p.tile(s, width, height, cfg, stays_near(c, target), is_kept)
    in_vectors(o, o.leaf_axes[-1], width, tile.lanes)

    if is_kept:
        s[kept].compute_at(o, level)
    a.compute_at(o, level)
    row_at, vector_at = p.row_at, p.vector_at
    merged = len(row_at) - 1  # the row axes of `acc` are merged into one
    vector_axis = a.axis[vector_at - merged if row_at and vector_at > row_at[0] else vector_at]
    last = a.axis.index(vector_axis)
    # Rows are whole vectors, so that registers can hold the accumulators.
    s.transform_layout(acc, Layout.with_innermost(acc.rank, last, tile.lanes))
    spatial = [a.axis[row_at[0]], vector_axis] if row_at else [vector_axis]
    places = [a.axis.index(x) for x in spatial]
    single = [x for x in a.axis if x not in spatial]
    reduce_axes = [a.reduce_axis[index_of(c.op.reduce_axis, k)] for k in reduction_order(c)]
    within: list[Any] = []
    if dot is not None:
        reduce_axes[-1], together = a.split(reduce_axes[-1], factor=joined)
        within.append(together)
    a.reorder(*single, *reduce_axes, *spatial, *within)
    step = _unroll(a, reduce_axes[-1], steps, cfg)
    if blocks is not None:
        often = blocks.parts * blocks.passes >= tile.vectors
        prefetch_block(a, group, c.w.buffer, blocks.axis, blocks.parts, step, often, target, cfg)
    for x in spatial[:-1]:
        a.unroll(x)
    own = lane_products_for(c, target) if dot is None and width % tile.lanes == 0 else None
    if own is not None and not all(lies_along(s, group, f, p.vector.var) for f in (c.x, c.w)):
        own = None  # several lanes may read one element, if a channel of `x` has several filters
    if own is not None:
        vectors, lanes = a.split(spatial[-1], factor=tile.lanes)
        a.unroll(vectors)
        a.tensorize(lanes, own)
    elif dot is None:
        in_vectors(a, spatial[-1], width, tile.lanes)
    else:
        # Weights are packed in whole vectors, so the last vector is multiplied as a whole.
        tail = "roundup" if p.columns % tile.lanes else "peel"
        vectors, lanes = a.split(spatial[-1], factor=tile.lanes, tail=tail)
        a.unroll(vectors)
        a.tensorize(lanes if dot.result.shape else within[0], dot)
    if is_kept:
        s.transform_layout(kept, Layout.with_innermost(kept.rank, last))
        t = s[kept]
        axes = [t.axis[i] for i in places]
        t.reorder(*(x for x in t.axis if x not in axes), *axes)
        for x in axes[:-1]:
            t.unroll(x)
        in_vectors(t, axes[-1], width, tile.lanes)
    return True


def _is_long(epilogue: Iterable[Compute]) -> bool:
    """Whether an epilogue computes a function of many instructions.

    A long epilogue should be a loop over the rows of a stored tile, not unrolled for each
    accumulator.  The accumulators then leave registers free for the constants of the loop.
    """
    calls = (n for st in epilogue for b in st.body for n in post_order(b) if isinstance(n, Call))
    return any(n.name in COSTLY for n in calls)


def _unroll(stage: Any, axis: Any, best: int, cfg: Config) -> Any:
    """Unroll steps of a reduction; by default `best` steps.  Returns the loop around the unrolled
    steps.
    """
    extent = expected(axis.extent)
    best = best if extent % best == 0 else 1
    steps = cfg.choice("unroll", lambda: [n for n in UNROLL_FACTORS if extent % n == 0], best)
    if steps > 1:
        axis, inner = stage.split(axis, factor=steps)
        stage.unroll(inner)
    return axis


def _tile(p: Product, columns: int, cfg: Config, scratch: int) -> tuple[RegisterTile, int]:
    """The register tile, and the number of reduction steps to unroll.

    If `w` is packed already, the width of its column blocks is the width of the tile.
    """
    group, c, run, rows, target = p.group, p.c, p.run, p.rows, p.target
    joined = joined_steps(group.layouts.get(c.w.buffer))  # type: ignore[arg-type]  # a tensor
    element = c.op.outputs[0].dtype.bytes
    slide = slide_of(c, run) if joined == 1 else None
    walk = strides_through(group, c.x) if run else None
    distance = row_distance(c) if walk is None else abs(walk.get(run[-1].var, 0))

    def choose(vectors: int | None = None) -> tuple[RegisterTile, int]:
        # Decisions are keys of a table, so they must be plain ints.
        vectors = None if vectors is None else int(vectors)
        if slide is not None:
            best = sliding_tile(slide, rows, columns, target, element, vectors)
            if best[1] > 1:
                return best
        row_bytes = distance * c.x.dtype.bytes
        outer = outer_extent(c)
        tile, _ = best_tile(
            rows, columns, target, element, True, vectors, row_bytes, outer, scratch,
            is_worth_sharing(c, target),
        )  # fmt: skip
        last = expected(reduction_order(c)[-1].extent) // joined
        return tile, unrolled_steps(last, tile.rows * tile.vectors, target)

    tile, steps = choose()
    column = column_block(group.layouts.get(c.w.buffer))  # type: ignore[arg-type]  # a tensor
    if column is not None:
        vectors = max(column.block // tile.lanes, 1)
    else:
        widths, best = tile_vectors(columns, tile.lanes), tile.vectors
        if rows == 1 and runs_along(group, c.w, p.vector.var):
            place = constants_place(expected_size(c.w.buffer.shape) * c.w.dtype.bytes, target)
            best = single_row_vectors(columns, tile.lanes, target, place != "dram") or best
            widths = sorted({*widths, best})
        vectors = cfg.choice("vectors", widths, best)
    if not same_dim(vectors, tile.vectors):  # `vectors` is a symbol while features are traced
        tile, steps = choose(vectors)
    highest = max((target.vector_registers - 1 - scratch - vectors) // vectors, tile.rows)
    height = cfg.choice("rows", lambda: range(1, min(highest, rows) + 1), tile.rows)
    return RegisterTile(height, tile.vectors, tile.lanes), steps
