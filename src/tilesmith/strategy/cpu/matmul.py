"""Schedules for contractions: a register tile under elementwise epilogues.

    parallel over batch, column blocks, outer rows
      rows in steps of tile.rows
        acc[rows, columns] in registers
        for windows, k: acc += x (broadcast) * w (vectors)
        epilogue, stored tile by tile; a long one in a loop over the rows of a copy of acc

`w` is read in column blocks.  A constant `w` is packed at compile time.  A `w` that is not
contiguous along the vector axis is packed in a first pass of the kernel.  If the window of `x` has
padding, `x` is copied once into a buffer with the border.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from tilesmith.ir.expr import Call, index_of, post_order
from tilesmith.ir.layout import Layout, LayoutDim
from tilesmith.ir.loop_tables import Scope
from tilesmith.ir.symbols import expected, expected_size
from tilesmith.ir.target import Target
from tilesmith.ir.types import same_dim, same_shape
from tilesmith.ops.structure import COSTLY, loads
from tilesmith.perf.cost import constants_place
from tilesmith.strategy.access import accesses
from tilesmith.strategy.group import Group
from tilesmith.te.knobs import ANALYTIC, Config
from tilesmith.te.schedule import Schedule
from tilesmith.te.stage import Axis
from tilesmith.te.tensor import Compute, IterVar, Tensor

from .contraction import (
    Contraction,
    RegisterTile,
    analyse,
    choose_tile,
    column_block,
    column_span,
    fusable_rows,
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
from .sliding import slide_of, sliding_tile
from .unrolling import UNROLL_FACTORS, unrolled_steps


@dataclass(frozen=True, slots=True)
class BlockLoop:
    """The loop that walks the column blocks of an output.

    axis: the loop.  It may be fused with others.
    parts: successive iterations of the loop with the same block.
    passes: tiles in each of these iterations.
    """

    axis: Axis
    parts: int
    passes: int


def schedule_contraction(
    s: Schedule, group: Group, anchor: Compute, target: Target, cfg: Config = ANALYTIC
) -> bool:
    """Schedule the whole group around `anchor`.

    Returns False, with nothing done, for a form that it does not recognise.
    """
    out = group.outputs[0].op
    if len(group.outputs) != 1 or not isinstance(out, Compute) or len(out.axis) != len(anchor.axis):
        return False
    if not same_shape(out.shape, anchor.shape):
        return False
    if not out.axis:  # a dot product: lanes can run along the reduction axis only
        return False
    layout = group.layout(group.outputs[0])
    constants = frozenset(t for t in group.inputs if t in group.layouts)
    packed = packed_axis(group, anchor)
    contiguous = innermost(layout, anchor) if packed is None else packed
    c = analyse(anchor, constants, contiguous)
    if c is None or c.vector is None:
        return False
    position = {a: i for i, a in enumerate(anchor.axis)}
    columns = expected(c.vector.extent)
    run = linear_run(group, c, fusable_rows(c))
    rows = expected_size(a.extent for a in run)
    joined = joined_steps(group.layouts.get(c.w.buffer))  # type: ignore[arg-type]  # a tensor
    dot = dot_for(c, target) if joined > 1 else dot_of_variables(group, c, rows, target, cfg)
    if dot is not None:
        joined = dot.extents[-1]
    span = column_span(c, columns, target.vector_lanes(anchor.outputs[0].dtype.bytes))
    scratch = 0 if dot is None else dot.scratch
    tile, steps = _tile(group, c, run, rows, span, target, cfg, scratch)
    after = stages_after(group, anchor)
    for stage in group.stages:
        if stage is not anchor and stage is not out and not stage.reduce_axis and stage in after:
            s[stage.outputs[0]].compute_inline()
    schedule_operands(s, group, c, tile, target, cfg, joined)

    acc = accumulator(s, group, anchor, "register")
    o = s[group.outputs[0]]

    order = [d.axis for d in layout.dims]
    vector_at = position[c.vector]
    row_at = [position[r] for r in run]
    if len(row_at) > 1:
        acc = s.flatten_axes(acc, *(s[acc].axis[i] for i in row_at))
    kept = acc
    is_long = tile.rows > 1 and _is_long(after)
    is_kept = out is not anchor and cfg.choice("keep", (False, True), is_long)
    if is_kept:
        s[kept].set_scope("stack")
        acc = s.cache_write(kept, "register")
    a = s[acc]
    width = min(tile.columns, span)
    height = min(tile.rows, rows)
    near = stays_near(c, target)
    level, blocks = tile_output(
        o, anchor, c, order, vector_at, row_at, width, height, near, target, cfg, is_kept
    )
    _vectorize(o, o.leaf_axes[-1], width, tile.lanes)

    if is_kept:
        s[kept].compute_at(o, level)
    a.compute_at(o, level)
    merged = len(row_at) - 1  # axes of `acc` that flattening merged, all at row_at[0]
    vector_axis = a.axis[vector_at - merged if row_at and vector_at > row_at[0] else vector_at]
    last = a.axis.index(vector_axis)
    others = [i for i in range(len(a.axis)) if i != last]
    # rows are whole vectors, so that each vector can be a register
    vectors = LayoutDim(last, "outer", tile.lanes), LayoutDim(last, "inner", tile.lanes)
    s.transform_layout(acc, Layout((*(LayoutDim(i) for i in others), *vectors)))
    spatial = [a.axis[row_at[0]], vector_axis] if row_at else [vector_axis]
    places = [a.axis.index(x) for x in spatial]
    single = [x for x in a.axis if x not in spatial]
    reduce_axes = [a.reduce_axis[index_of(anchor.reduce_axis, k)] for k in reduction_order(c)]
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
    if own is not None and not all(lies_along(s, group, f, c.vector.var) for f in (c.x, c.w)):
        own = None  # for instance two channels made from one: a lane of `x` is read twice
    if own is not None:
        vectors, lanes = a.split(spatial[-1], factor=tile.lanes)
        a.unroll(vectors)
        a.tensorize(lanes, own)
    elif dot is None:
        _vectorize(a, spatial[-1], width, tile.lanes)
    else:
        # weights are packed in whole vectors, so the last vector is multiplied as a whole
        tail = "roundup" if columns % tile.lanes else "peel"
        vectors, lanes = a.split(spatial[-1], factor=tile.lanes, tail=tail)
        a.unroll(vectors)
        a.tensorize(lanes if dot.result.shape else within[0], dot)
    if is_kept:
        s.transform_layout(kept, Layout((*(LayoutDim(i) for i in others), LayoutDim(last))))
        t = s[kept]
        axes = [t.axis[i] for i in places]
        t.reorder(*(x for x in t.axis if x not in axes), *axes)
        for x in axes[:-1]:
            t.unroll(x)
        _vectorize(t, axes[-1], width, tile.lanes)
    return True


def tile_output(
    o: Any,
    anchor: Compute,
    c: Contraction,
    order: list[int],
    vector_at: int,
    row_at: list[int],
    width: int,
    height: int,
    near: bool,
    target: Target,
    cfg: Config,
    loop_rows: bool = False,
) -> tuple[Any, BlockLoop | None]:
    """Tile the output and share its outer loops among threads.

    Returns the loop that holds one tile, and the loop over column blocks if there are several and
    it is outside of that loop.

    Column blocks are outside the loops that read the same weights.  A loop whose last block is not
    full will be peeled.  So it stays separate: innermost, and not fused with others.

    loop_rows: whether the rows of a tile are a loop, not unrolled.
    """
    extents = [expected(a.extent) for a in anchor.axis]
    columns = extents[vector_at]
    outer = [i for i in order if i != vector_at and i not in row_at]
    of_batch = set(c.batch)
    batch = [(o.axis[i], extents[i]) for i in outer if anchor.axis[i] in of_batch]
    rest = [(o.axis[i], extents[i]) for i in outer if anchor.axis[i] not in of_batch]
    rows = [o.axis[i] for i in row_at]
    co, ci = o.split(o.axis[vector_at], factor=width)
    blocks = [(co, -(-columns // width))]
    exact = columns % width == 0
    outside = exact and bool(rows) and not c.is_batched and not near
    if exact and blocks[0][1] > 1:
        outside = cfg.choice("columns_outside", (False, True), outside)
    loops = [*batch, *blocks, *rest] if outside else [*batch, *rest, *blocks]
    o.reorder(*(x for x, _ in loops), *rows, ci)
    level = co
    inner: list[tuple[Any, int]] = [] if exact else blocks
    count = expected_size(extents[i] for i in row_at)
    if rows:
        row = rows[0]
        for x in rows[1:]:
            row = o.fuse(row, x)
        level, tile_row = o.split(row, factor=height)
        if not loop_rows:
            o.unroll(tile_row)
        inner = [*inner, (level, -(-count // height))]
    shared, fused = None, []
    if expected_size((*extents, *(k.extent for k in anchor.reduce_axis))) >= target.parallel_fmas:
        whole = [x for x in loops if exact or x not in blocks]
        fits = exact and not (rows and count % height)
        shared, fused = _share(o, whole, inner, fits, blocks if near else [], target, cfg)
        if level not in o.leaf_axes:
            level = shared
    own = next((n for n, (x, _) in enumerate(fused) if x is co), None)
    parts = 1 if own is None else math.prod(n for _, n in fused[own + 1 :])
    axis, leaves = co if own is None or shared is None else shared, o.leaf_axes
    if axis is level or axis not in leaves or columns <= width:
        return level, None
    inside = leaves[leaves.index(axis) + 1 : leaves.index(level) + 1]
    return level, BlockLoop(axis, parts, expected_size(x.extent for x in inside))


def _is_long(epilogue: Iterable[Compute]) -> bool:
    """Whether an epilogue computes a function of many instructions.

    Such an epilogue is better a loop over the rows of a stored tile than a copy per accumulator.
    The loop keeps its constants in registers, with no accumulators beside them.
    """
    calls = (n for st in epilogue for b in st.body for n in post_order(b) if isinstance(n, Call))
    return any(n.name in COSTLY for n in calls)


def _share(
    o: Any,
    whole: list[tuple[Any, int]],
    inner: list[tuple[Any, int]],
    fits: bool,
    last: list[tuple[Any, int]],
    target: Target,
    cfg: Config,
) -> tuple[Any, list[tuple[Any, int]]]:
    """Share loops among threads.  Returns the shared loop, and the loops that were fused into it.

    The `whole` loops are fused and shared if they have enough iterations for an even division.
    Otherwise the longest of the `inner` loops is shared.  If tiles have no remainder (`fits`), it
    is fused with the loops outside it, `last` of them innermost.  If not, it is shared alone, with
    a fork and join in each iteration of the outer loops.
    """
    loops = whole
    trips = expected_size(n for _, n in loops)
    longest = max(inner, key=lambda x: x[1], default=None)
    if longest is not None:
        inside = trips < target.shared_trips and longest[1] > (1 if fits else trips)
        if cfg.choice("share_inside", (False, True) if whole else (inside,), inside):
            whole = [longest]
            if fits:
                whole = [*(x for x in loops if x not in last), longest, *last]
                o.reorder(*(x for x, _ in whole))
    if not whole:
        return None, []
    shared = whole[0][0]
    for x, _ in whole[1:]:
        shared = o.fuse(shared, x)
    o.parallel(shared)
    return shared, whole


def _unroll(stage: Any, axis: Any, best: int, cfg: Config) -> Any:
    """Unroll steps of a reduction, `best` of them by default.  Returns the loop around them."""
    extent = expected(axis.extent)
    best = best if extent % best == 0 else 1
    steps = cfg.choice("unroll", lambda: [n for n in UNROLL_FACTORS if extent % n == 0], best)
    if steps > 1:
        axis, inner = stage.split(axis, factor=steps)
        stage.unroll(inner)
    return axis


def _vectorize(stage: Any, axis: Any, width: int, lanes: int) -> None:
    if width <= lanes:
        if width > 1:
            stage.vectorize(axis)
        return
    outer, inner = stage.split(axis, factor=lanes)
    stage.unroll(outer)
    stage.vectorize(inner)


def packed_axis(group: Group, op: Compute) -> IterVar | None:
    """The output axis along which weights were packed in blocks: lanes run along it in any case."""
    for load in loads(op):
        column = column_block(group.layouts.get(load.buffer))  # type: ignore[arg-type]  # a tensor
        if column is not None:
            index = load.indices[column.axis]
            return next((a for a in op.axis if a.var is index), None)
    return None


def accumulator(s: Schedule, group: Group, anchor: Compute, scope: Scope) -> Tensor:
    """The tensor in `scope` where `anchor` accumulates: its own result or a copy of the group's."""
    total = anchor.outputs[0]
    if group.outputs[0].op is anchor:
        return s.cache_write(total, scope)
    s[total].set_scope(scope)
    return total


