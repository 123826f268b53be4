"""Instructions on whole tiles for contractions of narrow types.

    parallel over batch, column blocks, outer rows
      rows in steps of a block of tiles
        acc[tiles of rows, tiles of columns] in tile registers
        for windows, k: acc += tiles of x * tiles of w
        copy of acc on the stack, then the epilogue, row by row

A tile instruction multiplies a tile of rows with a tile of columns: `acc[i, j] += sum over k and q
of x[i, k, q] * w[k, j, q]`.  The rows of `x` may have any stride, so `x` is read in place, also
through windows.  `w` is packed as for other dot products (`dot_instructions`), with zeros in the
tail columns.  A tile may be smaller than the instruction allows, so that the extents of rows and of
k are multiples of the tile's.  If there are few channels, one instruction sums over channels and
the columns of a window: both are contiguous in images with channels last.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from tilesmith import te
from tilesmith.ir.affine import affine_form
from tilesmith.ir.expr import index_of
from tilesmith.ir.layout import Layout, LayoutDim
from tilesmith.ir.target import Target
from tilesmith.ir.tensor_intrinsics import (
    Operand,
    TensorIntrinsic,
    declare_family,
    matches,
    of_rows,
    of_steps,
    tensor_intrinsic,
)
from tilesmith.ir.types import same_dim
from tilesmith.perf.cycles import Instructions, tile_cycles
from tilesmith.strategy.group import Group
from tilesmith.strategy.intrinsics import available
from tilesmith.te.knobs import Config
from tilesmith.te.schedule import Schedule
from tilesmith.te.stage import Axis, Stage
from tilesmith.te.tensor import Compute, IterVar, Placeholder, Reduce, Tensor

from .contraction import (
    Contraction,
    RegisterTile,
    column_block,
    joined_steps,
    reduction_order,
    stays_near,
)
from .dot_instructions import dot_for, joined_axis
from .operands import prefetch_block, schedule_operands, strides_through
from .product import Product, innermost
from .reduction import vectorize

PASSES = 4
"""Prefetching the next column block is worthwhile if there are at least this many passes over the
current one.
"""


@dataclass(frozen=True, slots=True)
class TileBlock:
    """The tiles that the innermost loops of a contraction compute together.

    intrinsic: the instruction.
    rows, columns: number of tiles along rows and along columns.
    joins: whether an instruction sums over the columns of a window and the channels.
    """

    intrinsic: TensorIntrinsic
    rows: int
    columns: int
    joins: bool = False

    @property
    def height(self) -> int:
        """Rows of the output per block."""
        return self.rows * self.intrinsic.extents[0]

    @property
    def width(self) -> int:
        """Columns of the output per block."""
        return self.columns * self.intrinsic.extents[1]

    @property
    def depth(self) -> int:
        """Reduction steps that are contiguous in packed `w`."""
        return self.intrinsic.extents[-1]

    @property
    def steps(self) -> int:
        """Reduction steps of one instruction."""
        return math.prod(self.intrinsic.extents[2:])

    def cycles(self, target: Target, rows: int, columns: int) -> float:
        """Cycles per multiply-add of an output of `rows` x `columns`, tails included."""
        full, tail = divmod(rows, self.height)
        spent = full * self._step_cycles(target)
        if tail:
            rest = of_rows(self.intrinsic, tail)
            assert rest is not None and self.rows == 1
            spent += TileBlock(rest, 1, self.columns)._step_cycles(target)
        return spent * -(-columns // self.width) / (rows * columns * self.steps)

    def _step_cycles(self, target: Target) -> float:
        """Cycles of one step of the whole block."""
        model, i = target.model, self.intrinsic
        tiles = self.rows * self.columns
        vectors = [n * o.size * o.dtype.bytes * 8 / target.vector_bits
                   for n, o in zip((self.rows, self.columns), i.operands, strict=True)]  # fmt: skip
        each = i.time(model)
        # The first product that uses a column tile costs more.
        fresh = max(each, i.first_fmas or 0.0)
        calls = self.columns * fresh + (tiles - self.columns) * each
        return tile_cycles(Instructions(fma=calls, load=sum(vectors)), 2 * vectors[1], model)


def tile_block(
    c: Contraction, target: Target, rows: int, width: int | None = None, joins: bool = True
) -> TileBlock | None:
    """The block of tiles with the fewest cycles.  None if no tile instruction applies, or if dot
    products of vectors are faster.

    rows: iterations of the row loop.
    width: required columns of the block; None: any number.
    joins: whether an instruction may sum over the columns of a window and the channels.
    """
    last, source = joined_axis(c), c.op.body[0]
    if last is None or c.vector is None or not isinstance(source, Reduce):
        return None
    columns, steps = c.vector.extent, last.extent
    if not isinstance(columns, int) or not isinstance(steps, int):
        return None
    runs = {False: steps}
    window = window_axis(c) if joins else None
    if window is not None and isinstance(window.extent, int):
        runs[True] = steps * window.extent
    blocks: list[TileBlock] = []
    for declared in available(target).values():
        if not _is_tile(declared) or steps % declared.extents[-1]:
            continue
        if any(b[declared.operands[0]] is c.x for b in matches(declared, source.sources[0])):
            for joined, run in runs.items():
                blocks += _blocks(declared, rows, columns, run, joined, target)

    blocks = [b for b in blocks if width in (None, b.width)]
    best = min(blocks, key=lambda b: b.cycles(target, rows, columns), default=None)
    dot = dot_for(c, target)
    if best is None or dot is None:
        return best
    products = math.prod(dot.extents) / dot.time(target.model) * target.model.fma_ports
    return best if best.cycles(target, rows, columns) < 1 / products else None


def window_axis(c: Contraction) -> IterVar | None:
    """The window axis along the last axis of an image whose channels are last in memory.  The first
    channel of the next column then follows the last channel in memory.  None if there is no such
    axis, or if the sum is not over all channels.
    """
    *outside, last = reduction_order(c)
    if not outside or not isinstance(c.x.buffer, Tensor):
        return None
    window = outside[-1]
    channels = [n for n, i in enumerate(c.x.indices) if i is last.var]
    columns = [n for n, i in enumerate(c.x.indices) if affine_form(i)[0].get(window.var, 0) == 1]
    is_whole = len(channels) == 1 and same_dim(c.x.buffer.shape[channels[0]], last.extent)
    return window if is_whole and columns == [c.x.buffer.rank - 1] else None


def _is_tile(i: TensorIntrinsic) -> bool:
    """Whether `i` multiplies rows of its first operand with columns of its second, with contiguous
    neighbouring steps in both.
    """
    if not i.accumulates or i.is_reduced[:2] != (False, False) or len(i.operands) != 2:
        return False
    a, w = (i.strides(o) for o in i.operands)
    return not a[1] and not w[0] and i.load is not None and w[1] == i.extents[-1] and w[-1] == 1


def _blocks(
    declared: TensorIntrinsic, rows: int, columns: int, steps: int, joins: bool, target: Target
) -> list[TileBlock]:
    """The blocks whose accumulators and operands fit the registers.

    Blocks divide steps and rows evenly.  Only a block of one row of tiles may leave tail rows, if
    an instruction with fewer rows computes the tail.
    """
    first, *others = declared.extents[2:]
    each = math.prod(others)
    deepest = max((n for n in range(1, first + 1) if steps % (n * each) == 0), default=0)
    of_depth = of_steps(declared, deepest)
    return [] if of_depth is None else _divided(of_depth, rows, columns, joins, target)


def _divided(
    declared: TensorIntrinsic, rows: int, columns: int, joins: bool, target: Target
) -> list[TileBlock]:
    registers = declared.registers or target.vector_registers
    lanes = target.vector_lanes(declared.result.dtype.bytes)
    blocks: list[TileBlock] = []
    for height in range(2, min(declared.extents[0], rows) + 1):
        intrinsic, tail = of_rows(declared, height), rows % height
        if intrinsic is None or (tail and of_rows(declared, tail) is None):
            continue
        for r in range(1, registers if not tail else 2):
            if rows % (r * height) != tail:
                continue
            for n in range(1, registers):
                width = n * declared.extents[1]
                needed = n == 1 or width - declared.extents[1] < columns
                # A tile register has one shape, so a tail needs a register of its own.
                tiles = r * n + r + n + (n + 1 if tail else 0)
                if tiles <= registers and needed and not width % lanes:
                    blocks.append(TileBlock(intrinsic, r, n, joins))
    return blocks


def schedule_tiles(s: Schedule, p: Product, cfg: Config) -> bool:
    """Schedule the whole group around a product.

    Returns False without adding steps, if no tile instruction applies, or if other instructions are
    faster.
    """
    group, c, target = p.group, p.c, p.target
    weights = group.layouts.get(c.w.buffer)  # type: ignore[arg-type]  # a tensor
    column = column_block(weights)
    if column is None or c.w.indices[column.axis] is not p.vector.var:
        return False
    if innermost(group, p.result, p.sums) is not p.vector:
        return False
    if not p.run or not all(isinstance(r.extent, int) for r in p.run):
        return False
    block = tile_block(c, target, p.rows, column.block, _lie_together(group, c))
    if block is None or joined_steps(weights) != block.depth:
        return False
    if not cfg.choice("tiles", (False, True), True):
        return False

    p.inline(s, p.epilogue)
    lanes = p.lanes
    tile = RegisterTile(block.height, block.width // lanes, lanes)
    schedule_operands(s, group, c, tile, target, cfg, block.depth)
    kept = p.accumulator(s, "stack")
    acc = s.cache_write(kept, "register")
    o = s[p.result]
    near = stays_near(c, target)
    level, blocks = p.tile(s, block.width, block.height, cfg, near, loop_rows=True)
    vectorize(o, o.leaf_axes[-1], block.width, lanes)
    first, vector_at = p.row_at[0], p.vector_at
    places = first, vector_at - (len(p.run) - 1 if vector_at > first else 0)
    for tensor in (kept, acc):
        s[tensor].compute_at(o, level)
        _arrange(s, tensor, places, block)
    copy = s[kept]
    outside, unrolled, inside = _tiled(copy, places, block)
    copy.reorder(*outside, *unrolled, *inside)
    for x in unrolled:
        copy.unroll(x)
    copy.tensorize(inside[0], copy_of(block.intrinsic.result))

    a = s[acc]
    *windows, last = (a.reduce_axis[index_of(p.sums.reduce_axis, k)] for k in reduction_order(c))
    if block.joins:
        a.reorder(*windows, last)
        last = a.fuse(windows.pop(), last)
    outside, unrolled, inside = _tiled(a, places, block)
    last, *steps = a.split(last, factor=block.steps)
    for n in block.intrinsic.extents[3:]:
        steps += a.split(steps.pop(), factor=n)
    a.reorder(*outside, *windows, last, *unrolled, *inside, *steps)
    for x in unrolled:
        a.unroll(x)
    a.tensorize(inside[0], block.intrinsic)
    if blocks is not None:
        often = blocks.parts * blocks.passes >= PASSES
        prefetch_block(a, group, c.w.buffer, blocks.axis, blocks.parts, last, often, target, cfg)
    return True


def _lie_together(group: Group, c: Contraction) -> bool:
    """Whether the kernel reads an `x` in which the channels follow a window's columns contiguously
    in memory (see `operands.schedule_operands`).
    """
    window, last = window_axis(c), joined_axis(c)
    if window is None or last is None:
        return False
    walk = strides_through(group, c.x)
    if walk is not None and same_dim(walk.get(last.var, 0), 1):
        return same_dim(walk.get(window.var, 0), last.extent)
    tensor = source = c.x.buffer
    assert isinstance(tensor, Tensor) and isinstance(source, Tensor)
    if isinstance(tensor.op, Compute):
        source = tensor.op.inputs[0]
    if not isinstance(source.op, Placeholder) or source.rank != tensor.rank:
        return True
    *_, before, innermost = (d.axis for d in group.layout(source).dense.dims)
    return c.x.indices[innermost] is not last.var or before == tensor.rank - 1


def _arrange(s: Schedule, tensor: Tensor, places: tuple[int, int], block: TileBlock) -> None:
    """Make each tile of a block contiguous in memory, one tile after the other.

    places: numbers of the two axes that are divided into tiles.
    """
    sizes = block.intrinsic.extents[:2]
    others = (LayoutDim(i) for i in range(tensor.rank) if i not in places)
    outer = (LayoutDim(i, "outer", n) for i, n in zip(places, sizes, strict=True))
    inner = (LayoutDim(i, "inner", n) for i, n in zip(places, sizes, strict=True))
    s.transform_layout(tensor, Layout((*others, *outer, *inner)))


def _tiled(
    stage: Stage, places: tuple[int, int], block: TileBlock
) -> tuple[list[Axis], list[Axis], list[Axis]]:
    """Split the axes with the numbers `places` into tiles.  Returns the other axes, the loops over
    tiles, and the loops in a tile.
    """
    outside = [x for i, x in enumerate(stage.axis) if i not in places]
    split = [
        stage.split(stage.axis[i], factor=n, tail=tail)
        for i, n, tail in zip(places, block.intrinsic.extents[:2], ("peel", "roundup"), strict=True)
    ]
    return outside, [x for x, _ in split], [x for _, x in split]


def copy_of(tile: Operand) -> TensorIntrinsic:
    """The intrinsic that copies a whole tile."""
    rows, columns = tile.shape
    return tensor_intrinsic(f"copy_{tile.dtype}x{columns}_{rows}")


def _declare_copies(element: str, columns: int) -> None:
    def make(rows: int) -> TensorIntrinsic:
        a = te.placeholder((rows, columns), element, "a")
        c = te.compute((rows, columns), lambda i, j: a[i, j], "c")
        return te.decl_tensor_intrin(f"{family}_{rows}", c, lambda code, a: a)

    family = f"copy_{element}x{columns}"
    declare_family(family, make)


for _element in ("f32", "i32"):
    for _columns in (2, 16):
        _declare_copies(_element, _columns)
