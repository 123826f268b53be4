"""Producers computed one row at a time, into a buffer that stays in the cache.

    for n, h:                               # shared among threads
      for w: row[w] = ... x[...] ...        # once per element, whole vectors
      for w: y[n, h, w] = row[f(w)] * a + row[f(w) + 1] * b ...

A consumer may read its producer at several points along its innermost axes (a resize along one axis
after another).  An inlined producer would compute most elements several times.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any

from tilesmith.ir.expr import Load, free_vars, post_order
from tilesmith.ir.layout import Layout
from tilesmith.ir.symbols import expected_size
from tilesmith.ir.target import Target
from tilesmith.strategy.access import expand
from tilesmith.strategy.group import Group
from tilesmith.te.knobs import ANALYTIC, Config
from tilesmith.te.schedule import Schedule
from tilesmith.te.tensor import Compute, Tensor

from .injective import fused, share, share_and_vectorize, widest


@dataclass(frozen=True, slots=True)
class Rows:
    """A producer that is computed in rows.

    producer: the stage that is computed in rows.
    outer: number of outer axes of the consumer, in memory order.  The producer's row is computed
        once for each position of these axes.
    """

    producer: Compute
    outer: int


def row_producer(group: Group, op: Compute, keep: Iterable[Compute], target: Target) -> Rows | None:
    """The producer of `op` that is best computed in rows; None if there is none."""
    layout = group.layout(op.outputs[0])
    order = [d.axis for d in layout.dims]
    if sorted(order) != list(range(len(op.axis))) or len(op.body) != 1:
        return None
    extents = [a.extent for a in op.axis]
    if not all(isinstance(n, int) for n in extents):
        return None
    kept = {*keep, op}
    for p in reversed(group.stages):
        if p in kept or p.reduce_axis or len(p.body) != 1 or len(p.axis) != len(op.axis):
            continue
        if any(consumer in kept and consumer is not op for consumer in group.consumers(p)):
            continue
        reads = list(_reads(op, p, kept))
        outer = _common(op, reads, order)
        if len(reads) < 2 or not outer:
            continue
        rest = order[outer:]
        here = expected_size(extents[i] for i in rest)
        row = expected_size(p.axis[i].extent for i in rest)
        cost = sum(isinstance(n, Load) for n in post_order(expand(p, kept)[0]))
        small = row * p.outputs[0].dtype.bytes <= target.model.l2_bytes // 2
        if small and row * (cost + 1) + len(reads) * here < len(reads) * cost * here:
            return Rows(p, outer)
    return None


def schedule_rows(
    s: Schedule,
    group: Group,
    op: Compute,
    rows: Rows,
    target: Target,
    keep: Iterable[Compute] = (),
    cfg: Config = ANALYTIC,
) -> None:
    """Schedule the root stage `op` and, below its outer loops, the producer that it reads in rows.

    The caller must inline all other producers.
    """
    kept = (*keep, rows.producer)
    layout = group.layout(op.outputs[0])
    stage = s[op.outputs[0]]
    order = [d.axis for d in layout.dims]
    outer = [stage.axis[i] for i in order[: rows.outer]]
    sizes = [int(op.axis[i].extent) for i in order]  # type: ignore[arg-type]
    stage.reorder(*(stage.axis[i] for i in order))
    axes, extents, divided = fused(s, group, op, order[rows.outer :], kept)
    bytes_ = widest(group, op, kept)
    share_and_vectorize(stage, axes, extents, bytes_, target, False, cfg, divided)
    level: Any = outer[-1]
    if cfg.choice("parallel", (False, True), expected_size(sizes) >= target.parallel_elements):
        level = share(stage, outer, sizes[: rows.outer], target, cfg)
    result = rows.producer.outputs[0]
    memory = Layout.permuted(tuple(order))
    s.transform_layout(result, memory)
    row = s[result]
    row.compute_at(stage, level)
    row.reorder(*(row.axis[i] for i in order))
    local = replace(group, layouts={**group.layouts, result: memory})
    axes, extents, divided = fused(s, local, rows.producer, order[rows.outer :], keep)
    bytes_ = widest(local, rows.producer, keep)
    share_and_vectorize(row, axes, extents, bytes_, target, False, cfg.under("row"), divided)


def _reads(op: Compute, p: Compute, kept: set[Compute]) -> Iterator[Load]:
    """The distinct points at which `op` reads `p`, with all stages between them inlined."""
    for node in post_order(expand(op, (*kept, p))[0]):
        if isinstance(node, Load) and isinstance(node.buffer, Tensor) and node.buffer.op is p:
            yield node


def _common(op: Compute, reads: list[Load], order: list[int]) -> int:
    """Number of outer axes of `op`, in `order`, that all `reads` use as plain indices."""
    count = len(order)
    for read in reads:
        for depth, i in enumerate(order):
            var = op.axis[i].var
            others = (x for d, x in enumerate(read.indices) if d != i)
            if read.indices[i] is not var or any(var in free_vars(x) for x in others):
                count = min(count, depth)
    return count
