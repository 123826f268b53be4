"""Contractions of few rows as sums of scaled rows: y += x[k] * w[k, :].

The register tile of `matmul` walks down a few columns of `w`.  If rows are long and the caches
don't hold the matrix, each step is on another page, which is neither prefetched nor in the TLB.  A
constant `w` is packed in the order of this walk.  A `w` that is an input is better read in long
runs, several rows together:

    parallel over batch, column blocks (or, where rows are short, over parts of the reduced axis)
      y[rows, block] in the cache = 0
      for k by steps:
        for columns of the block by lanes:
          partial[rows] in registers = sum over steps of x (broadcast) * w (a vector)
          y += partial
      epilogue
"""

from __future__ import annotations

from tilesmith.ir.symbols import expected, expected_size
from tilesmith.ir.target import LINE_BYTES, Target
from tilesmith.ir.types import same_dim
from tilesmith.perf.cost import PLACES, constants_place
from tilesmith.strategy.group import Group
from tilesmith.te.knobs import ANALYTIC, Config
from tilesmith.te.schedule import Schedule
from tilesmith.te.stage import Stage
from tilesmith.te.tensor import Compute, IterVar

from .contraction import MAX_VECTORS, STREAMS, Contraction, fusable_rows, widest_row
from .dots import only_contraction, simple_reads
from .matmul import accumulator, linear_run, tile_output
from .reduction import vectorize

STEPS = 8
"""Rows of `w` that are read together; `y` is read and written once for all of them."""

RUN_PAGES = 2
"""Shortest part of a row, in pages, that is prefetched well if several rows are read together.
Shorter rows are read one after the other, as one run.
"""

SHARES = 2
"""Column blocks per thread."""

SHARED_ROWS = 256
"""Fewest rows of `w` for which separate partial sums pay."""


def schedule_scaled_rows(
    s: Schedule, group: Group, anchor: Compute, target: Target, cfg: Config = ANALYTIC
) -> bool:
    """Schedule the whole group around `anchor`.

    Returns False, with nothing done, if `w` is not row-major or a register tile is as fast.
    """
    c = only_contraction(group, anchor)
    if c is None or c.vector is None or c.is_batched or len(anchor.reduce_axis) != 1:
        return False
    run = linear_run(group, c, fusable_rows(c))
    rows, columns = expected_size(r.extent for r in run), expected(c.vector.extent)
    if not _lies_in_rows(group, c, run) or not cfg.choice(
        "scaled_rows", (False, True), _pays(c, rows, columns, target)
    ):
        return False

    out, layout = group.outputs[0].op, group.layout(group.outputs[0])
    for stage in group.stages:
        if stage is not anchor and stage is not out:
            s[stage.outputs[0]].compute_inline()
    acc = accumulator(s, group, anchor, "heap")
    position = {a: i for i, a in enumerate(anchor.axis)}
    order = [d.axis for d in layout.dims]
    row_at = [position[r] for r in run]
    if len(row_at) > 1:
        acc = s.flatten_axes(acc, *(s[acc].axis[i] for i in row_at))
    o = s[group.outputs[0]]
    element = anchor.outputs[0].dtype.bytes
    lanes = target.vector_lanes(element)
    width = _block(c, rows, columns, target)
    parts = _parts(c, columns, target)
    level, _ = tile_output(
        o, anchor, c, order, position[c.vector], row_at, width, rows, False, target, cfg
    )
    vectorize(o, o.leaf_axes[-1], width, lanes)

    y = s[acc]
    y.compute_at(o, level)
    (k,) = y.reduce_axis
    if parts > 1:
        part, k = y.split(k, nparts=parts)
        acc = s.rfactor(acc, part)
        _add_up(y, lanes)
        y = s[acc]
        y.set_scope("heap")
        y.parallel(y.axis[0])
        (k,) = y.reduce_axis
    steps = cfg.choice("steps", (1, 2, 4, 8, 16), 1 if _is_short(c, columns, target) else STEPS)
    outer, _ = y.split(k, factor=steps)
    partial = s[s.rfactor(acc, outer)]
    *others, column = y.axis[parts > 1 :]
    if rows > 1:  # equal columns of different rows go to different sets of the L1 cache
        line = LINE_BYTES // element
        y.storage_align(others[-1], 4 * line, 2 * line)
    block, lane = y.split(column, factor=lanes)
    y.reorder(*y.reduce_axis, block, *others, lane)
    for x in others:
        y.unroll(x)
    y.vectorize(lane)
    partial.compute_at(y, block)
    partial.set_scope("register")
    *others, lane = partial.axis
    partial.reorder(*partial.reduce_axis, *others, lane)
    for x in (*partial.reduce_axis, *others):
        partial.unroll(x)
    partial.vectorize(lane)
    return True


