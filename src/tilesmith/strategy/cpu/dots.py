"""Contractions as dot products: lanes run along the reduction axis.

Both factors may be contiguous along the reduction axis (a matrix times a vector, a product with a
transposed matrix).  The tile of `matmul` then needs a packed copy of one factor, with lanes along
an axis of the output.  The copy pays if many rows use it.  For few rows, this form reads the matrix
once, in memory order:

    parallel over batch, column blocks, outer rows
      partial[rows, columns, lanes] in registers
        for k by lanes: partial += x (a vector per row) * w (a vector per column)
      result[rows, columns] = the sum of each vector's lanes
      epilogue
"""

from __future__ import annotations

from tilesmith.ir.expr import Var, index_of
from tilesmith.ir.layout import Layout, LayoutDim
from tilesmith.ir.symbols import expected_size
from tilesmith.ir.types import same_dim
from tilesmith.ops.structure import is_costly
from tilesmith.strategy.access import accesses, condition_vars, expand
from tilesmith.te.knobs import Config
from tilesmith.te.schedule import Schedule
from tilesmith.te.tensor import IterVar

from .contraction import STREAMS, step_cycles
from .product import Product
from .reduction import vectorize

MAX_UNROLLED_STEPS = 128
"""Upper bound on the vectors that a tile reads in unrolled code (1 KiB of code).  Unrolled code
reads memory in order.
"""

SLOWER = 0.15
"""Extra time, as a fraction, of a step that loads a vector per row instead of one element per row.
"""


def schedule_dots(s: Schedule, p: Product, cfg: Config) -> bool:
    """Schedule the whole group around a product.

    Returns False without adding steps, if the factors are not contiguous along one reduction axis,
    or if packing one of them costs less.
    """
    reduced = [k for k in p.sums.reduce_axis if not same_dim(k.extent, 1)]
    if len(reduced) != 1:
        return False
    (k,) = reduced
    if not _lies_along(p, k) or not cfg.choice("dots", (False, True), _pays(p, k)):
        return False

    p.inline(s, p.group.stages)
    acc = p.accumulator(s, "register")
    height, width = _tile(p, cfg)
    level, _ = p.tile(s, width, height, cfg)
    o, lanes = s[p.result], p.lanes
    vectorize(o, o.leaf_axes[-1], width, width)

    result = s[acc]
    result.compute_at(o, level)
    along = result.reduce_axis[index_of(p.sums.reduce_axis, k)]
    _, lane = result.split(along, factor=lanes)
    sums = s[s.rfactor(acc, lane)]
    sums.compute_at(o, level)
    sums.set_scope("register")
    s.transform_layout(
        sums.op.outputs[0],
        Layout((*(LayoutDim(i) for i in range(1, len(sums.axis))), LayoutDim(0))),
    )
    first, *kept = sums.axis
    steps = [x for x in sums.leaf_axes if x not in sums.axis]
    unrolled_steps = height * width * -(-k.extent // lanes)
    if isinstance(unrolled_steps, int) and unrolled_steps <= MAX_UNROLLED_STEPS:
        # Sums are short, so each row is finished before the next.
        sums.reorder(*kept, *steps, first)
        unrolled = [*kept, *steps]
    else:
        sums.reorder(*steps, *kept, first)
        unrolled = kept
    for x in unrolled:
        sums.unroll(x)
    sums.vectorize(first)
    for x in result.axis:
        result.unroll(x)
    (last,) = (x for x in result.reduce_axis if same_dim(x.extent, lanes))
    result.vectorize(last)
    return True


def simple_reads(p: Product) -> list[dict[Var, int]] | None:
    """Strides of all reads of the sums after the stages before the sums are inlined.  None if a
    stride is unknown, or if it is better to compute these stages once.
    """
    group, op = p.group, p.sums
    kept = [stage for stage in group.stages if stage.reduce_axis]
    if is_costly(expand(op, kept)) or condition_vars(op, kept):
        return None
    reads = accesses(group, op, kept)[:-1]
    known = [r for r in reads if r is not None]
    return known if len(known) == len(reads) else None


def _lies_along(p: Product, k: IterVar) -> bool:
    """Whether all operands of the sum are contiguous along `k`, and at least one is not contiguous
    along the vector axis.
    """
    reads = simple_reads(p)
    return (
        reads is not None
        and all(r.get(k.var, 0) in (0, 1) for r in reads)
        and any(r.get(p.vector.var, 0) not in (0, 1) for r in reads)
    )


def _pays(p: Product, k: IterVar) -> bool:
    """Whether summing the lanes costs less per output element than a packed copy."""
    if not isinstance(k.extent, int):
        return False
    if p.c.is_batched:
        return True
    rows, lanes, target = expected_size(r.extent for r in p.c.rows), p.lanes, p.target
    step = k.extent / (lanes * target.model.fma_ports)
    model = target.model
    return model.lane_sum_cycles + SLOWER * step < model.copy_cycles * k.extent / rows


def _tile(p: Product, cfg: Config) -> tuple[int, int]:
    """Rows and columns of the tile that takes the fewest cycles for the whole output.

    Hardware prefetches each row and each column as a sequential stream.
    """
    rows, columns, target = p.rows, p.columns, p.target
    tiles = [
        (r, n)
        for r in range(1, min(rows, STREAMS) + 1)
        for n in range(1, min(columns, STREAMS) + 1)
        if r * n + min(r, n) + 1 <= target.vector_registers
    ]
    best = min(
        tiles,
        key=lambda t: -(-rows // t[0]) * -(-columns // t[1]) * step_cycles(*t, target),
    )
    return cfg.choice("tile", tiles, best)
