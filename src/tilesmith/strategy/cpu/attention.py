"""Schedules for attention: two contractions with row reductions between them, in one pass.

    parallel over heads
      keys packed for the register tile, values copied where they can't be read in place
      rows in steps of the register tile
        logits[rows, keys]        a tile of scores in registers, then scale and mask
        max, exp, sum             over each row
        acc[rows, width] += exp[rows, keys] * values[keys, width]
        epilogue, stored in the order of the result

Intermediate values exist only for a few rows of one head, so they stay in the L1 cache.
"""

from __future__ import annotations

from typing import Any

from tilesmith.ir.expr import Load, Var, free_vars, vars_of
from tilesmith.ir.layout import Layout
from tilesmith.ir.symbols import expected, expected_size
from tilesmith.ir.target import Target
from tilesmith.ir.types import same_dim
from tilesmith.ops.structure import is_costly
from tilesmith.strategy.access import strides
from tilesmith.strategy.attention import Attention, attention_in
from tilesmith.strategy.group import Group, accumulator, upstream
from tilesmith.te.schedule import Schedule
from tilesmith.te.tensor import Compute, IterVar, Tensor

from .attention_result import extent, find_result, result_loops, simplified
from .contraction import Contraction, RegisterTile, analyse, packed_layout
from .injective import schedule_injective
from .operands import source_of
from .reduction import in_vectors, reduce_along, vectorize
from .row_scale import scale_results

SHARED_HEADS = 2
"""Fewest heads per thread for which threads divide heads.  For fewer, threads divide blocks of
rows.
"""


def is_attention(group: Group) -> bool:
    """True for an attention whose second product reads row reductions."""
    a = attention_in(group)
    return a is not None and not upstream(a.values).isdisjoint(a.rows)


def with_scaled_results(group: Group) -> Group:
    """The attention group `group` with its row scale moved to the result."""
    return scale_results(group, group.products[-1])


def schedule_attention(s: Schedule, group: Group, target: Target) -> None:
    """Schedule an attention group that `with_scaled_results` returned."""
    a = attention_in(group)
    assert a is not None  # fusion makes only groups that have both products
    values, scores = a.values, _contraction(a.scores)
    result = find_result(group, values, a.epilogue, target)
    top = result.stage
    out = group.outputs[0]
    for stage in a.epilogue:
        if stage is not top and stage is not out.op:
            s[stage.outputs[0]].compute_inline()
    if top is not out.op:  # a separate pass reorders the result
        schedule_injective(s, group, out.op, target, keep=(top,))  # type: ignore[arg-type]  # not an input
    acc = accumulator(s, values, top, "register").op.outputs[0]
    scores_acc = accumulator(s, a.scores, a.logits, "register").op.outputs[0]

    tile = result.tile
    lanes, height = tile.lanes, tile.rows
    rows, width, keys = (extent(x) for x in (*values.axis[-2:], values.reduce_axis[0]))
    step = min(tile.columns, width)
    o = s[top.outputs[0]]
    loops, m, d = result_loops(o, group, result)
    grouped = _grouped_axes(group, scores)
    outer = [(x, n) for i, x, n in loops if i not in grouped]
    inside = [(x, n) for i, x, n in loops if i in grouped]
    if expected_size(n for _, n in outer) < SHARED_HEADS * target.threads:
        outer, inside = [(x, n) for _, x, n in loops], []
    mo, mi = o.split(m, factor=height)
    do, di = o.split(d, factor=step)
    o.reorder(*(x for x, _ in (*outer, *inside)), mo, do, mi, di)
    o.unroll(mi)
    in_vectors(o, di, step, lanes)
    count = expected_size(n for _, n in (*outer, *inside))
    heads = o.fuse(*(x for x, _ in outer)) if outer else None
    if count < SHARED_HEADS * target.threads and rows > height:
        heads, shared = None, mo
    else:
        shared = mo if heads is None else heads
    if (
        count * rows * keys * (width + expected_size(k.extent for k in a.scores.reduce_axis))
        >= target.parallel_fmas
    ):
        o.parallel(shared)

    _register_tile(s, acc, (o, do), values.reduce_axis, step, lanes)
    _schedule_chain(s, group, a, (o, mo), lanes)
    scores_tile = RegisterTile(height, _vectors_beside(height, keys, target, lanes), lanes)
    _schedule_logits(s, a, scores_acc, (o, mo), scores_tile, keys)
    at_head = None if heads is None else (o, heads)
    is_packed = _pack_keys(s, group, scores, scores_acc, scores_tile, at_head, target)
    # If keys and queries are one tensor, one copy serves both factors.
    is_copied = is_packed and scores.x.buffer is scores.w.buffer
    if not is_copied and _walk(group, scores.x, a.scores) is None:
        _copy(s, scores.x, a.scores.reduce_axis[-1].var, scores_acc, (o, mo), lanes)
    value = _contraction(values).w
    walk = _walk(group, value, values)
    if walk is None or walk.get(values.axis[-1].var, 0) != 1:
        _copy(s, value, values.axis[-1].var, acc, at_head, lanes)
    for stage in group.stages:
        if stage not in a.chain and stage not in a.epilogue and not stage.reduce_axis:
            s[stage.outputs[0]].compute_inline()


