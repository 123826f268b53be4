"""Loops over every element of a tensor: elementwise chains, transposes, copies.

Axes are visited in the order of the output's memory.  Adjacent axes are fused if every access has
one stride along both.  The innermost loop is vectorised.  The outermost loop is shared among
threads if there is enough work.  Reads across the output's order are transposed in registers, in
blocks.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from tilesmith.ir.expr import Load, free_vars, post_order
from tilesmith.ir.symbols import expected, expected_size
from tilesmith.ir.target import LINE_BYTES, Target
from tilesmith.ir.types import same_dim
from tilesmith.strategy.access import (
    Divisions,
    condition_vars,
    cycle,
    divisions,
    expand,
    is_one_run,
    known_strides,
    places,
)
from tilesmith.strategy.group import Group
from tilesmith.te.knobs import ANALYTIC, Config
from tilesmith.te.schedule import Schedule
from tilesmith.te.tensor import Compute, Tensor

from .ahead import prefetch_taken
from .planes import interleaved_planes, split_planes
from .transposition import schedule_transposition, transposition

MAX_CYCLE = 8
"""Upper bound on the copies of a loop body that are unrolled to make remainders constant."""

MAX_VECTORS = 16
"""Upper bound on the vectors that are unrolled to make remainders constant.  The bound is high,
because each lane takes a dozen instructions if the distance to its neighbour's element is unknown.
"""

MAX_COPIES = 64
"""Upper bound on the product of the copies of a body and its unrolled vectors."""


def schedule_injective(
    s: Schedule,
    group: Group,
    op: Compute,
    target: Target,
    keep: Iterable[Compute] = (),
    root: bool = True,
    cfg: Config = ANALYTIC,
) -> None:
    """Schedule the root stage `op`; the caller must have inlined its inlinable producers."""
    stage = s[op.outputs[0]]
    layout = group.layout(op.outputs[0])
    if not layout.dims:
        return
    blocks = transposition(group, op, keep, target)
    if blocks is not None:
        loops, extents = schedule_transposition(s, group, op, blocks, target)
        if root and expected_size(a.extent for a in op.axis) >= target.parallel_elements:
            share(stage, loops, extents, target, cfg)
        return
    numbers = [d.axis for d in layout.dims]
    written = sum(t.dtype.bytes for t in op.outputs) * expected_size(a.extent for a in op.axis)
    if target.overflows(written):
        numbers = as_read(group, op, numbers, keep)
    stage.reorder(*(stage.axis[i] for i in numbers))
    bytes_ = widest(group, op, keep)
    lanes = target.vector_lanes(bytes_)
    axes, sizes, divided = fused(s, group, op, numbers, keep, lanes)
    take_periods_apart(stage, axes, sizes, divided, lanes)
    inner = group.innermost(op)
    apart = None
    if inner is not None and sizes[-1] >= lanes:
        planes = interleaved_planes(group, op, inner, keep, lanes)
        apart = planes and split_planes(stage, axes, sizes, planes)
    if apart:
        axes, sizes, plane = apart
        share_and_vectorize(stage, axes, sizes, bytes_, target, root, cfg, planes=plane)
    else:
        own = op.outputs[0].dtype.bytes
        line = LINE_BYTES // own if root and target.overflows(expected_size(sizes) * own) else 1
        share_and_vectorize(stage, axes, sizes, bytes_, target, root, cfg, divided, line)
    if root:
        prefetch_taken(s, group, op, target, keep)


def as_read(group: Group, op: Compute, order: list[int], keep: Iterable[Compute]) -> list[int]:
    """The axis numbers of `op` in the memory order of its reads, if all reads have the same order
    and rows of the result are whole cache lines; else `order`, the memory order of the result.

    Sequential reads are prefetched by hardware; streaming stores may go to any line.
    """
    axes = [i for i in order if not same_dim(op.axis[i].extent, 1)]
    reads = [known_strides(t, indices, group.layout(t)) for t, indices in places(op, keep)[:-1]]
    steps = [[abs(r.get(op.axis[i].var) or 0) for i in axes] for r in reads]
    if len(axes) < 3 or not steps or not all(all(s) and s[-1] == min(s) == 1 for s in steps):
        return order
    if expected(op.axis[axes[-1]].extent) * op.outputs[0].dtype.bytes % LINE_BYTES:
        return order
    orders = {tuple(sorted(axes, key=lambda i: -s[axes.index(i)])) for s in steps}
    return [*(i for i in order if i not in axes), *orders.pop()] if len(orders) == 1 else order


def fused(
    s: Schedule,
    group: Group,
    op: Compute,
    order: Sequence[int],
    keep: Iterable[Compute] = (),
    lanes: int = 1,
) -> tuple[list[Any], list[int], list[Divisions]]:
    """The loops of `op` over its axes `order` (numbers, outermost first), fused where every access
    has one stride along adjacent axes.  Returns loops, extents, and the divisions of each.

    An innermost loop shorter than `lanes` (three channels, side by side) is also fused with the
    loop around it, if lanes then read from a few vectors.
    """
    stage = s[op.outputs[0]]
    by_axis = divisions(op, keep)
    axes, sizes, divided = [], [], []
    runs = _fusable_runs(group, op, list(order), keep)
    short = _interleaved(group, op, runs, keep, lanes)
    if short:
        runs = [*runs[:-2], [*runs[-2], *runs[-1]]]
    for run in runs:
        axis = stage.axis[run[0]]
        for i in run[1:]:
            axis = stage.fuse(axis, stage.axis[i])
        axes.append(axis)
        sizes.append(expected_size(op.axis[i].extent for i in run))
        divided.append(by_axis[op.axis[run[0]].var] if len(run) == 1 else frozenset())
    if short:
        divided[-1] = frozenset({(1, short)})
    return axes, sizes, divided


def take_periods_apart(
    stage: Any, axes: list[Any], sizes: list[int], divided: list[Divisions], lanes: int
) -> None:
    """Split the innermost of `axes`, in place, at the period of its remainders.

    The extent must be a multiple of the period d.  Nothing changes if the remainders repeat after
    at most `MAX_VECTORS` vectors.  After the split no vector spans two periods.  For instance,
    several copies of a row, one after the other, read the row at i % d.

        for i: -> for i / d: for i % d:
    """
    periods = {d for _, d in divided[-1]}
    if len(periods) != 1 or any(k != 1 for k, _ in divided[-1]):
        return
    (d,) = periods
    if 1 < d < sizes[-1] and sizes[-1] % d == 0 and cycle(divided[-1], lanes) > MAX_VECTORS:
        axes[-1:] = stage.split(axes[-1], factor=d)
        sizes[-1:] = sizes[-1] // d, d
        divided[-1:] = frozenset(), frozenset()


def _interleaved(
    group: Group, op: Compute, runs: list[list[int]], keep: Iterable[Compute], lanes: int
) -> int:
    """The extent of the last run of axes if the last two runs should be fused; else 0."""
    if len(runs) < 2:
        return 0
    short = expected_size(op.axis[i].extent for i in runs[-1])
    if not 1 < short <= min(lanes // 2, MAX_CYCLE):
        return 0
    last, inner = ([i for i in run if not same_dim(op.axis[i].extent, 1)] for run in runs[-2:])
    if not last or expected_size(op.axis[i].extent for i in runs[-2]) * short < lanes:
        return 0
    by_axis, conditions = divisions(op, keep), condition_vars(op, keep)
    changing = {op.axis[i].var for run in runs[-2:] for i in run}
    if changing & conditions or any(by_axis[v] for v in changing):
        return 0
    outer, short_var = op.axis[last[-1]].var, op.axis[inner[-1]].var
    for tensor, indices in places(op, keep):
        steps = known_strides(tensor, indices, group.layout(tensor))
        step = steps.get(outer, 0)
        if steps.get(short_var, 0) is None or step is None or not 0 <= step <= lanes // 2:
            return 0
    return short


def share_and_vectorize(
    stage: Any,
    axes: Sequence[Any],
    sizes: Sequence[int],
    element_bytes: int,
    target: Target,
    root: bool = True,
    cfg: Config = ANALYTIC,
    divided: Sequence[Divisions] = (),
    together: int = 1,
    planes: Any = None,
) -> None:
    """Vectorise the last of `axes` (outermost first, extents `sizes`) and share the outermost among
    threads.

    planes: a short loop to unroll around the vectors.
    divided: the divisions of each axis, if known.  Iterations are unrolled in blocks that contain
        each remainder once.  In a block the remainders are constants, and so are values that depend
        on them (the weights of a resize).
    together: number of elements that one iteration should store, within the limit `MAX_VECTORS`.
    """
    lanes = target.vector_lanes(element_bytes)
    total = expected_size(sizes)
    axes, sizes = list(axes), list(sizes)
    divided = divided or [frozenset()] * len(axes)
    inner, size = axes.pop(), sizes.pop()
    apart = False  # whether the innermost loop can't be fused with those around it
    vectors = 1
    if size >= 2:
        width = min(lanes, size)
        unrolled = cycle(divided[-1], width)
        unrolled = max(unrolled, together // width)
        unrolled = unrolled if unrolled <= MAX_VECTORS and unrolled * width <= size else 1
        counts = (1, 2, 4, 8)
        vectors = cfg.choice("vectors", lambda: [n for n in counts if n * width <= size], unrolled)
        lane = inner
        if vectors > 1:
            inner, lane = stage.split(inner, factor=width * vectors)
        outer, lane = stage.split(lane, factor=width)
        stage.vectorize(lane)
        if planes is not None:
            around = (inner, planes, outer) if vectors > 1 else (outer, planes)
            stage.reorder(*axes, *around, lane)
            stage.unroll(planes)
        if vectors > 1:
            stage.unroll(outer)
            outer, width = inner, width * vectors
        inner, size, apart = outer, -(-size // width), size % width != 0  # the tail is peeled
    most = min(MAX_CYCLE, MAX_COPIES // vectors)
    if axes and 1 < (phases := cycle(divided[-2])) <= min(most, sizes[-1]):
        axes[-1], phase = stage.split(axes[-1], factor=phases)
        stage.unroll(phase)
        apart = True  # the loop over phases is between the two loops
        sizes[-1] = -(-sizes[-1] // phases)
    axes.append(inner)
    sizes.append(size)
    if root and cfg.choice("parallel", (False, True), total >= target.parallel_elements):
        wide = axes[:-1] if apart and len(axes) > 1 else axes
        share(stage, wide, sizes, target, cfg)


def enough_iterations(target: Target, cfg: Config) -> int:
    """Knob `shared_iterations`: number of iterations that suffices for a loop's threads."""
    usual = target.shared_trips
    return cfg.choice("shared_iterations", powers_of_two(max(usual, 128)), usual)


