"""The operands of a contraction: in place, copied, or packed.

Borders are copied or inlined.  A `w` that is not contiguous along the lanes is packed in a first
pass.  The weights of the next column block are prefetched.
"""

from __future__ import annotations

import math

from tilesmith.ir.expr import Expr, Load, Var, free_vars, index_of, substitute
from tilesmith.ir.layout import Layout
from tilesmith.ir.symbols import expected, expected_size
from tilesmith.ir.target import LINE_BYTES, Target
from tilesmith.ir.tensor_intrinsics import TensorIntrinsic
from tilesmith.ir.types import same_dim
from tilesmith.ops.structure import loads
from tilesmith.perf.limits import COPIED_BYTES
from tilesmith.strategy.access import known_strides, strides
from tilesmith.strategy.group import Group
from tilesmith.te.knobs import Config
from tilesmith.te.schedule import Schedule
from tilesmith.te.stage import Axis, Stage
from tilesmith.te.tensor import Compute, IterVar, Placeholder, Tensor

from .contraction import (
    Contraction,
    RegisterTile,
    column_block,
    packed_layout,
    reduction_order,
    row_extent,
    walked,
)
from .dot_instructions import dot_for, joined_axis
from .injective import share_and_vectorize
from .transposition import Transposition, schedule_packing

WALK = 8
"""Least extent of an axis that a copy makes innermost: half a cache line of float32."""

PACKING = 5.0
"""Time of packing a column block, relative to computing one tile with it."""

PAIRING = 16
"""Fewest rows for which `w` is packed for an instruction that adds several contiguous steps."""

LOST, LOST_COMPETING = 0.055, 0.35
"""Fraction of a tile's time that is lost if the rows of its column block are not contiguous.

`LOST`: vectors straddle cache lines, and rows are not prefetched.  `LOST_COMPETING`: rows also
compete for cache sets, since a large power of two divides their stride.
"""


def dot_of_variables(
    group: Group, c: Contraction, rows: int, target: Target, cfg: Config
) -> TensorIntrinsic | None:
    """The integer dot-product instruction for which the kernel packs a variable `w`.  None if there
    is no instruction, or if too few rows read the packed copy.
    """
    tensor, last = c.w.buffer, joined_axis(c)
    if not isinstance(tensor, Tensor) or tensor in group.layouts or not tensor.dtype.is_int:
        return None
    if last is None or not isinstance(last.extent, int) or cfg.open_sums:
        return None
    dot = dot_for(c, target)
    if dot is None or last.extent % dot.extents[-1]:
        return None
    is_known = all(isinstance(n, int) for n in tensor.shape)
    if not is_known or expected_size(tensor.shape) * tensor.dtype.bytes > COPIED_BYTES:
        return None
    return dot if cfg.choice("pairs", (False, True), rows >= PAIRING) else None


