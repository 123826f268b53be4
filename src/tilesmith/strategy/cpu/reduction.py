"""Schedules for reductions: pooling, means, softmax and normalisation chains.

The output's loops are split at a *level*.  Outside it are axes that the group keeps, shared among
threads.  Inside it are the reduced axes.  Every other stage is computed at that level.  Two kinds
of axis can be contiguous in memory:

- A kept axis (pooling in channels-last, a sum over rows).  The tile of the level is a few vectors
  of that axis.  Accumulators are vectors, one lane per element.
- A reduced axis (softmax over the last axis).  A reduction is factored into several vectors of
  partial results.  The vectors are combined, then the lanes of the last vector.

A stage that is costly and read more than once is stored for the tile or row.  All other stages are
computed where they are read.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from tilesmith.ir.expr import Var
from tilesmith.ir.layout import Layout
from tilesmith.ir.symbols import expected, expected_size
from tilesmith.ir.target import Target
from tilesmith.ir.types import same_dim, same_shape
from tilesmith.ops.structure import is_costly, loads
from tilesmith.strategy.access import accesses
from tilesmith.strategy.group import Group
from tilesmith.te.knobs import ANALYTIC, Config
from tilesmith.te.schedule import Schedule
from tilesmith.te.tensor import Compute, IterVar, Reduce, Tensor

from .injective import enough_iterations

ACCUMULATORS = 4
"""Vectors of partial results: enough independent additions to hide the latency of one."""

WIDEST = 8
"""Upper bound on the vectors in a tile, on targets with enough registers."""

MAX_UNROLLED = 48
"""Upper bound on the vectors that the unrolled part of a window combines."""

IN_ORDER = 24
"""Upper bound on the vectors that the unrolled part of a window reads.  With more, LLVM interleaves
the rows of a window, and the hardware no longer detects sequential reads.
"""


@dataclass(frozen=True, slots=True)
class _Level:
    """The loop at which the stages of a group are computed.

    stage: the stage whose loop holds them.
    out: the output that `stage` computes.
    axis: the loop inside which stages are computed; None: they are computed before `stage`.
    inside: output axes whose loops are entirely inside the level.
    lane: the output axis along vectors; None if a reduced axis is contiguous in memory.
    width: elements along `lane` that are computed together.
    lanes: elements per vector.
    stored: the stages that are stored, not inlined.
    """

    stage: Any
    out: Compute
    axis: Any
    inside: tuple[int, ...]
    lane: int | None
    width: int
    lanes: int
    stored: frozenset[Compute]


def schedule_reductions(s: Schedule, group: Group, target: Target, cfg: Config = ANALYTIC) -> None:
    """Schedule a group with reductions, none of them a contraction with a schedule of its own."""
    out = group.outputs[0].op
    assert isinstance(out, Compute)
    reducing = [st for st in group.stages if st.reduce_axis]
    results = {st: st.outputs[0] for st in reducing}
    if out in results and len(out.body) == 1:
        results[out] = s.cache_write(group.outputs[0], "register")
    level = _schedule_output(s, group, out, reducing, target, cfg)
    for stage in reversed(group.stages):  # readers first: a stage is attached to its reader's loops
        if stage.reduce_axis:
            if stage is not out or len(stage.body) == 1:
                _attach_reduction(s, group, stage, results[stage], level, cfg)
        elif stage is not out:
            _attach(s, group, stage, level)


def _schedule_output(
    s: Schedule, group: Group, out: Compute, reducing: list[Compute], target: Target, cfg: Config
) -> _Level:
    order = list(dict.fromkeys(d.axis for d in group.layout(group.outputs[0]).dims))
    inside = _inside(out, reducing)
    outer = [i for i in order if i not in inside]
    rows = [i for i in order if i in inside]
    widest = max(group.outputs[0].dtype.bytes, *(t.dtype.bytes for t in reducing[-1].outputs))
    lanes = target.vector_lanes(min(widest, 8))
    o = s[group.outputs[0]]
    loops = [o.axis[i] for i in outer]
    sizes = [expected(out.axis[i].extent) for i in outer]
    lane = _lane_axis(group, out, reducing[0], outer)
    block = None
    width = 1
    if lane is not None:
        extent = expected(out.axis[lane].extent)
        most = _most_vectors(group, out, reducing[0], lane, target)
        width = min(_tile_width(lanes, extent, most), extent)
        if width >= lanes:
            vectors = range(1, min(extent // lanes, most) + 1)
            width = min(cfg.choice("vectors", vectors, -(-width // lanes)) * lanes, extent)
        position = outer.index(lane)
        outside, block = o.split(o.axis[lane], factor=width)
        loops[position], sizes[position] = outside, -(-sizes[position] // width)
    body = [o.axis[i] for i in rows]
    o.reorder(*loops, *body, *([block] if block is not None else []))
    axis = loops[-1] if loops else None
    if loops and cfg.choice("parallel", (False, True), _work(group) >= target.parallel_elements):
        peeled = lane is not None and expected(out.axis[lane].extent) % width != 0
        axis = _share(o, loops, sizes, len(loops) - peeled, enough_iterations(target, cfg))
    stored = _stored(group, out, inside, width, target)
    level = _Level(o, out, axis, tuple(rows), lane, width, lanes, stored)
    if block is not None:
        vectorize(o, block, width, lanes)
    elif body:
        vectorize(o, *_one_loop(o, group, out, [out.axis[i] for i in rows], level), lanes)
    return level


def _inside(out: Compute, reducing: list[Compute]) -> list[int]:
    """The axes of `out` over which the chain of `reducing` (softmax, a norm) computes its sums or
    maxima.  Loops over these axes lie inside the loop at which the chain is computed.
    """
    domain = _domain(reducing[-1])
    if domain is None or out is reducing[-1]:
        return []
    if not same_shape(out.shape, [a.extent for a in domain]):
        return []
    reduced = {a.var for st in reducing for a in st.reduce_axis}
    return [i for i, a in enumerate(domain) if a.var in reduced]


def _lane_axis(group: Group, out: Compute, first: Compute, outer: list[int]) -> int | None:
    """The kept axis that is contiguous in memory; None if it is a reduced axis or there is none."""
    plain = {i for load in loads(first) for i in load.indices if isinstance(i, Var)}
    along = [a.var for a in first.reduce_axis if a.var in plain and not same_dim(a.extent, 1)]
    reads = [r for r in accesses(group, first)[: -len(first.body)] if r is not None]
    if any(r.get(v) == 1 for r in reads for v in along):
        return None
    last = next((i for i in reversed(outer) if not same_dim(out.axis[i].extent, 1)), None)
    if last is None or not _has_axis(first, out, last):
        return None
    return last


def _has_axis(op: Compute, out: Compute, i: int) -> bool:
    return len(op.axis) == len(out.axis) and same_dim(op.axis[i].extent, out.axis[i].extent)


def _most_vectors(group: Group, out: Compute, first: Compute, lane: int, target: Target) -> int:
    """Upper bound on the vectors in a tile.

    A window with a stride along the lanes reads several rows in turn.  Its tiles may be wider, so
    that a long piece of each row is read sequentially.
    """
    reads = accesses(group, first)[: -len(first.body)]
    steps = [r.get(first.axis[lane].var, 0) for r in reads if r is not None]
    wide = len(first.reduce_axis) > 1 and any(abs(n) > 1 for n in steps)
    return WIDEST if wide and target.vector_registers >= 4 * WIDEST else ACCUMULATORS


def _tile_width(lanes: int, extent: int, most: int) -> int:
    """The width of a tile in elements, at most `most` vectors.  The chosen width has the lowest
    cost: the number of vectors in all tiles, plus half a vector for each tile.  So few wide tiles
    are preferred.
    """
    return lanes * min(range(1, most + 1), key=lambda v: -(-extent // (v * lanes)) * (v + 0.5))


def _share(o: Any, loops: list[Any], sizes: list[int], whole: int, enough: int) -> Any:
    """Share the outer loops among threads, fused until there are `enough` iterations.  Returns the
    innermost loop that remains.

    Only the first `whole` loops may be fused: the predicate of a peeled loop must not mix with
    other loops.
    """
    shared, extent, number = loops[0], sizes[0], 1
    while number < whole and extent < enough:
        shared = o.fuse(shared, loops[number])
        extent *= sizes[number]
        number += 1
    if extent > 1:
        o.parallel(shared)
    return loops[-1] if number < len(loops) else shared


def _attach(s: Schedule, group: Group, stage: Compute, level: _Level) -> None:
    handle = s[stage.outputs[0]]
    if stage not in level.stored:
        handle.compute_inline()
        return
    if level.axis is not None:
        handle.compute_at(level.stage, level.axis)
    if level.lane is not None:
        lane = handle.axis[level.lane]
        s.transform_layout(stage.outputs[0], _vectors(len(stage.axis), level.lane, 1, 1))
        handle.reorder(*(x for x in handle.axis if x != lane), lane)
        if _has_axis(stage, level.out, level.lane):
            vectorize(handle, lane, level.width, level.lanes)
        return
    rows = [stage.axis[i] for i in level.inside]
    if rows and _is_full(stage, level):
        vectorize(handle, *_one_loop(handle, group, stage, rows, level), level.lanes)


def _attach_reduction(
    s: Schedule, group: Group, stage: Compute, result: Tensor, level: _Level, cfg: Config
) -> None:
    handle = s[result]
    if level.axis is not None:
        handle.compute_at(level.stage, level.axis)
        handle.set_scope("register")
    if level.lane is not None:
        if _has_axis(stage, level.out, level.lane):
            lane = handle.axis[level.lane]
            layout = _vectors(len(stage.axis), level.lane, level.width, level.lanes)
            s.transform_layout(result, layout)
            handle.reorder(*(x for x in handle.axis if x != lane), *handle.reduce_axis, lane)
            vectorize(handle, lane, level.width, level.lanes)
            _unroll_window(handle, group, stage, level)
        return
    loop, n = _one_loop(handle, group, stage, list(stage.reduce_axis), level)
    level_axis = None if level.axis is None else (level.stage, level.axis)
    reduce_along(s, result, loop, n, level.lanes, level_axis, cfg)


def _unroll_window(handle: Any, group: Group, stage: Compute, level: _Level) -> None:
    """Unroll the innermost reduction loops of windows that move along vectors, within the limits on
    code size.

    Neighbouring positions of the window read the same vectors, which the unrolled body loads once.
    """
    reads = [r for r in accesses(group, stage)[: -len(stage.body)] if r is not None]

    def step(a: IterVar) -> int:
        return max((abs(r.get(a.var, 0)) for r in reads), default=0)

    slides = {a: 0 < step(a) < level.lanes for a in stage.reduce_axis}
    if not any(slides.values()) or level.lane is None:
        return
    combined = -(-level.width // level.lanes)
    read = combined * max(step(stage.axis[level.lane]), 1)
    for axis, loop in zip(reversed(stage.reduce_axis), reversed(handle.reduce_axis), strict=True):
        combined *= expected(axis.extent)
        read *= 1 if slides[axis] else expected(axis.extent)
        if combined > MAX_UNROLLED or read > IN_ORDER:
            return
        handle.unroll(loop)


def reduce_along(
    s: Schedule,
    result: Tensor,
    loop: Any,
    n: int,
    lanes: int,
    at: tuple[Any, Any] | None,
    cfg: Config = ANALYTIC,
) -> None:
    """Run the reduction loop `loop`, of extent `n`, along vector lanes.

    Several vectors of partial results, computed at `at` (stage, axis), are combined vector by
    vector, then across the lanes of the last vector.
    """
    handle = s[result]
    (reduce, *others) = handle.op.body  # type: ignore[union-attr]  # a reduction
    assert isinstance(reduce, Reduce)
    across = not others and reduce.reducer.operation is not None and not result.dtype.is_bool
    if n <= lanes or not handle.state.compute.laws.interleaved:
        if across and 1 < n <= lanes:
            handle.vectorize(loop)
        return
    most = min(ACCUMULATORS, n // lanes)
    vectors = cfg.choice("accumulators", range(1, most + 1), most)
    _, position = handle.split(loop, factor=lanes * vectors)
    partials = [s[s.rfactor(result, position)]]
    if vectors > 1:
        _, position = handle.split(handle.reduce_axis[-1], factor=lanes)
        partials.append(s[s.rfactor(result, position)])
    for partial in reversed(partials):
        if at is not None:
            partial.compute_at(*at)
            partial.set_scope("register")
    if vectors > 1:
        for k in partials[1].reduce_axis:
            partials[1].unroll(k)
    for partial, width in zip(partials, (lanes * vectors, lanes), strict=False):
        lane = partial.axis[0]
        partial.reorder(*(a for a in partial.leaf_axes if a != lane), lane)
        s.transform_layout(partial.op.outputs[0], _vectors(len(partial.axis), 0, width, lanes))
        vectorize(partial, lane, width, lanes)
    last = handle.reduce_axis[-1]
    if across:
        handle.vectorize(last)
    else:
        handle.unroll(last)


def vectorize(stage: Any, axis: Any, width: int, lanes: int, unrolled: float = WIDEST) -> None:
    """Run `axis` (a loop of a tile or of a whole row, of extent `width`) along vector lanes.

    unrolled: upper bound on the vectors of a loop that is unrolled.
    """
    if width <= lanes:
        if width > 1:
            stage.vectorize(axis)
        return
    outer, lane = stage.split(axis, factor=lanes)
    if width <= unrolled * lanes:
        stage.unroll(outer)
    stage.vectorize(lane)


def in_vectors(stage: Any, axis: Any, width: int, lanes: int) -> None:
    """Run `axis`, the columns of a register tile, along the lanes of unrolled vectors."""
    vectorize(stage, axis, width, lanes, math.inf)


def _one_loop(
    handle: Any, group: Group, op: Compute, axes: list[IterVar], level: _Level
) -> tuple[Any, int]:
    """Fuse the innermost `axes` along which each access has one stride.  Returns loop, extent."""
    by_var = {
        a.var: x
        for a, x in zip(
            (*op.axis, *op.reduce_axis), (*handle.axis, *handle.reduce_axis), strict=True
        )
    }
    run = [axes[-1]]
    reads = accesses(group, op, level.stored)
    for outer in reversed(axes[:-1]):
        step = expected(run[0].extent)
        if any(r is None or r.get(outer.var, 0) != r.get(run[0].var, 0) * step for r in reads):
            break
        run.insert(0, outer)
    loop = by_var[run[0].var]
    for a in run[1:]:
        loop = handle.fuse(loop, by_var[a.var])
    return loop, expected_size(a.extent for a in run)


def _vectors(rank: int, axis: int, width: int, lanes: int) -> Layout:
    """The layout with `axis` innermost, in blocks of one vector if `width` exceeds a vector."""
    return Layout.with_innermost(rank, axis, lanes if width > lanes else None)


def _domain(op: Compute) -> tuple[IterVar, ...] | None:
    """The axes of the tensor that a whole-axis reduction reads, in the order of its dimensions."""
    by_var = {a.var: a for a in (*op.axis, *op.reduce_axis)}
    for load in loads(op):
        axes = []
        spatial = iter(op.axis)
        for index in load.indices:
            axis = by_var.get(index) if isinstance(index, Var) else next(spatial, None)
            if axis is None:
                return None
            axes.append(axis)
        return tuple(axes)
    return None


def _stored(
    group: Group, out: Compute, inside: list[int], width: int, target: Target
) -> frozenset[Compute]:
    """The stages whose values are stored.

    A costly stage is stored if it is read more than once, or has the reduced shape and would be
    computed again for each element.  A row of the stage must fit the L2 cache.
    """
    uses: dict[Compute, int] = {}
    for stage in reversed(group.stages):
        readers = group.consumers(stage)
        uses[stage] = sum(uses[r] if r is not out and not r.reduce_axis else 1 for r in readers)
    stored: set[Compute] = set()
    costly: set[Compute] = set()
    for stage in group.stages:
        if (
            stage.reduce_axis
            or stage is out
            or len(stage.axis) != len(out.axis)
            or not loads(stage)
        ):
            continue
        own = is_costly(stage.body)
        if own or any(t.op in costly for t in stage.inputs):
            narrow = all(
                same_dim(stage.axis[i].extent, 1) and not same_dim(out.axis[i].extent, 1)
                for i in inside
            )
            size = stage.outputs[0].dtype.bytes * width
            for i in inside:
                size *= expected(stage.axis[i].extent)
            if size <= target.model.l2_bytes and inside and (narrow or uses[stage] > 1):
                stored.add(stage)
            else:
                costly.add(stage)
    return frozenset(stored)


def _is_full(stage: Compute, level: _Level) -> bool:
    return all(same_dim(stage.shape[i], level.out.shape[i]) for i in level.inside)


def _work(group: Group) -> int:
    return max(expected_size(a.extent for a in (*st.axis, *st.reduce_axis)) for st in group.stages)