def _contraction(product: Compute) -> Contraction:
    """The roles of a product's axes, with its last axis as the vector axis."""
    c = analyse(product, frozenset(), product.axis[-1])
    assert c is not None
    return c


# --- stages for a block of rows


def _register_tile(
    s: Schedule,
    acc: Tensor,
    loop: tuple[Any, Any],
    reduce: tuple[IterVar, ...],
    width: int,
    lanes: int,
) -> None:
    """Keep a tile of `acc` in registers: the last two axes, `width` columns in whole vectors."""
    stage = s[acc]
    stage.compute_at(*loop)
    s.transform_layout(acc, Layout.with_innermost(acc.rank, acc.rank - 1, lanes))
    *single, m, n = stage.axis
    stage.reorder(*single, *stage.reduce_axis, m, n)
    stage.unroll(m)
    in_vectors(stage, n, width, lanes)


def _schedule_chain(
    s: Schedule, group: Group, a: Attention, outer: tuple[Any, Any], lanes: int
) -> None:
    """Schedule the stages between the contractions for a block of rows.  Leaves out the logits."""
    before = upstream(a.logits)
    for stage in reversed(a.chain):
        handle = s[stage.outputs[0]]
        if stage is a.logits:
            continue
        if stage in before:
            handle.compute_inline()
        elif stage.reduce_axis:
            handle.compute_at(*outer)
            row = handle.axis[-2]
            loop = handle.reduce_axis[0]
            reduce_along(
                s, stage.outputs[0], loop, extent(stage.reduce_axis[0]), lanes, (handle, row)
            )
        elif _is_kept(group, stage, a.values):
            handle.compute_at(*outer)
            keys = extent(stage.axis[-1])
            if keys > 1:
                s.transform_layout(
                    stage.outputs[0],
                    Layout.with_innermost(len(stage.axis), len(stage.axis) - 1, lanes),
                )
                vectorize(handle, handle.axis[-1], keys, lanes)
        else:
            handle.compute_inline()


def _is_kept(group: Group, stage: Compute, values: Compute) -> bool:
    """Whether to store a stage: `values` reads it, or it is costly and read more than once."""
    readers = group.consumers(stage)
    if values in readers:
        return True
    many = len(readers) > 1 or same_dim(stage.axis[-1].extent, 1)
    return many and is_costly(stage.body)