def schedule_operands(
    s: Schedule,
    group: Group,
    c: Contraction,
    tile: RegisterTile,
    target: Target,
    cfg: Config,
    depth: int = 1,
) -> None:
    """Schedule the stages that compute or copy the operands of `c`.

    depth: reduction steps that one instruction adds.
    """
    joined = joined_axis(c) if depth > 1 else None
    for load in (c.x, c.w):
        tensor = load.buffer
        assert isinstance(tensor, Tensor)
        producer, is_copied = tensor.op, False
        if joined is not None and load is c.x:
            walk = strides_through(group, load)
            is_copied = walk is None or not same_dim(walk.get(joined.var, 0), 1)
        if not isinstance(producer, Compute):
            if is_copied:
                copy = s.cache_read(tensor, "heap", [c.op.outputs[0]])
                _arrange(s, copy, group.layout(tensor).dense, joined, c, target)
            continue
        pads = _pads(producer) and cfg.choice("padding", ("copy", "inline"), "copy") == "copy"
        if pads or is_copied:
            _materialise(s, group, producer, joined if load is c.x else None, c, target)
        else:
            inline_chain(s, producer)
    if not isinstance(c.w.buffer, Tensor) or c.vector is None:
        return
    if c.is_batched and (c.w.buffer in group.layouts or depth > 1):
        return
    is_paired = depth > 1 and c.w.buffer not in group.layouts
    packed = packed_layout(c, tile, depth if is_paired else 1)
    if packed is None:
        return
    along = runs_along(group, c.w, c.vector.var)
    if not along or is_paired or (not c.is_batched and _packs(group, c, tile, target, cfg)):
        copy = s.cache_read(c.w.buffer, "heap", [c.op.outputs[0]])
        s.transform_layout(copy, packed)
        across = None if along or is_paired else _across(s, group, c, tile)
        if across is not None:
            t, reader = across
            schedule_packing(s, copy, t, copy if reader is None else reader, tile.columns, target)
            return
        stage = s[copy]
        if not along and not is_paired and _copy_as_it_lies(stage, group, c, tile, copy, target):
            return
        order = list(dict.fromkeys(d.axis for d in packed.dims if d.part != "inner"))
        if along:  # the operand is read in place
            order.append(order.pop(0))
        loops = [stage.axis[i] for i in order]
        stage.reorder(*loops)
        sizes = [expected(copy.shape[i]) for i in order]
        share_and_vectorize(stage, loops, sizes, c.w.dtype.bytes, target)


