"""Rule *scan*: recurrences, in which each step depends on earlier steps.

    for b in parallel(B):              # axes along which steps don't mix, outside of time
        for t in T:
            for jo: registers[...] = 0; for k: registers += s[t-1, k] * w[k, ...]
            for io: for lanes: s[t, ...] = ...

Threads share the axes along which a step reads only its own index, since elements along these axes
are independent.  Along the last axis each thread has whole cache lines.  Within a step the last
axis is vectorised.  Products inside a step have accumulators in registers.  If the weights fit no
near cache, the loop over steps is outermost and threads share each step.  All rows of a step then
share each read of the weights.
"""

from __future__ import annotations

from tilesmith.ir.symbols import expected, expected_size
from tilesmith.ir.target import LINE_BYTES, Target
from tilesmith.te.schedule import Schedule
from tilesmith.te.stage import Axis, Stage
from tilesmith.te.tensor import Compute

ROWS, COLUMNS = 4, 2
"""Rows and vectors of a tile of accumulators; a tile of one row has `ROWS` vectors."""


def schedule_scans(s: Schedule, target: Target) -> set[str]:
    """Schedule the scans of `s` and the stages of their steps; returns the stages' names."""
    done: set[str] = set()
    for stage in s.stages:
        if stage.state.recurrence is None:
            continue
        inside = s.state.inside_scan(stage.name)
        done |= {stage.name, *inside}
        for source, _ in stage.state.reads:
            op = s.state.stages[source].op
            if not isinstance(op, Compute) or source in inside or s[source].state.is_output:
                continue
            if not op.reduce_axis:
                s[source].compute_inline()
                done.add(source)
        reductions = (s[n] for n in inside if s.state.stages[n].compute.reduce_axis)
        products = [r for r in reductions if len(r.axis) > 1]
        weights = sum(
            expected_size(a.extent for a in (p.axis[-1], *p.reduce_axis)) * _bytes(p)
            for p in products
        )
        apart = weights <= target.model.l2_bytes // 2
        _schedule_steps(s, stage, products, apart, target)
        for product in products:
            done |= _schedule_product(s, product, apart, target)
    return done


def _schedule_steps(
    s: Schedule, stage: Stage, products: list[Stage], apart: bool, target: Target
) -> None:
    """Make the loops of a scan.

    apart: whether the independent axes are outside of the time loop.
    """
    recurrence = stage.state.recurrence
    assert recurrence is not None
    time, *rest = stage.axis
    free = [a for n, a in enumerate(rest, 1) if apart and n not in recurrence.mixed]
    others = [a for a in rest if a not in free]
    terms = [expected_size(a.extent for a in p.reduce_axis) for p in products]
    work = expected_size(a.extent for a in stage.axis) * max(terms, default=1)
    is_shared = work >= target.parallel_elements
    inner: list[Axis] = []
    if rest and expected(rest[-1].extent) > 1:
        last, size = rest[-1], expected(rest[-1].extent)
        if last in free:
            free.remove(last)
            line = max(_lanes(stage, target), LINE_BYTES // _bytes(stage))
            chunk = -(-size // (target.shared_trips * line)) * line
            if is_shared and chunk * 2 <= size:
                outer, last = stage.split(last, chunk)
                free.append(outer)
        else:
            others.remove(last)
        outer, lane = stage.split(last, _lanes(stage, target))
        stage.vectorize(lane)
        inner = [outer, lane]
    stage.reorder(*free, time, *others, *inner)
    if free and is_shared:
        stage.parallel(stage.fuse(*free))


def _schedule_product(s: Schedule, stage: Stage, apart: bool, target: Target) -> set[str]:
    """Schedule a reduction inside a step: tiles of accumulators in registers.

    apart: as for `_schedule_steps`.
    """
    copy = s[s.cache_write(stage.op.outputs[0], "register")]
    time, *rows, last = stage.axis
    lanes = _lanes(stage, target)
    tiled = not apart and bool(rows) and expected(rows[-1].extent) >= ROWS
    columns, inner = stage.split(last, (COLUMNS if tiled else ROWS) * lanes)
    vectors, lane = stage.split(inner, lanes)
    tile = [vectors, lane]
    if tiled:
        outer, row = stage.split(rows.pop(), ROWS)
        rows.append(outer)
        stage.unroll(row)
        tile.insert(0, row)
    stage.reorder(time, columns, *rows, *tile)
    stage.unroll(vectors)
    stage.vectorize(lane)
    copy.compute_at(stage, rows[-1] if rows else columns)
    step = expected_size(a.extent for a in (*stage.axis[1:], *copy.reduce_axis))
    if not apart and step >= target.parallel_elements:
        stage.parallel(columns)
    *spatial, own = copy.axis
    vectors, lane = copy.split(own, lanes)
    copy.reorder(*copy.reduce_axis, *spatial, vectors, lane)
    for axis in (*spatial, vectors):
        copy.unroll(axis)
    copy.vectorize(lane)
    return {stage.name, copy.name}


def _bytes(stage: Stage) -> int:
    return max(t.dtype.bytes for t in stage.op.outputs)


def _lanes(stage: Stage, target: Target) -> int:
    return target.vector_lanes(_bytes(stage))
