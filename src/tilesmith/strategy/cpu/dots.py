"""Contractions as dot products: lanes run along the reduction axis.

Both factors may be contiguous along the reduction axis (a matrix times a vector, a product with a
transposed matrix).  The tile of `matmul` then needs a packed copy of one of them, whose lanes are
neighbours along an axis of the output.  The copy pays if many rows use it.  For few rows the matrix
is read once, in the order of its memory:

    parallel over batch, column blocks, outer rows
      partial[rows, columns, lanes] in registers
        for k by lanes: partial += x (a vector per row) * w (a vector per column)
      result[rows, columns] = the sum of each vector's lanes
      epilogue
"""

from __future__ import annotations

from tilesmith.ir.expr import Var, index_of, post_order
from tilesmith.ir.layout import Layout, LayoutDim
from tilesmith.ir.symbols import expected, expected_size
from tilesmith.ir.target import Target
from tilesmith.ir.types import same_dim, same_shape
from tilesmith.strategy.access import accesses, condition_vars, expand
from tilesmith.strategy.group import Group
from tilesmith.te.knobs import ANALYTIC, Config
from tilesmith.te.schedule import Schedule
from tilesmith.te.tensor import Compute, IterVar

from .contraction import STREAMS, Contraction, analyse, fusable_rows, step_cycles
from .matmul import accumulator, innermost, linear_run, tile_output
from .reduction import is_costly, vectorize

MAX_UNROLLED_STEPS = 128
"""Most vectors that a tile reads in unrolled code, so that memory is read in order: code of 1 KiB.
"""

SLOWER = 0.15
"""Relative extra time of a step that loads a vector instead of one element for each row."""


def schedule_dots(
    s: Schedule, group: Group, anchor: Compute, target: Target, cfg: Config = ANALYTIC
) -> bool:
    """Schedule the whole group around `anchor`.

    Returns False, with nothing done, if the factors are not contiguous along one reduction axis, or
    if copying one of them costs less.
    """
    c = only_contraction(group, anchor)
    reduced = [k for k in anchor.reduce_axis if not same_dim(k.extent, 1)]
    if c is None or c.vector is None or len(reduced) != 1:
        return False
    (k,) = reduced
    if not _lies_along(group, anchor, k, c.vector) or not cfg.choice(
        "dots", (False, True), _pays(c, k, target)
    ):
        return False

    out, layout = group.outputs[0].op, group.layout(group.outputs[0])
    for stage in group.stages:
        if stage is not anchor and stage is not out and not stage.reduce_axis:
            s[stage.outputs[0]].compute_inline()
    acc = accumulator(s, group, anchor, "register")
    o = s[group.outputs[0]]
    position = {a: i for i, a in enumerate(anchor.axis)}
    order = [d.axis for d in layout.dims]
    vector_at = position[c.vector]
    run = linear_run(group, c, fusable_rows(c))
    row_at = [position[r] for r in run]
    if len(row_at) > 1:
        acc = s.flatten_axes(acc, *(s[acc].axis[i] for i in row_at))
    rows, columns = expected_size(r.extent for r in run), expected(c.vector.extent)
    height, width = _tile(rows, columns, target, cfg)
    level, _ = tile_output(
        o, anchor, c, order, vector_at, row_at, width, height, False, target, cfg
    )
    vectorize(o, o.leaf_axes[-1], width, width)

    lanes = target.vector_lanes(anchor.outputs[0].dtype.bytes)
    result = s[acc]
    result.compute_at(o, level)
    along = result.reduce_axis[index_of(anchor.reduce_axis, k)]
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
        # short sums: one row after the other
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


def only_contraction(group: Group, anchor: Compute) -> Contraction | None:
    """`anchor` as a contraction, if the group has one result, of the same shape."""
    (out, *others) = group.outputs
    axes = out.op.axis if isinstance(out.op, Compute) else ()
    if others or not axes or not same_shape([a.extent for a in axes], anchor.shape):
        return None
    return analyse(anchor, frozenset(), innermost(group.layout(out), anchor))


def simple_reads(group: Group, anchor: Compute) -> list[dict[Var, int]] | None:
    """Strides of all reads of `anchor`, through the stages before it.  None if they are not known,
    or if these stages are better computed once.
    """
    kept = [stage for stage in group.stages if stage.reduce_axis]
    costly = any(is_costly(e) for b in expand(anchor, kept) for e in post_order(b))
    if costly or condition_vars(anchor, kept):
        return None
    reads = accesses(group, anchor, kept)[:-1]
    known = [r for r in reads if r is not None]
    return known if len(known) == len(reads) else None


def _lies_along(group: Group, anchor: Compute, k: IterVar, vector: IterVar) -> bool:
    """Whether everything that `anchor` reads is contiguous along `k`, and some of it is not
    contiguous along `vector`.
    """
    reads = simple_reads(group, anchor)
    return (
        reads is not None
        and all(r.get(k.var, 0) in (0, 1) for r in reads)
        and any(r.get(vector.var, 0) not in (0, 1) for r in reads)
    )


def _pays(c: Contraction, k: IterVar, target: Target) -> bool:
    """Whether summing the lanes costs less than a packed copy, both per element of the output."""
    if not isinstance(k.extent, int):
        return False
    if c.is_batched:
        return True
    rows = expected_size(r.extent for r in c.rows)
    lanes = target.vector_lanes(c.op.outputs[0].dtype.bytes)
    step = k.extent / (lanes * target.model.fma_ports)
    model = target.model
    return model.lane_sum_cycles + SLOWER * step < model.copy_cycles * k.extent / rows


def _tile(rows: int, columns: int, target: Target, cfg: Config) -> tuple[int, int]:
    """Rows and columns of the tile that takes the fewest cycles for the whole output.

    Each row and column is read sequentially, as a stream that the hardware prefetches.
    """
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