def _copy_as_it_lies(
    stage: Stage, group: Group, c: Contraction, tile: RegisterTile, copy: Tensor, target: Target
) -> bool:
    """Copy a `w` that is not contiguous along the lanes, in its memory order, one vector at a time.

    Each cache line is then read once.  In the order of the copy, each position of a window would
    read the line again.  Returns False without adding steps, if strides are unknown or vectors
    would be partial.
    """
    walk = strides_through(group, c.w)
    sizes = [expected(n) for n in copy.shape]
    if walk is None or c.vector is None:
        return False
    along = index_of(c.w.indices, c.vector.var)
    if not isinstance(copy.shape[along], int) or sizes[along] % tile.lanes:
        return False
    steps = [0 if (v := walked(i)) is None else abs(walk.get(v, 0)) for i in c.w.indices]
    order = sorted(range(len(sizes)), key=lambda i: -steps[i])
    block, lanes = stage.split(stage.axis[along], factor=tile.lanes)
    loops = [block if i == along else stage.axis[i] for i in order]
    extents = [sizes[i] // tile.lanes if i == along else sizes[i] for i in order]
    stage.reorder(*loops, lanes)
    share_and_vectorize(stage, [*loops, lanes], [*extents, tile.lanes], c.w.dtype.bytes, target)
    return True


def _packs(group: Group, c: Contraction, tile: RegisterTile, target: Target, cfg: Config) -> bool:
    """Whether to pack a `w` that is already contiguous along the lanes.

    Packing pays if many tiles read each column block: only a contiguous block stays in L2.
    """
    walk, tensor = strides_through(group, c.w), c.w.buffer
    if walk is None or c.w.buffer in group.layouts or not isinstance(tensor, Tensor):
        return False  # `w` is computed by a stage with an order of its own, or is packed already
    if not all(isinstance(n, int) for n in tensor.shape):
        return False
    size = c.w.dtype.bytes
    taken = math.prod(map(int, tensor.shape)) * size  # type: ignore[arg-type]  # numbers
    steps = [a for a in c.op.reduce_axis if walk.get(a.var, 0)]
    if not steps or taken > COPIED_BYTES or not all(isinstance(a.extent, int) for a in steps):
        return False
    distance = min(abs(walk[a.var]) for a in steps) * size
    lines = -(-tile.columns * size // LINE_BYTES)
    block = lines * LINE_BYTES * math.prod(int(a.extent) for a in steps)  # type: ignore[arg-type]  # numbers
    way = target.model.l2_way_bytes
    places = min(way // math.gcd(distance, way) * lines * LINE_BYTES, way)
    lost = LOST_COMPETING if block > places * target.model.l2_ways else LOST
    tiles = row_extent(c) / tile.rows
    return bool(cfg.choice("pack", (False, True), tiles * lost > PACKING))


def _across(
    s: Schedule, group: Group, c: Contraction, tile: RegisterTile
) -> tuple[Transposition, Tensor | None] | None:
    """The transposition with which packing reads `w`, if `w` is contiguous along the reduction
    axis.  Also the inlined stage that reads the source, if there is one.  None if blocks would be
    partial, or if the stage is stored.
    """
    tensor, indices, reader = source_of(c.w)
    if reader is not None and s[c.w.buffer].state.attach != "inline":  # type: ignore[index]
        return None
    walk = strides_through(group, c.w)
    k = next((a for a in c.op.reduce_axis if walk is not None and walk.get(a.var, 0) == 1), None)
    if k is None or c.vector is None or not isinstance(tensor.op, Placeholder):
        return None
    if not all(
        isinstance(a.extent, int)
        and a.extent >= tile.lanes
        and [*map(id, indices)].count(id(a.var)) == 1
        for a in (k, c.vector)
    ):
        return None
    u, v = (index_of(c.w.indices, a.var) for a in (k, c.vector))
    x, y = (index_of(indices, a.var) for a in (k, c.vector))
    t = Transposition(tensor, u, v, x, y)
    return t, reader


def runs_along(group: Group, load: Load, var: Var) -> bool:
    """Whether neighbours along `var` are contiguous in memory, seen through inlined index maps."""
    tensor, indices, _ = source_of(load)
    if isinstance(tensor.op, Compute):
        return True  # the kernel computes the tensor in this order
    layout = group.layout(tensor)
    column = column_block(layout)
    if column is not None:
        return indices[column.axis] is var
    by_var = strides(tensor, indices, layout)
    return by_var is not None and by_var.get(var, 0) in (0, 1)


def lies_along(s: Schedule, group: Group, load: Load, var: Var) -> bool:
    """Whether neighbours along `var` are contiguous in memory; False if the operand is inlined."""
    tensor, indices, _ = source_of(load)
    layout = group.layout(tensor)
    if isinstance(tensor.op, Compute):
        state = s[tensor].state
        if state.attach == "inline":
            return False
        layout = state.layout or layout
    return known_strides(tensor, indices, layout).get(var) == 1


def source_of(load: Load) -> tuple[Tensor, tuple[Expr, ...], Tensor | None]:
    """The source of `load`, seen through stages that only move elements: the tensor, the indices in
    it, and the stage that reads it, if any.
    """
    tensor, indices, reader = load.buffer, load.indices, None
    while isinstance(tensor, Tensor) and isinstance(tensor.op, Compute):
        body = tensor.op.body[tensor.index]
        if not isinstance(body, Load):
            break
        mapping: dict[Expr, Expr] = dict(zip((a.var for a in tensor.op.axis), indices, strict=True))
        indices = tuple(substitute(i, mapping) for i in body.indices)
        tensor, reader = body.buffer, tensor
    assert isinstance(tensor, Tensor)
    return tensor, indices, reader


def strides_through(group: Group, load: Load) -> dict[Var, int] | None:
    tensor, indices, _ = source_of(load)
    return strides(tensor, indices, group.layout(tensor))


def _pads(op: Compute) -> bool:
    if not op.inputs:  # the operand is a literal
        return False
    return any(not isinstance(b, Load) for b in op.body) or any(
        not _plain(load) for load in loads(op)
    )


def _plain(load: Load) -> bool:
    """Whether each index is variable, except along dimensions of one element."""
    shape = load.buffer.shape
    return all(free_vars(i) or same_dim(n, 1) for i, n in zip(load.indices, shape, strict=True))


def inline_chain(s: Schedule, op: Compute) -> None:
    s[op.outputs[0]].compute_inline()
    for t in op.inputs:
        if isinstance(t.op, Compute):
            inline_chain(s, t.op)


def _materialise(
    s: Schedule, group: Group, op: Compute, joined: IterVar | None, c: Contraction, target: Target
) -> None:
    """Store a factor of `c` that `op` computes, such as `x` with its border.

    joined: see `_arrange`.
    """
    source = op.inputs[0]
    for t in op.inputs:
        if isinstance(t.op, Compute):
            inline_chain(s, t.op)
    layout, tensor = Layout.row_major(len(op.axis)), op.outputs[0]
    if isinstance(source.op, Placeholder) and source.rank == tensor.rank:
        stored = group.layout(source).dense
        layout = layout if stored.has_padding else stored
    _arrange(s, tensor, layout, joined, c, target)


def _arrange(
    s: Schedule,
    tensor: Tensor,
    layout: Layout,
    joined: IterVar | None,
    c: Contraction,
    target: Target,
) -> None:
    """Set the memory order of a stored factor of `c`, and its loops.

    The factor gets the `layout` of its source.  If that is row-major, the axis of the innermost
    loop or of the lanes is made contiguous.

    joined: the reduction axis along which one instruction reads several steps.  These steps must be
        contiguous.  None: an instruction reads one step.
    """
    along = walked_axis(c, tensor)
    if joined is not None:
        along = next(n for n, i in enumerate(c.x.indices) if joined.var in free_vars(i))
        if layout.dims[-1].axis != along:
            layout = Layout.row_major(tensor.rank)
    if layout.is_row_major and along is not None:
        layout = Layout.permuted((*(i for i in range(tensor.rank) if i != along), along))
    if not layout.is_row_major:
        s.transform_layout(tensor, layout)
    stage = s[tensor]
    order = [d.axis for d in layout.dims]
    stage.reorder(*(stage.axis[i] for i in order))
    sizes = [tensor.shape[i] for i in order]
    share_and_vectorize(stage, [stage.axis[i] for i in order], sizes, tensor.dtype.bytes, target)  # type: ignore[arg-type]


def walked_axis(c: Contraction, tensor: Tensor) -> int | None:
    """The axis of `tensor` along which the lanes or the innermost reduction loop run.  None if this
    axis is too short to matter, or if `tensor` does not hold the factor `x`.
    """
    if c.x.buffer is not tensor:
        return None
    walker = c.vector if c.is_batched else reduction_order(c)[-1]
    for dim, index in enumerate(c.x.indices):
        extent = tensor.shape[dim]
        if walker is not None and walker.var in free_vars(index):
            return dim if isinstance(extent, int) and extent >= WALK else None
    return None


def prefetch_block(
    a: Stage,
    group: Group,
    weights: object,
    block: Axis,
    parts: int,
    step: Axis,
    often: bool,
    target: Target,
    cfg: Config,
) -> None:
    """Prefetch the next block of `weights` while the tiles of the current one are computed, if the
    weights don't stay in the L2 cache.

    In the first tiles, the iterations of `step` together prefetch the whole block, each at least
    one cache line.  Otherwise the first use of each page would wait for memory, since hardware
    prefetching restarts at every page.

    weights: a tensor.  It is prefetched only if it is packed in column blocks.
    block: the loop over blocks of weights in the stage inside which `a` is computed.
    parts: successive iterations of `block` that read the same block of weights.
    often: whether there are enough tiles to prefetch the whole block.  Where weights are read only
        once or twice, prefetching takes longer than waiting.
    """
    if not isinstance(weights, Tensor) or column_block(group.layouts.get(weights)) is None:
        return
    elements = math.prod(n for n in weights.shape if isinstance(n, int))
    far = elements * weights.dtype.bytes > target.model.l2_bytes
    if cfg.choice("ahead", (False, True), far and often):
        a.prefetch(weights, block, parts, over=step, parts=parts)