def _add_up(y: Stage, lanes: int) -> None:
    """Schedule `y`, the sum of a few partial sums."""
    *others, column = y.axis
    block, lane = y.split(column, factor=lanes)
    y.reorder(*others, block, *y.reduce_axis, lane)
    y.vectorize(lane)


def _lies_in_rows(group: Group, c: Contraction, run: tuple[IterVar, ...]) -> bool:
    """Whether all that depends on `c.vector` is contiguous along it, and all rows are in `run`."""
    reads = simple_reads(group, c.op)
    if reads is None or any(not same_dim(r.extent, 1) for r in set(c.rows) - set(run)):
        return False
    assert c.vector is not None
    along = {r.get(c.vector.var, 0) for r in reads}
    return along == {0, 1} and not any(st.reduce_axis and st is not c.op for st in group.stages)


def _pays(c: Contraction, rows: int, columns: int, target: Target) -> bool:
    """Whether this form takes fewer cycles per vector of `w`, for more rows than a tile has."""
    lanes = target.vector_lanes(c.op.outputs[0].dtype.bytes)
    (k,) = c.op.reduce_axis
    if not isinstance(k.extent, int) or k.extent < 4 * STEPS or rows > STREAMS:
        return False
    tile = widest_row(target) if rows == 1 and _parts(c, columns, target) == 1 else MAX_VECTORS
    if columns <= tile * lanes:
        return False
    place = constants_place(expected_size(c.w.buffer.shape) * c.w.dtype.bytes, target)
    if place != "dram" and _is_short(c, columns, target):
        return False
    model, level = target.model, PLACES.index(place)
    return model.run_cycles[level] + rows < max(model.jump_cycles[level], rows)


def _is_short(c: Contraction, columns: int, target: Target) -> bool:
    return columns * c.w.dtype.bytes < RUN_PAGES * target.model.page_bytes


def _parts(c: Contraction, columns: int, target: Target) -> int:
    """Number of parts of the reduction axis that threads share, where rows are short."""
    (k,) = c.op.reduce_axis
    if not _is_short(c, columns, target) or any(not same_dim(a.extent, 1) for a in c.batch):
        return 1
    parts = SHARES * target.threads
    if not isinstance(k.extent, int) or k.extent < 4 * SHARED_ROWS:
        return 1
    return min(parts, k.extent // SHARED_ROWS)


def _block(c: Contraction, rows: int, columns: int, target: Target) -> int:
    """Columns of a block, at most half the L2 cache: all, unless only blocks can be shared."""
    lanes, element = target.vector_lanes(c.op.outputs[0].dtype.bytes), c.w.dtype.bytes
    most = target.model.l2_bytes // 2 // (rows * c.op.outputs[0].dtype.bytes)
    blocks = -(-columns // most)
    batch = expected_size(a.extent for a in c.batch)
    parts = SHARES * target.threads
    if batch < parts and not _is_short(c, columns, target):
        blocks = max(
            blocks, min(max(columns * element // (RUN_PAGES * target.model.page_bytes), 2), parts)
        )
    return -(-columns // (blocks * lanes)) * lanes