def innermost(layout: Layout, op: Compute) -> IterVar:
    """The output axis that is contiguous in memory: the last dimension of more than one element."""
    for d in reversed(layout.dims):
        if not same_dim(op.axis[d.axis].extent, 1):
            return op.axis[d.axis]
    return op.axis[layout.dims[-1].axis]


def linear_run(group: Group, c: Contraction, run: tuple[IterVar, ...]) -> tuple[IterVar, ...]:
    """The trailing axes of `run` that can be fused: every access walks them with one stride."""
    if len(run) < 2:
        return run
    out = group.outputs[0].op
    assert isinstance(out, Compute)
    by_position = dict(zip((a.var for a in out.axis), (a.var for a in c.op.axis), strict=True))
    walks = [strides_through(group, c.x)]
    walks += [
        None if strides is None else {by_position.get(v, v): n for v, n in strides.items()}
        for strides in accesses(group, out, keep=(c.op,))
    ]
    kept = [run[-1]]
    for axis in reversed(run[:-1]):
        inner = kept[0]
        if not all(
            w is not None and same_dim(w.get(axis.var, 0), w.get(inner.var, 0) * inner.extent)
            for w in walks
        ):
            break
        kept.insert(0, axis)
    return tuple(kept)


def _tile(
    group: Group,
    c: Contraction,
    run: tuple[IterVar, ...],
    rows: int,
    columns: int,
    target: Target,
    cfg: Config,
    scratch: int,
) -> tuple[RegisterTile, int]:
    """The register tile, and the number of reduction steps to unroll.

    If `w` is packed already, its packing fixes the width of the tile.
    """
    joined = joined_steps(group.layouts.get(c.w.buffer))  # type: ignore[arg-type]  # a tensor
    element = c.op.outputs[0].dtype.bytes
    slide = slide_of(c, run) if joined == 1 else None
    walk = strides_through(group, c.x) if run else None
    distance = row_distance(c) if walk is None else abs(walk.get(run[-1].var, 0))

    def choose(vectors: int | None = None) -> tuple[RegisterTile, int]:
        # a plain int, since decisions are keys of a table
        vectors = None if vectors is None else int(vectors)
        if slide is not None:
            best = sliding_tile(slide, rows, columns, target, element, vectors)
            if best[1] > 1:
                return best
        row_bytes = distance * c.x.dtype.bytes
        outer = outer_extent(c)
        best = choose_tile(rows, columns, target, element, True, vectors, row_bytes, outer, scratch)
        last = expected(reduction_order(c)[-1].extent) // joined
        return best, unrolled_steps(last, best.rows * best.vectors, target)

    tile, steps = choose()
    column = column_block(group.layouts.get(c.w.buffer))  # type: ignore[arg-type]  # a tensor
    if column is not None:
        vectors = max(column.block // tile.lanes, 1)
    else:
        widths, best = tile_vectors(columns, tile.lanes), tile.vectors
        if rows == 1 and c.vector is not None and runs_along(group, c.w, c.vector.var):
            place = constants_place(expected_size(c.w.buffer.shape) * c.w.dtype.bytes, target)
            best = single_row_vectors(columns, tile.lanes, target, place != "dram") or best
            widths = sorted({*widths, best})
        vectors = cfg.choice("vectors", widths, best)
    if not same_dim(vectors, tile.vectors):  # `vectors` is a symbol while features are traced
        tile, steps = choose(vectors)
    highest = max((target.vector_registers - 1 - scratch - vectors) // vectors, tile.rows)
    height = cfg.choice("rows", lambda: range(1, min(highest, rows) + 1), tile.rows)
    return RegisterTile(height, tile.vectors, tile.lanes), steps


def stages_after(group: Group, anchor: Compute) -> set[Compute]:
    """Stages that depend on `anchor`, and literals, which depend on no stage."""
    after: set[Compute] = set()
    for stage in group.stages:
        if any(t.op is anchor or t.op in after for t in stage.inputs):
            after.add(stage)
    for stage in group.stages:  # producers that only the epilogue reads
        if stage is not anchor and stage not in after and not _feeds(group, stage, anchor):
            after.add(stage)
    return after


def _feeds(group: Group, stage: Compute, anchor: Compute) -> bool:
    left, seen = [stage], {stage}
    while left:
        readers = {*group.consumers(left.pop())} - seen
        if anchor in readers:
            return True
        seen |= readers
        left += readers
    return False
