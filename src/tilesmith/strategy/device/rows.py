"""Reductions with contiguous terms: the threads of a block share the terms of a row.

    y[i, j] = exp(x[i, j] - m[i]) / t[i]          # m and t reduce row i

    for i in block_x:
        m = max over every n-th term      # in a register of each thread
        m = max over all threads          # by shuffles, and one exchange between waves
        ...                               # t likewise
        for j: y[i, thread] = ...

All reductions that a result reads in its own row are computed in one launch.  A reduction of pairs,
such as the index of a maximum, combines partial results in shared memory.
"""

from __future__ import annotations

from collections.abc import Sequence

from tilesmith.ir.expr import Var, vars_of
from tilesmith.ir.symbols import expected_size
from tilesmith.ir.target import Target
from tilesmith.strategy.sketch.structure import StageBody
from tilesmith.te.schedule import Schedule
from tilesmith.te.stage import Stage
from tilesmith.te.tensor import Reduce

from .blocks import block_size, fused

TERMS = 48
"""Fewest terms of a sum for which a block of threads is faster than one thread."""

STEP = 16
"""Partial results that one thread combines."""


def rows_of(
    out: StageBody, reductions: Sequence[StageBody], target: Target
) -> frozenset[Var] | None:
    """The axes of `out` that number the rows, if every one of `reductions` reduces such a row.
    None if separate launches are better.  `reductions` may include stages computed from reductions.
    """
    names = {r.name for r in reductions}
    rows = {v for x in out.reads if x.source in names for v in vars_of(x.load.indices)}
    for r in reductions:
        own = {a.var for a in r.op.axis}
        others = (x for x in r.reads if x.source in names)
        is_apart = bool(r.op.reduce_axis) and not shares_terms(r, target)
        if is_apart or any(not vars_of(x.load.indices) <= own for x in others):
            return None
    count = expected_size(a.extent for a in out.op.axis if a.var in rows)
    if any(r.spatial > count for r in reductions):
        return None  # blocks would repeat each other's work
    return frozenset(rows)


def shares_terms(r: StageBody, target: Target) -> bool:
    """Whether the threads of a block should share the terms of each element of a reduction."""
    if len(r.op.body) != 1 or not isinstance(r.op.body[0], Reduce) or r.reduced < TERMS:
        return False
    if not r.op.laws.interleaved:
        return False
    if has_few_elements(r, target):
        return True
    long = [a for a in r.op.reduce_axis if expected_size([a.extent]) > 1]
    return any(x.stride(long[-1].var) == 1 for x in r.reads)


def has_few_elements(r: StageBody, target: Target) -> bool:
    """Whether a thread for each element would leave a part of the device idle."""
    assert target.device is not None
    return r.spatial < target.device.units * target.device.wave


def schedule_rows(
    s: Schedule, out: str, rows: frozenset[Var], reductions: Sequence[str], target: Target
) -> None:
    """Bind a block to each row of stage `out`.  The block also computes `reductions` of its row."""
    stage = s[out]
    axes = list(zip(stage.axis, stage.state.compute.axis, strict=True))
    outer = [a for a, x in axes if x.var in rows]
    inner = [a for a, x in axes if x.var not in rows]
    sizes = [a.extent for a in inner], *([a.extent for a in s[r].reduce_axis] for r in reductions)
    threads = min(block_size(target), 1 << (max(map(expected_size, sizes)) - 1).bit_length())
    stage.reorder(*outer, *inner)
    row = fused(stage, outer)
    if inner:
        _, thread = stage.split(fused(stage, inner), factor=threads, tail="guard")
    else:  # one thread writes the result
        row, thread = stage.split(row, factor=1)
    stage.bind(row, "blockIdx.x")
    stage.bind(thread, "threadIdx.x")
    for name in reversed(reductions):  # attach readers first
        if is_combined(s[name]) or not s[name].reduce_axis:
            s[name].compute_at(stage, row)
            s[name].set_scope("register")
            bind_terms(s[name], threads, target)
            continue
        for part in (name, *reversed(share_terms(s, name, threads))):
            s[part].compute_at(stage, row)
            s[part].set_scope("shared")


def is_combined(stage: Stage) -> bool:
    """Whether threads can combine partial results of a reduction."""
    first = stage.state.compute.body[0]
    return (
        isinstance(first, Reduce)
        and first.reducer.operation is not None
        and not first.dtype.is_bool
    )


def bind_terms(stage: Stage, threads: int, target: Target) -> None:
    """Divide the terms of a reduction among `threads` threads, if there is more than one;
    neighbouring threads combine results by shuffles if the device has them.
    """
    assert target.device is not None
    if threads > 1 and stage.reduce_axis:
        _, part = stage.split(fused(stage, stage.reduce_axis), factor=threads, tail="guard")
        stage.bind(part, "threadIdx.x", lanes=target.device.shuffle_lanes)


def share_terms(s: Schedule, name: str, threads: int) -> list[str]:
    """Divide the terms of a reduction among `threads` threads.  Returns the new stages, whose loops
    are bound.
    """
    bound: list[str] = []
    stage = s[name]
    laws = stage.state.compute.laws
    while threads > 1 and laws.in_parts:
        terms = fused(stage, stage.reduce_axis)
        if laws.interleaved:  # adjacent threads read adjacent elements
            _, part = stage.split(terms, factor=threads, tail="guard")
        else:
            part, _ = stage.split(terms, nparts=threads, tail="guard")
        partial = s[s.rfactor(stage.op.outputs[0], part)]
        partial.bind(partial.axis[0], "threadIdx.x")
        bound.append(partial.name)
        threads = 0 if threads <= STEP else threads // STEP
    return bound
