"""Contractions (matrix products, convolutions): the vector axis and the register tile.

A contraction sums a product of two tensors.  Each output axis occurs in one factor, or in both (a
batch axis).  The *vector* axis belongs to the factor `w` (usually the weights) and is contiguous in
the output.  *Row* axes belong to the other factor, `x`.  The micro-kernel keeps `rows x vectors`
accumulators in registers.  For each reduction step it loads the vectors of `w` once and broadcasts
one element of `x` per row.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache

from tilesmith.ir.affine import affine_form
from tilesmith.ir.expr import (
    Binary,
    Const,
    Expr,
    Load,
    Var,
    const,
    free_vars,
    post_order,
    substitute,
    vars_of,
)
from tilesmith.ir.layout import Layout, LayoutDim
from tilesmith.ir.simplify import simplify
from tilesmith.ir.symbols import expected, expected_size
from tilesmith.ir.target import Target
from tilesmith.ir.types import same_dim
from tilesmith.ops.base import OpTensors
from tilesmith.ops.structure import product_of_loads, stages
from tilesmith.perf.cycles import Instructions, tile_cycles
from tilesmith.perf.scaling import busiest_share
from tilesmith.te.tensor import Compute, IterVar, Tensor


@dataclass(frozen=True, slots=True, eq=False)
class Contraction:
    """The roles of the axes in a stage that sums `x * w`.

    op: the contraction.
    x: the factor whose elements are broadcast.
    w: the factor whose vectors are loaded.
    vector: the axis along lanes; None if neither an axis of `w` nor an axis of both factors is
        usable.
    rows: axes of `x` only.
    batch: axes of both factors.
    columns: axes of `w` only, usually with the vector axis.
    """

    op: Compute
    x: Load
    w: Load
    vector: IterVar | None
    rows: tuple[IterVar, ...]
    batch: tuple[IterVar, ...]
    columns: tuple[IterVar, ...]

    @property
    def is_batched(self) -> bool:
        """Whether the vector axis occurs in both factors."""
        return any(a is self.vector for a in self.batch)


def analyse(
    op: Compute, constants: frozenset[Tensor], contiguous: IterVar | None
) -> Contraction | None:
    """Roles of the axes in a contraction; None if `op` is no contraction.

    contiguous: the output axis that is contiguous in memory; None: this function chooses the vector
        axis.
    """
    factors = product_of_loads(op)
    if factors is None:
        return None
    a, b = factors
    used_a, used_b = vars_of(a.indices), vars_of(b.indices)
    only_a = [i for i in op.axis if i.var in used_a and i.var not in used_b]
    only_b = [i for i in op.axis if i.var in used_b and i.var not in used_a]
    both = [i for i in op.axis if i.var in used_a and i.var in used_b]
    if contiguous is not None:
        swap = contiguous in set(only_a)
    else:
        swap = a.buffer in constants and b.buffer not in constants
    x, w, rows, columns = (b, a, only_b, only_a) if swap else (a, b, only_a, only_b)
    vector = contiguous
    if vector is None:
        candidates = [i for i in columns if expected(i.extent) > 1] or [
            i for i in both if expected(i.extent) > 1
        ]
        vector = candidates[-1] if candidates else (columns or both or [None])[-1]
    return Contraction(op, x, w, vector, tuple(rows), tuple(both), tuple(columns))


def contraction_of(tensors: OpTensors, known: frozenset[int]) -> Contraction | None:
    """The contraction of an operator; `known` are the numbers of its constant inputs."""
    stage = next(s for s in stages(tensors.outputs) if s.reduce_axis)
    constants = frozenset(tensors.inputs[i] for i in known)
    rank = len(stage.axis)
    contiguous = None if not rank or (rank > 2 and constants) else stage.axis[-1]
    return analyse(stage, constants, contiguous)


@dataclass(frozen=True, slots=True)
class RegisterTile:
    """A register tile.

    rows: rows.
    vectors: vectors per row.
    lanes: elements per vector.
    """

    rows: int
    vectors: int
    lanes: int

    @property
    def columns(self) -> int:
        return self.vectors * self.lanes


UNEVEN = 0.03
"""Upper bound on load imbalance if rows are divided among threads: the fraction of an output's time
that tail rows add.  The fraction shrinks as the number of tiles grows.
"""

IDLE = 1.25
"""Time of the busiest thread of a shared loop, relative to an equal share, up to which tiles are
chosen without regard to it, and the loop is not fused with others at the price of more code.
"""


@lru_cache(maxsize=1024)
def best_tile(
    rows: int,
    columns: int,
    target: Target,
    element_bytes: int = 4,
    broadcast: bool = True,
    vectors: int | None = None,
    row_bytes: int | None = None,
    outer: int | None = None,
    scratch: int = 0,
    is_shared: bool = False,
) -> tuple[RegisterTile, float]:
    """The register tile with the least predicted time for a `rows` x `columns` output, and the
    cycles of one reduction step of all tiles.

    Per reduction step a tile starts rows * vectors FMAs.  It loads its vectors and, if `broadcast`,
    one scalar per row, at two loads per cycle.  FMAs stall when there are fewer accumulators than
    latency x ports.  The part of a tile beyond the columns of the output is wasted.  Tail rows are
    peeled, so they waste nothing.  Where threads share the rows, the tail adds load imbalance, at
    most `UNEVEN`.  Where there are few tiles for each thread, the time of the busiest thread counts
    (`IDLE`).

    vectors: fixes the vectors per row.
    row_bytes: stride in bytes between the elements that neighbouring rows read.  Rows whose cache
        lines evict each other from the L1 cache cost an L2 read in every step.
    outer: number of outputs of this size.  If there are many, threads share outputs instead of
        rows.
    scratch: registers that the instruction needs besides accumulators and operands.
    is_shared: whether there is enough work to share among threads (`is_worth_sharing`).
    """
    lanes = target.vector_lanes(element_bytes)
    kept = resident_rows(row_bytes, target) if broadcast else MAX_ROWS
    best, best_cost = RegisterTile(1, vectors or 1, lanes), float("inf")
    for count in (vectors,) if vectors else range(1, MAX_VECTORS + 1):
        width = count * lanes
        if count > 1 and not vectors and width >= columns + lanes:
            break
        column_tiles = -(-columns // width)
        for height in range(1, min(rows, MAX_ROWS) + 1):
            # An FMA may broadcast an operand from memory, without a register for it.
            spare = scratch + (1 if broadcast else height)
            if height * count + count + spare > target.vector_registers:
                break
            full, rest = divmod(rows, height)
            cost = full * step_cycles(height, count, target, broadcast)
            if height > kept:
                cost += full * height * target.model.l1_miss_cycles
            if rest:
                cost += step_cycles(rest, count, target, broadcast)
                if outer is not None and column_tiles * outer < target.shared_trips:
                    cost *= 1 + min(UNEVEN, 1 / max(full, 1))
            cost *= column_tiles
            if column_tiles > 1 and columns % width:
                cost *= PEELED_COLUMNS
            if is_shared and outer is not None:
                exact = columns % width == 0
                row_tiles = full + bool(rest)
                inner = max(row_tiles, 1 if exact else column_tiles)
                trips = outer * (column_tiles if exact else 1)
                fits = exact and are_fusable(row_tiles, bool(rest), target)
                if is_shared_inside(trips, inner, fits, target):
                    trips = trips * inner if fits else inner
                cost *= max(excess(trips, target) / IDLE, 1)
            # tall tiles are long code, and their rows may map to the same cache sets
            cost *= 1 + 0.004 * height
            if outer == 1:  # each row of a single product is a separate stream to prefetch
                cost *= 1 + 0.01 * max(height - STREAMS, 0)
            if cost < best_cost:
                best, best_cost = RegisterTile(height, count, lanes), cost
    return best, best_cost


def is_shared_inside(trips: int, inner: int, fits: bool, target: Target) -> bool:
    """Whether threads share an inner loop of a product: the outer loops have too few iterations for
    an even division.

    trips: iterations of the outer loops together.
    inner: iterations of the longest inner loop.
    fits: whether the inner loop can be fused with the outer loops.
    """
    return trips < target.shared_trips and inner > (1 if fits else trips)


def are_fusable(tiles: int, is_partial: bool, target: Target) -> bool:
    """Whether the loop over `tiles` row tiles may be fused with outer loops for threads to share.

    If the last tile `is_partial`, each iteration of the fused loop decides which code it runs.
    That is worthwhile if the threads would share few tiles otherwise.
    """
    return not is_partial or excess(tiles, target) > IDLE


def excess(trips: int, target: Target) -> float:
    """Time of the busiest thread of a shared loop, relative to an equal share."""
    return busiest_share(trips, target.threads) * target.threads


def is_worth_sharing(c: Contraction, target: Target) -> bool:
    """Whether a product has enough multiply-adds to share among threads."""
    steps = expected_size(a.extent for a in (*c.op.axis, *c.op.reduce_axis))
    return steps >= target.parallel_fmas


def resident_rows(row_bytes: int | None, target: Target) -> int:
    """Number of rows with stride `row_bytes` whose current lines fit in L1 together; at least 1.

    If a large power of two divides the stride, the rows map to few cache sets.
    """
    if not row_bytes:
        return MAX_ROWS
    way = target.model.l1_way_bytes
    return target.model.l1_ways * (way // math.gcd(way, row_bytes))


def tile_vectors(columns: int, lanes: int) -> list[int]:
    """Candidate widths of a register tile, in vectors."""
    return [n for n in range(1, MAX_VECTORS + 1) if (n - 1) * lanes < columns]


def single_row_vectors(columns: int, lanes: int, target: Target, cached: bool = True) -> int | None:
    """Vectors in a one-row tile for a row-major `w`; None if there are too few columns for blocks
    of a good width.

    Every element of `w` is read once.  So reads must form long runs, since hardware prefetches
    these.  Threads must still have several blocks to share.  If `w` is not `cached`, and a tile can
    hold a whole row, tiles hold whole rows.  Then all of `w` is one run.
    """
    widest = widest_row(target)
    total = -(-columns // lanes)
    if total <= widest and not cached:
        return total
    even = [n for n in range(widest, MAX_VECTORS, -1) if total % n == 0 and total >= 4 * n]
    if even:
        return even[0]
    usual = target.vector_registers // 2
    return usual if total >= 8 * usual else None


def widest_row(target: Target) -> int:
    """Vectors in the widest one-row tile.  A few registers remain for operands."""
    return target.vector_registers * 3 // 4


def step_cycles(rows: int, vectors: int, target: Target, broadcast: bool = True) -> float:
    """Cycles of one reduction step of a register tile."""
    model = target.model
    load = vectors + (rows if broadcast else rows * vectors)
    step = Instructions(fma=rows * vectors, load=load, chain=model.fma_latency)
    return tile_cycles(step, 2 * vectors, model)  # the vectors of `w` come from L2


def product_cycles(c: Contraction, target: Target) -> float:
    """Cycles of all register tiles of a contraction, if all row axes count as one axis of rows."""
    assert c.vector is not None
    rows = max(expected_size(a.extent for a in c.rows if a is not c.vector), 1)
    if c.is_batched:
        rows = max(row_extent(c), 1)  # each row reads its own vectors
    columns = max(expected(c.vector.extent), 1)
    size = c.op.outputs[0].dtype.bytes
    cycles = best_tile(rows, columns, target, size, not c.is_batched)[1]
    steps = expected_size(a.extent for a in (*c.op.axis, *c.op.reduce_axis))
    return cycles / (rows * columns) * steps


def row_extent(c: Contraction) -> int:
    """Iterations of the row loop: the product of the extents of the row axes that can be fused."""
    rows = fusable_rows(c)
    n = 1
    for r in rows:
        n *= expected(r.extent)
    return n


def outer_extent(c: Contraction) -> int:
    """Iterations of the axes outside the row loop and the vector axis."""
    inside = {c.vector, *fusable_rows(c)}
    return math.prod(expected(a.extent) for a in c.op.axis if a not in inside)


def row_distance(c: Contraction) -> int:
    """Stride in elements of `x` between neighbouring rows.  Assumes that row and batch axes are
    outermost in memory, as contractions store them.
    """
    rows = [r for r in fusable_rows(c) if expected(r.extent) > 1]
    if not rows or not isinstance(c.x.buffer, Tensor):
        return 0
    row = rows[-1].var
    outside = {a.var for a in (*c.rows, *c.batch) if a is not c.vector}
    distance, inside = 0, 1
    for index, n in zip(c.x.indices, c.x.buffer.shape, strict=True):
        used = free_vars(index)
        if row in used:
            distance = affine_form(index)[0].get(row, 0)
        elif not used & outside:
            inside *= expected(n)
    return distance * inside


def fusable_rows(c: Contraction) -> tuple[IterVar, ...]:
    """The trailing row axes that may be fused: axes adjacent in the result that no window moves."""
    rows = [r for r in c.rows if r is not c.vector]
    rows = [r for r in rows if expected(r.extent) > 1] or rows  # an axis of extent 1 adds no rows
    if not rows:
        return ()
    plain = _positions(c)
    fusable = [rows[-1]]
    if rows[-1].var not in plain:
        return tuple(fusable)
    place = {a: n for n, a in enumerate(c.op.axis)}
    for r in reversed(rows[:-1]):
        if r.var not in plain or place[r] + 1 != place[fusable[0]]:
            break
        fusable.insert(0, r)
    return tuple(fusable)


def _positions(c: Contraction) -> set[Var]:
    """The variables that form a whole index of `x`.  The variable of a window with one position
    counts as 0.
    """
    single: dict[Expr, Expr] = {k.var: const(0) for k in c.op.reduce_axis if same_dim(k.extent, 1)}
    return {v for i in c.x.indices if isinstance(v := simplify(substitute(i, single)), Var)}


MAX_VECTORS = 6
"""Upper bound on the vectors per row of a register tile."""

PEELED_COLUMNS = 1.03
"""Factor on the time of an output with a tail column block.  One thread runs the separate code of
the tail.  Every row streams all weights again (see `matmul`).
"""

MAX_ROWS = 30
"""Upper bound on the rows of a register tile."""

STREAMS = 8
"""Upper bound on the rows that hardware prefetches together without loss."""


def column_span(c: Contraction, columns: int, lanes: int) -> int:
    """Upper bound on the columns of a register tile: `columns`, unless the vector axis spans the
    groups of a grouped convolution.

    All lanes of one group read the same element of `x`.  If a tile holds whole groups or a part of
    one group, each lane's element is known at compile time.  A tile that straddles groups would
    gather.
    """
    period = _group_size(c)
    if period is None or period >= columns:
        return columns
    widths = [
        w
        for w in range(lanes, MAX_VECTORS * lanes + 1, lanes)
        if period % w == 0 or (w % period == 0 and columns % w == 0)
    ]
    if widths:
        return widths[-1]
    return max(d for d in range(1, MAX_VECTORS * lanes + 1) if period % d == 0)


def _group_size(c: Contraction) -> int | None:
    """Channels per group: g if `x` is indexed by (vector axis // g); None otherwise."""
    assert c.vector is not None
    for index in c.x.indices:
        for e in post_order(index):
            if isinstance(e, Binary) and e.op == "floordiv" and e.a is c.vector.var:
                return int(e.b.value) if isinstance(e.b, Const) else None
    return None


def packed_layout(c: Contraction, tile: RegisterTile, depth: int = 1) -> Layout | None:
    """The layout in which the micro-kernel streams a constant `w`; None if the indices of `w` are
    not plain axes.

    Dimensions, outermost first: column blocks, batch axes, reduction axes in loop order, the column
    within the block, and the `depth` steps of the last reduction axis that one instruction adds.
    """
    if c.vector is None:
        return None
    position: dict[Var, int] = {}
    fixed: list[int] = []
    for dim, index in enumerate(c.w.indices):
        var = walked(index)
        if var is not None and var not in position:
            position[var] = dim
        elif isinstance(index, Const):
            fixed.append(dim)
        else:
            return None
    if c.vector.var not in position or c.w.indices[position[c.vector.var]] is not c.vector.var:
        return None
    v = position.pop(c.vector.var)
    reduce = [position.pop(a.var) for a in reduction_order(c) if a.var in position]
    others = sorted(position.values())
    dims = [LayoutDim(d) for d in (*others, *sorted(fixed))]
    if c.is_batched:  # each batch has its own weights, so there are no column blocks
        return Layout((*dims, *(LayoutDim(d) for d in reduce), LayoutDim(v)))
    if depth == 1:
        steps, within = [LayoutDim(d) for d in reduce], []
    else:
        *outside, last = reduce
        steps = [*map(LayoutDim, outside), LayoutDim(last, "outer", depth)]
        within = [LayoutDim(last, "inner", depth)]
    return Layout(
        (LayoutDim(v, "outer", tile.columns), *dims, *steps,
         LayoutDim(v, "inner", tile.columns), *within)
    )  # fmt: skip


def walked(index: Expr) -> Var | None:
    """The variable v if an index is v or -v, plus a constant; None for other indices."""
    if isinstance(index, Var):
        return index
    form = affine_form(index)
    if form is None or len(form[0]) != 1:
        return None
    ((var, step),) = form[0].items()
    return var if isinstance(var, Var) and step in (1, -1) and isinstance(form[1], int) else None


def column_block(layout: Layout | None) -> LayoutDim | None:
    """The dimension of columns within a block, if `packed_layout` made the layout; else None."""
    if layout is None or layout.dims[-1].part != "inner":
        return None
    return layout.dims[-2] if layout.dims[-2].part == "inner" else layout.dims[-1]


def joined_steps(layout: Layout | None) -> int:
    """Number of reduction steps that are contiguous within a column block."""
    block = column_block(layout)
    if layout is None or block is None or block is layout.dims[-1]:
        return 1
    return layout.dims[-1].block


def reduction_order(c: Contraction) -> tuple[IterVar, ...]:
    """Reduction axes, outermost first: window axes, which slide along rows, then channel axes."""
    rows = {r.var for r in c.rows}
    windows: set[Var] = set()
    for index in c.x.indices:
        used = free_vars(index)
        if used & rows:
            windows |= used
    outside = (a for a in c.op.reduce_axis if a.var in windows)
    return (*outside, *(a for a in c.op.reduce_axis if a.var not in windows))


def stays_near(c: Contraction, target: Target) -> bool:
    """Whether `w` fits the L2 cache and is smaller than `x` and the result together.

    If so, threads share the rows of `x` and each reads all of `w`.  Otherwise threads share the
    columns of `w`.
    """
    x, w = (expected_size(i.buffer.shape) * i.dtype.bytes for i in (c.x, c.w))
    y = expected_size(a.extent for a in c.op.axis) * c.op.outputs[0].dtype.bytes
    return w < x + y and 4 * w <= 3 * target.model.l2_bytes
