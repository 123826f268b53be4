"""Contractions of few rows as sums of scaled rows: y += x[k] * w[k, :].

The register tile of `matmul` walks down a few columns of `w`.  If rows are long and the caches
don't hold the matrix, each step is on another page, which is neither prefetched nor in the TLB.  A
constant `w` is packed in the order of this walk.  A variable `w` is better read in long runs,
several rows together:

    parallel over batch, column blocks (or, where rows are short, over parts of the reduced axis)
      y[rows, block] in the cache = 0
      for k by steps:
        for columns of the block by lanes:
          partial[rows] in registers = sum over steps of x (broadcast) * w (a vector)
          y += partial
      epilogue
"""

from __future__ import annotations

from tilesmith.ir.symbols import expected_size
from tilesmith.ir.target import LINE_BYTES
from tilesmith.ir.types import same_dim
from tilesmith.perf.cost import PLACES, constants_place
from tilesmith.te.knobs import Config
from tilesmith.te.schedule import Schedule
from tilesmith.te.stage import Stage

from .contraction import MAX_VECTORS, STREAMS, widest_row
from .dots import simple_reads
from .product import Product
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
"""Fewest rows of `w` that justify a partial sum of their own."""


def schedule_scaled_rows(s: Schedule, p: Product, cfg: Config) -> bool:
    """Schedule the whole group around a product.

    Returns False without adding steps, if `w` is not row-major or a register tile is as fast.
    """
    if p.c.is_batched or len(p.sums.reduce_axis) != 1:
        return False
    if not _lies_in_rows(p) or not cfg.choice("scaled_rows", (False, True), _pays(p)):
        return False

    p.inline(s, p.group.stages)
    acc = p.accumulator(s, "heap")
    o, lanes, rows = s[p.result], p.lanes, p.rows
    width, parts = _block(p), _parts(p)
    level, _ = p.tile(s, width, rows, cfg)
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
    steps = cfg.choice("steps", (1, 2, 4, 8, 16), 1 if _is_short(p) else STEPS)
    outer, _ = y.split(k, factor=steps)
    partial = s[s.rfactor(acc, outer)]
    *others, column = y.axis[parts > 1 :]
    if rows > 1:  # equal columns of different rows go to different sets of the L1 cache
        line = LINE_BYTES // p.sums.outputs[0].dtype.bytes
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


def _lies_in_rows(p: Product) -> bool:
    """Whether each read is contiguous along the vector axis or independent of it, and all row loops
    can be one loop.
    """
    reads = simple_reads(p)
    if reads is None or any(not same_dim(r.extent, 1) for r in set(p.c.rows) - set(p.run)):
        return False
    along = {r.get(p.vector.var, 0) for r in reads}
    return along == {0, 1} and not any(st.reduce_axis and st is not p.sums for st in p.group.stages)


def _pays(p: Product) -> bool:
    """Whether this form takes fewer cycles per vector of `w` than a register tile."""
    c, rows, target = p.c, p.rows, p.target
    (k,) = c.op.reduce_axis
    if not isinstance(k.extent, int) or k.extent < 4 * STEPS or rows > STREAMS:
        return False
    tile = widest_row(target) if rows == 1 and _parts(p) == 1 else MAX_VECTORS
    if p.columns <= tile * p.lanes:
        return False
    place = constants_place(expected_size(c.w.buffer.shape) * c.w.dtype.bytes, target)
    if place != "dram" and _is_short(p):
        return False
    model, level = target.model, PLACES.index(place)
    return model.run_cycles[level] + rows < max(model.jump_cycles[level], rows)


def _is_short(p: Product) -> bool:
    return p.columns * p.c.w.dtype.bytes < RUN_PAGES * p.target.model.page_bytes


def _parts(p: Product) -> int:
    """Number of parts into which threads divide the reduction axis; 1 unless rows are short."""
    (k,) = p.sums.reduce_axis
    if not _is_short(p) or any(not same_dim(a.extent, 1) for a in p.c.batch):
        return 1
    parts = SHARES * p.target.threads
    if not isinstance(k.extent, int) or k.extent < 4 * SHARED_ROWS:
        return 1
    return min(parts, k.extent // SHARED_ROWS)


def _block(p: Product) -> int:
    """Columns of a block whose sums fill at most half the L2 cache.  Blocks are smaller if they are
    the only work that threads can share.
    """
    columns, model = p.columns, p.target.model
    most = model.l2_bytes // 2 // (p.rows * p.sums.outputs[0].dtype.bytes)
    blocks = -(-columns // most)
    batch = expected_size(a.extent for a in p.c.batch)
    parts = SHARES * p.target.threads
    if batch < parts and not _is_short(p):
        runs = columns * p.c.w.dtype.bytes // (RUN_PAGES * model.page_bytes)
        blocks = max(blocks, min(max(runs, 2), parts))
    return -(-columns // (blocks * p.lanes)) * p.lanes