def powers_of_two(most: int) -> tuple[int, ...]:
    """2, 4, ... up to `most`."""
    return tuple(1 << i for i in range(1, most.bit_length()))


def share(
    stage: Any,
    loops: Sequence[Any],
    extents: Sequence[int],
    target: Target,
    cfg: Config = ANALYTIC,
) -> Any:
    """Share the outermost of `loops` among threads, fused until there are enough iterations.
    Returns the innermost loop that remains.
    """
    shared, extent, count = loops[0], extents[0], 1
    enough = enough_iterations(target, cfg)
    while count < len(loops) and extent < enough:
        shared = stage.fuse(shared, loops[count])
        extent *= extents[count]
        count += 1
    stage.parallel(shared)
    return loops[-1] if count < len(loops) else shared


def _fusable_runs(
    group: Group, op: Compute, order: list[int], keep: Iterable[Compute]
) -> list[list[int]]:
    """Axis numbers in memory order, grouped into runs.  Every access has one stride along a run."""
    reads = [known_strides(t, indices, group.layout(t)) for t, indices in places(op, keep)]
    split_at = condition_vars(op, keep)
    runs: list[list[int]] = [[order[0]]]
    last = order[0]  # the innermost axis of the current run whose extent is not 1
    for i in order[1:]:
        outer, inner = op.axis[last], op.axis[i]
        extent = expected(inner.extent)
        if extent == 1:
            runs[-1].append(i)
            continue
        together = expected(outer.extent) == 1 or (
            outer.var not in split_at
            and inner.var not in split_at
            and all(is_one_run(r.get(outer.var, 0), r.get(inner.var, 0), extent) for r in reads)
        )
        if together:
            runs[-1].append(i)
        else:
            runs.append([i])
        last = i
    return runs


def widest(group: Group, op: Compute, keep: Iterable[Compute]) -> int:
    """Bytes of the widest element that a lane holds.  This size determines the number of lanes of a
    vector register.

    Values that are equal in all lanes (such as the index of a gathered row) do not count.
    """
    inner = group.innermost(op)
    widths = [b.dtype.bytes for b in op.body]
    for body in expand(op, keep):
        widths += [
            n.dtype.bytes
            for n in post_order(body)
            if isinstance(n, Load)
            and isinstance(n.buffer, Tensor)
            and inner is not None
            and any(op.axis[inner].var in free_vars(i) for i in n.indices)
        ]
    return min(max(widths), 8)
