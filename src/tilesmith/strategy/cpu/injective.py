"""Loops over every element of a tensor: elementwise chains, transposes, copies.

Axes are visited in the order of the output's memory.  Neighbouring axes that every access walks as
one are fused, the innermost runs along vector lanes, the outermost is shared among threads when
there is enough to do.  What is read across the output's order goes through registers in blocks.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from tilesmith.ir.expr import Load, free_vars, post_order
from tilesmith.ir.target import Target
from tilesmith.strategy.access import accesses, condition_vars, expand
from tilesmith.strategy.group import Group
from tilesmith.strategy.knobs import ANALYTIC, Config
from tilesmith.te.schedule import Schedule
from tilesmith.te.tensor import Compute, Tensor

from .transposition import schedule_transposition, transposition

PARALLEL_ELEMENTS = 16384
"""Fewest elements that are worth waking another thread for (about 4 microseconds of streaming)."""


def schedule_injective(
    s: Schedule,
    group: Group,
    op: Compute,
    target: Target,
    keep: Iterable[Compute] = (),
    root: bool = True,
    cfg: Config = ANALYTIC,
) -> None:
    """Schedule the root stage `op`; its inlinable producers must be inlined by the caller."""
    stage = s[op.outputs[0]]
    layout = group.layout(op.outputs[0])
    order = [stage.axis[d.axis] for d in layout.dims]
    if not order:
        return
    blocks = transposition(group, op, keep, target)
    if blocks is not None:
        loops, extents = schedule_transposition(s, group, op, blocks, target)
        if root and _product(_size(a.extent) for a in op.axis) >= PARALLEL_ELEMENTS:
            _share(stage, loops, extents, cfg)
        return
    runs = _fusable_runs(group, op, [d.axis for d in layout.dims], keep)
    stage.reorder(*order)
    axes, sizes, at = [], [], 0
    for run in runs:
        members = order[at : at + len(run)]
        at += len(run)
        axis = members[0]
        for m in members[1:]:
            axis = stage.fuse(axis, m)
        axes.append(axis)
        sizes.append(_product(_size(op.axis[i].extent) for i in run))
    share_and_vectorize(stage, axes, sizes, _widest(group, op, keep), target, root, cfg)


def share_and_vectorize(
    stage: Any,
    axes: list[Any],
    sizes: Sequence[int],
    element_bytes: int,
    target: Target,
    root: bool = True,
    cfg: Config = ANALYTIC,
) -> None:
    """Vectorise the last of `axes` (outermost first, extents `sizes`), share the outermost among
    threads.
    """
    lanes = max(target.vector_lanes(element_bytes), 1)
    total = _product(sizes)
    axes, sizes = list(axes), list(sizes)
    inner, size = axes.pop(), sizes.pop()
    if size >= 2:
        width = min(lanes, size)
        vectors = cfg.choice("vectors", lambda: [n for n in (1, 2, 4, 8) if n * width <= size], 1)
        lane = inner
        if vectors > 1:
            inner, lane = stage.split(inner, factor=width * vectors)
        outer, lane = stage.split(lane, factor=width)
        stage.vectorize(lane)
        if vectors > 1:
            stage.unroll(outer)
            outer, width = inner, width * vectors
        axes.append(outer)
        sizes.append(-(-size // width))
        peeled = size % width != 0
    else:
        axes.append(inner)
        sizes.append(size)
        peeled = False
    if not root or not cfg.choice("parallel", (False, True), total >= PARALLEL_ELEMENTS):
        return
    wide = axes[:-1] if peeled and len(axes) > 1 else axes  # a peeled loop stays by itself
    _share(stage, wide, sizes, cfg)


def _share(stage: Any, loops: Sequence[Any], extents: Sequence[int], cfg: Config) -> None:
    """Share the outermost of `loops` among threads, fused until there are enough iterations."""
    shared, extent = loops[0], extents[0]
    enough = cfg.choice("shared_iterations", (2, 4, 8, 16, 32, 64, 128), 16)
    for axis, n in zip(loops[1:], extents[1:], strict=False):
        if extent >= enough:
            break
        shared = stage.fuse(shared, axis)
        extent *= n
    stage.parallel(shared)


def _fusable_runs(
    group: Group, op: Compute, order: list[int], keep: Iterable[Compute]
) -> list[list[int]]:
    """Axis numbers in memory order, grouped into runs that every access walks with one stride."""
    reads = accesses(group, op, keep)
    split_at = condition_vars(op, keep)
    if any(r is None for r in reads):
        return [[i] for i in order]
    runs: list[list[int]] = [[order[0]]]
    last = order[0]  # the innermost axis of the current run with more than one position
    for i in order[1:]:
        outer, inner = op.axis[last], op.axis[i]
        extent = _size(inner.extent)
        if extent == 1:
            runs[-1].append(i)
            continue
        together = _size(outer.extent) == 1 or (
            outer.var not in split_at
            and inner.var not in split_at
            and all(
                r is not None and r.get(outer.var, 0) == r.get(inner.var, 0) * extent for r in reads
            )
        )
        if together:
            runs[-1].append(i)
        else:
            runs.append([i])
        last = i
    return runs


def _widest(group: Group, op: Compute, keep: Iterable[Compute]) -> int:
    """Bytes of the widest element that a lane holds: it decides how many lanes fit a register.

    What is the same for all lanes (the index of a row that is taken) does not count.
    """
    order = [d.axis for d in group.layout(op.outputs[0]).dims]
    inner = next((i for i in reversed(order) if op.axis[i].extent != 1), order[-1])
    widths = [b.dtype.bytes for b in op.body]
    for body in expand(op, keep):
        widths += [
            n.dtype.bytes
            for n in post_order(body)
            if isinstance(n, Load)
            and isinstance(n.buffer, Tensor)
            and any(op.axis[inner].var in free_vars(i) for i in n.indices)
        ]
    return min(max(widths), 8)


def _size(extent: object) -> int:
    return extent if isinstance(extent, int) else 1 << 20


def _product(sizes: Iterable[int]) -> int:
    n = 1
    for x in sizes:
        n *= x
    return n