def _schedule_logits(
    s: Schedule, a: Attention, acc: Tensor, loop: tuple[Any, Any], tile: RegisterTile, keys: int
) -> None:
    logits = a.logits.outputs[0]
    stage = s[logits]
    stage.compute_at(*loop)
    s.transform_layout(logits, Layout.with_innermost(logits.rank, logits.rank - 1, tile.lanes))
    *single, m, n = stage.axis
    width = min(tile.columns, keys)
    block, column = stage.split(n, factor=width)
    stage.reorder(*single, block, m, column)
    stage.unroll(m)
    in_vectors(stage, column, width, tile.lanes)
    _register_tile(s, acc, (stage, block), a.scores.reduce_axis, width, tile.lanes)


def _vectors_beside(rows: int, columns: int, target: Target, lanes: int) -> int:
    """Vectors per row of a register tile of `rows` rows: as many as fit in registers, at most 6."""
    most = max((target.vector_registers - 1) // (rows + 1), 1)
    return min(most, -(-columns // lanes), 6)


# --- operands


def _grouped_axes(group: Group, c: Contraction) -> frozenset[int]:
    """The axes of the contractions along which several query heads share the same packed keys."""
    walk = _walk(group, c.w, c.op)
    if walk is not None and walk.get(c.op.axis[-1].var, 0) == 1:
        return frozenset()
    used = vars_of(c.w.indices)
    return frozenset(
        i for i, x in enumerate(c.op.axis[:-2]) if x.var not in used and not same_dim(x.extent, 1)
    )


def _walk(group: Group, load: Load, op: Compute) -> dict[Var, int] | None:
    """Strides of `load` in the memory of its source.  None if a stage between the load and the
    source computes new values.
    """
    tensor, indices, _ = source_of(load)
    if isinstance(tensor.op, Compute):
        return None
    return strides(tensor, simplified(indices, (*op.axis, *op.reduce_axis)), group.layout(tensor))


def _pack_keys(
    s: Schedule,
    group: Group,
    c: Contraction,
    acc: Tensor,
    tile: RegisterTile,
    loop: tuple[Any, Any] | None,
    target: Target,
) -> bool:
    """Copy the keys of a head into column blocks.  Returns False, without a copy, if the keys are
    contiguous along the columns already.
    """
    column = c.op.axis[-1].var
    walk = _walk(group, c.w, c.op)
    if walk is not None and walk.get(column, 0) == 1:
        return False
    packed = s.cache_read(c.w.buffer, "heap", [acc])  # type: ignore[arg-type]  # a tensor
    layout = packed_layout(c, tile)
    if layout is None:
        return True
    s.transform_layout(packed, layout)
    stage = s[packed]
    n = next(d.axis for d in layout.dims if d.part == "inner")
    outside, lane = stage.split(stage.axis[n], factor=tile.lanes)
    others = list(dict.fromkeys(d.axis for d in layout.dims if d.axis != n))
    rest = [stage.axis[i] for i in others]
    if loop is None:
        stage.reorder(*rest[:-1], outside, rest[-1], lane)
        stage.parallel(outside)
    else:
        stage.reorder(outside, *rest, lane)
        stage.compute_at(*loop)
    stage.vectorize(lane)
    return True


def _copy(
    s: Schedule, load: Load, along: Var, acc: Tensor, loop: tuple[Any, Any] | None, lanes: int
) -> None:
    """Make a row-major copy of an operand for `acc`, with axis `along` innermost."""
    copy = s.cache_read(load.buffer, "heap", [acc])  # type: ignore[arg-type]  # a tensor
    stage = s[copy]
    at_axis = next(i for i, x in enumerate(load.indices) if along in free_vars(x))
    s.transform_layout(copy, Layout.with_innermost(copy.rank, at_axis))
    axis = stage.axis[at_axis]
    stage.reorder(*(x for x in stage.axis if x != axis), axis)
    if loop is not None:
        stage.compute_at(*loop)
    vectorize(stage, axis, expected(copy.shape[at_axis]), lanes)
