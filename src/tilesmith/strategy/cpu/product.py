"""The common part of the loop forms for groups that are scheduled around one contraction.

Each form (`dots`, `scaled_rows`, `tile_dots`, `matmul`, `scaled_chunks`) computes the sums of a
tile of the result, then the epilogue.  The forms differ in the storage of the sums and in the axis
along vector lanes.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from tilesmith.ir.loop_tables import Scope
from tilesmith.ir.symbols import expected, expected_size
from tilesmith.ir.target import Target
from tilesmith.ir.types import same_dim, same_shape
from tilesmith.ops.structure import loads
from tilesmith.strategy.access import accesses
from tilesmith.strategy.group import Group, accumulator, upstream
from tilesmith.te.knobs import Config
from tilesmith.te.schedule import Schedule
from tilesmith.te.stage import Axis
from tilesmith.te.tensor import Compute, IterVar, Tensor

from .contraction import (
    Contraction,
    analyse,
    are_fusable,
    column_block,
    fusable_rows,
    is_shared_inside,
    is_worth_sharing,
)
from .operands import strides_through


@dataclass(frozen=True, slots=True)
class BlockLoop:
    """The loop that walks the column blocks of an output.

    axis: the loop.  It may be fused with others.
    parts: number of successive iterations with the same block.
    passes: number of tiles per iteration.
    """

    axis: Axis
    parts: int
    passes: int


@dataclass(frozen=True, slots=True, eq=False)
class Product:
    """A contraction in a group with one result.  The result has the same axes as the sums.

    group: the group.
    c: the roles of the axes, with a vector axis.
    sums: the stage that holds the sums: `c.op`, or a stage that adds results of `c.op`.
    run: row axes that are fused into one loop.
    target: the machine.
    """

    group: Group
    c: Contraction
    sums: Compute
    run: tuple[IterVar, ...]
    target: Target

    @property
    def result(self) -> Tensor:
        return self.group.outputs[0]

    @property
    def vector(self) -> IterVar:
        assert self.c.vector is not None
        return self.c.vector

    @property
    def rows(self) -> int:
        """Iterations of the loop over `run`."""
        return expected_size(a.extent for a in self.run)

    @property
    def columns(self) -> int:
        return expected(self.vector.extent)

    @property
    def lanes(self) -> int:
        """Elements per vector of sums."""
        return self.target.vector_lanes(self.sums.outputs[0].dtype.bytes)

    @property
    def row_at(self) -> list[int]:
        """Numbers of the row axes."""
        return [self._number(r) for r in self.run]

    @property
    def vector_at(self) -> int:
        """Number of the vector axis."""
        return self._number(self.vector)

    def _number(self, axis: IterVar) -> int:
        return next(i for i, a in enumerate(self.c.op.axis) if a is axis)

    @property
    def epilogue(self) -> tuple[Compute, ...]:
        """All stages except the sums and the stages from which the sums are computed.  Includes the
        result.
        """
        before = {self.sums, *upstream(self.sums)}
        return tuple(st for st in self.group.stages if st not in before)

    def inline(self, s: Schedule, stages: Iterable[Compute]) -> None:
        """Inline those of `stages` that are neither reductions nor the result."""
        for stage in stages:
            if stage is not self.sums and stage is not self.result.op and not stage.reduce_axis:
                s[stage.outputs[0]].compute_inline()

    def accumulator(self, s: Schedule, scope: Scope) -> Tensor:
        """Accumulate the sums in `scope`.  Returns the tensor; the axes `run` are merged in it."""
        acc = accumulator(s, self.sums, self.result, scope).op.outputs[0]
        if len(self.run) > 1:
            acc = s.flatten_axes(acc, *(s[acc].axis[i] for i in self.row_at))
        return acc

    def tile(
        self,
        s: Schedule,
        width: int,
        height: int,
        cfg: Config,
        near: bool = False,
        loop_rows: bool = False,
    ) -> tuple[Axis, BlockLoop | None]:
        """Tile the result and share its outer loops among threads.

        Returns the loop that holds one tile, and the loop over column blocks.  The second is None
        if there is a single block, or if both are the same loop.

        If the weights are not `near`, the loop over column blocks is outside the loops that use a
        block again.  If the last block is partial, the loop over column blocks will be peeled, so
        it is innermost and not fused with others.

        near: whether the weights stay in the L2 cache.
        loop_rows: whether the rows of a tile are a loop, not unrolled.
        """
        o, c, row_at, columns = s[self.result], self.c, self.row_at, self.columns
        extents = [expected(a.extent) for a in c.op.axis]
        order = [d.axis for d in self.group.layout(self.result).dims]
        outer = [i for i in order if i != self.vector_at and i not in row_at]
        of_batch = set(c.batch)
        batch = [(o.axis[i], extents[i]) for i in outer if c.op.axis[i] in of_batch]
        rest = [(o.axis[i], extents[i]) for i in outer if c.op.axis[i] not in of_batch]
        rows = [o.axis[i] for i in row_at]
        co, ci = o.split(o.axis[self.vector_at], factor=width)
        blocks = [(co, -(-columns // width))]
        exact = columns % width == 0
        outside = exact and bool(rows) and not c.is_batched and not near
        if exact and blocks[0][1] > 1:
            outside = cfg.choice("columns_outside", (False, True), outside)
        loops = [*batch, *blocks, *rest] if outside else [*batch, *rest, *blocks]
        o.reorder(*(x for x, _ in loops), *rows, ci)
        level = co
        inner: list[tuple[Any, int]] = [] if exact else blocks
        if rows:
            row = rows[0]
            for x in rows[1:]:
                row = o.fuse(row, x)
            level, tile_row = o.split(row, factor=height)
            if not loop_rows:
                o.unroll(tile_row)
            inner = [*inner, (level, -(-self.rows // height))]
        shared, fused = None, []
        if is_worth_sharing(c, self.target):
            whole = [x for x in loops if exact or x not in blocks]
            is_partial = bool(rows and self.rows % height)
            fits = exact and are_fusable(-(-self.rows // height), is_partial, self.target)
            last = blocks if near else []
            shared, fused = _share(o, whole, inner, fits, last, self.target, cfg)
            if level not in o.leaf_axes:
                level = shared
        own = next((n for n, (x, _) in enumerate(fused) if x is co), None)
        parts = 1 if own is None else math.prod(n for _, n in fused[own + 1 :])
        axis, leaves = co if own is None or shared is None else shared, o.leaf_axes
        if axis is level or axis not in leaves or columns <= width:
            return level, None
        inside = leaves[leaves.index(axis) + 1 : leaves.index(level) + 1]
        return level, BlockLoop(axis, parts, expected_size(x.extent for x in inside))


def product_of(group: Group, target: Target) -> Product | None:
    """The product of a group; None unless there is one product and one result, of equal shape."""
    products = group.products
    (result, *others), out = group.outputs, group.outputs[0].op
    if len(products) != 1 or others or not isinstance(out, Compute) or not out.axis:
        return None
    (op,) = products
    if not same_shape(out.shape, op.shape):
        return None
    packed = packed_axis(group, op)
    along = innermost(group, result, op) if packed is None else packed
    c = analyse(op, frozenset(), along)
    return None if c is None else Product(group, c, op, _linear_run(group, c, out), target)


def packed_axis(group: Group, op: Compute) -> IterVar | None:
    """The output axis along which packed weights have blocks, or None.  Lanes must run along this
    axis.
    """
    for load in loads(op):
        column = column_block(group.layouts.get(load.buffer))  # type: ignore[arg-type]  # a tensor
        if column is not None:
            index = load.indices[column.axis]
            return next((a for a in op.axis if a.var is index), None)
    return None


def innermost(group: Group, result: Tensor, op: Compute) -> IterVar:
    """The axis of `op` that is contiguous in the memory of `result`: the last dimension of more
    than one element.
    """
    numbers = [d.axis for d in reversed(group.layout(result).dims)]
    long = (i for i in numbers if not same_dim(op.axis[i].extent, 1))
    return op.axis[next(long, numbers[0])]


def _linear_run(group: Group, c: Contraction, out: Compute) -> tuple[IterVar, ...]:
    """The trailing row axes that can be fused, because every access has one stride along all of
    them.
    """
    run = fusable_rows(c)
    if len(run) < 2:
        return run
    by_position = dict(zip((a.var for a in out.axis), (a.var for a in c.op.axis), strict=True))
    walks = [strides_through(group, c.x)]
    walks += [
        None if strides is None else {by_position.get(v, v): n for v, n in strides.items()}
        for strides in accesses(group, out, keep=(c.op,))
    ]
    kept = [run[-1]]
    for axis in reversed(run[:-1]):
        inner = kept[0]
        if not all(
            w is not None and same_dim(w.get(axis.var, 0), w.get(inner.var, 0) * inner.extent)
            for w in walks
        ):
            break
        kept.insert(0, axis)
    return tuple(kept)


def _share(
    o: Any,
    whole: list[tuple[Any, int]],
    inner: list[tuple[Any, int]],
    fits: bool,
    last: list[tuple[Any, int]],
    target: Target,
    cfg: Config,
) -> tuple[Any, list[tuple[Any, int]]]:
    """Share loops among threads.  Returns the shared loop, and the loops that were fused into it.

    The `whole` loops are fused and shared if they have enough iterations for an even division.
    Otherwise the longest of the `inner` loops is shared.  If it `fits` (see `are_fusable`), it
    is fused with the `whole` loops.  The order is then: the `whole` loops that are not in `last`,
    this loop, the loops in `last`.  If it can't be fused, only this loop is shared, and threads
    fork and join in each iteration of the loops outside it.
    """
    loops = whole
    trips = expected_size(n for _, n in loops)
    longest = max(inner, key=lambda x: x[1], default=None)
    if longest is not None:
        inside = is_shared_inside(trips, longest[1], fits, target)
        if cfg.choice("share_inside", (False, True) if whole else (inside,), inside):
            whole = [longest]
            if fits:
                whole = [*(x for x in loops if x not in last), longest, *last]
                o.reorder(*(x for x, _ in whole))
    if not whole:
        return None, []
    shared = whole[0][0]
    for x, _ in whole[1:]:
        shared = o.fuse(shared, x)
    o.parallel(shared)
    return shared, whole
