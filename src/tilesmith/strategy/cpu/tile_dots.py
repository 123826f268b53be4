"""Contractions of narrow numbers by instructions on whole tiles.

    parallel over batch, column blocks, outer rows
      rows in steps of a block of tiles
        acc[tiles of rows, tiles of columns] in tile registers
        for windows, k: acc += tiles of x * tiles of w
        copy of acc on the stack, then the epilogue, row by row

Such an instruction multiplies a tile of rows with a tile of columns:
`acc[i, j] += sum over k and q of x[i, k, q] * w[k, j, q]`.  It loads rows that lie apart, so `x` is
read where it lies, also through windows.  `w` is packed as for other dot products
(`dot_instructions`).  Tiles divide the output evenly: a tile may have fewer rows than the largest.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from tilesmith import te
from tilesmith.ir.expr import index_of
from tilesmith.ir.layout import Layout, LayoutDim
from tilesmith.ir.symbols import expected_size
from tilesmith.ir.target import Target
from tilesmith.ir.tensor_intrinsics import (
    Operand,
    TensorIntrinsic,
    declare_family,
    matches,
    of_rows,
    tensor_intrinsic,
)
from tilesmith.ir.types import same_shape
from tilesmith.strategy.group import Group
from tilesmith.strategy.intrinsics import available
from tilesmith.te.knobs import ANALYTIC, Config
from tilesmith.te.schedule import Schedule
from tilesmith.te.stage import Axis, Stage
from tilesmith.te.tensor import Compute, Reduce, Tensor

from .contraction import (
    Contraction,
    RegisterTile,
    analyse,
    column_block,
    fusable_rows,
    joined_steps,
    reduction_order,
)
from .dot_instructions import dot_for, joined_axis
from .matmul import (
    accumulator,
    innermost,
    linear_run,
    packed_axis,
    stages_after,
    stays_near,
    tile_output,
)
from .operands import schedule_operands
from .reduction import vectorize


@dataclass(frozen=True, slots=True)
class TileBlock:
    """What the innermost loops of a contraction compute at once.

    intrinsic: the instruction.
    rows, columns: tiles below each other and side by side.
    """

    intrinsic: TensorIntrinsic
    rows: int
    columns: int

    @property
    def height(self) -> int:
        """Rows of the output."""
        return self.rows * self.intrinsic.extents[0]

    @property
    def width(self) -> int:
        """Columns of the output."""
        return self.columns * self.intrinsic.extents[1]

    @property
    def depth(self) -> int:
        """Neighbouring reduction steps in a row of `w`."""
        return self.intrinsic.extents[-1]

    @property
    def steps(self) -> int:
        """Reduction steps of a call."""
        return math.prod(self.intrinsic.extents[2:])

    def cycles(self, target: Target) -> float:
        """Cycles for each product."""
        model, i = target.model, self.intrinsic
        tiles = self.rows * self.columns
        vectors = [n * o.size * o.dtype.bytes * 8 / target.vector_bits
                   for n, o in zip((self.rows, self.columns), i.operands, strict=True)]  # fmt: skip
        busy = max(tiles * i.fmas / model.fma_ports, sum(vectors) / model.load_ports)
        streamed = 2 * model.load_cycles * vectors[1]  # as for vectors, see `step_cycles`
        return (busy + streamed + model.loop_cycles) / (tiles * math.prod(i.extents))


def tile_block(
    c: Contraction, target: Target, rows: int, width: int | None = None
) -> TileBlock | None:
    """The block of tiles that takes the fewest cycles; None if no such instruction fits, or if dot
    products of vectors are faster.

    rows: in one run of the loop over rows.
    width: columns of the block, if they are fixed.
    """
    last, source = joined_axis(c), c.op.body[0]
    if last is None or c.vector is None or not isinstance(source, Reduce):
        return None
    columns, steps = c.vector.extent, last.extent
    if not isinstance(columns, int) or not isinstance(steps, int):
        return None
    found: list[TileBlock] = []
    for declared in available(target).values():
        if not _is_tile(declared) or steps % math.prod(declared.extents[2:]):
            continue
        if any(b[declared.operands[0]] is c.x for b in matches(declared, source.sources[0])):
            found += _blocks(declared, rows, columns, target)
    found = [b for b in found if width in (None, b.width)]
    best = min(found, key=lambda b: b.cycles(target), default=None)
    dot = dot_for(c, target)
    if best is None or dot is None:
        return best
    products = math.prod(dot.extents) / dot.fmas * target.model.fma_ports
    return best if best.cycles(target) < 1 / products else None


def _is_tile(i: TensorIntrinsic) -> bool:
    """Whether `i` multiplies rows of its first operand with columns of its second one, of which
    neighbouring steps lie together.
    """
    if not i.accumulates or i.is_reduced[:2] != (False, False) or len(i.operands) != 2:
        return False
    a, w = (i.strides(o) for o in i.operands)
    return not a[1] and not w[0] and i.load is not None and w[1] == i.extents[-1] and w[-1] == 1


def _blocks(declared: TensorIntrinsic, rows: int, columns: int, target: Target) -> list[TileBlock]:
    """The blocks that divide the columns and stay in registers.

    Blocks divide the rows, too.  Only a block of a single tile below the others may leave a tail,
    for which there is an instruction with fewer rows.
    """
    registers = declared.registers or target.vector_registers
    lanes = target.vector_lanes(declared.result.dtype.bytes)
    found: list[TileBlock] = []
    for height in range(2, min(declared.extents[0], rows) + 1):
        intrinsic, tail = of_rows(declared, height), rows % height
        if intrinsic is None or (tail and of_rows(declared, tail) is None):
            continue
        for r in range(1, registers if not tail else 2):
            if rows % (r * height) != tail:
                continue
            for n in range(1, registers):
                width = n * declared.extents[1]
                if r * n + r + n <= registers and not columns % width and not width % lanes:
                    found.append(TileBlock(intrinsic, r, n))
    return found


def schedule_tiles(
    s: Schedule, group: Group, anchor: Compute, target: Target, cfg: Config = ANALYTIC
) -> bool:
    """Schedule the whole group around `anchor`.

    Returns False, with nothing done, if no instruction on tiles fits, or if others are faster.
    """
    out = group.outputs[0].op
    if len(group.outputs) != 1 or not isinstance(out, Compute) or not anchor.axis:
        return False
    if not same_shape(out.shape, anchor.shape):
        return False
    layout = group.layout(group.outputs[0])
    packed = packed_axis(group, anchor)
    c = analyse(anchor, frozenset(t for t in group.inputs if t in group.layouts), packed)
    if (
        packed is None
        or c is None
        or c.vector is not packed
        or innermost(layout, anchor) is not packed
    ):
        return False
    weights = group.layouts.get(c.w.buffer)  # type: ignore[arg-type]  # a tensor
    column = column_block(weights)
    run = linear_run(group, c, fusable_rows(c))
    if column is None or not run or not all(isinstance(r.extent, int) for r in run):
        return False
    block = tile_block(c, target, expected_size(r.extent for r in run), column.block)
    if block is None or joined_steps(weights) != block.depth:
        return False
    if not cfg.choice("tiles", (False, True), True):
        return False

    after = stages_after(group, anchor)
    for stage in group.stages:
        if stage is not anchor and stage is not out and not stage.reduce_axis and stage in after:
            s[stage.outputs[0]].compute_inline()
    lanes = target.vector_lanes(anchor.outputs[0].dtype.bytes)
    tile = RegisterTile(block.height, block.width // lanes, lanes)
    schedule_operands(s, group, c, tile, target, cfg, block.depth)
    position = {a: i for i, a in enumerate(anchor.axis)}
    row_at, vector_at = [position[r] for r in run], position[packed]
    kept = accumulator(s, group, anchor, "stack")
    if len(row_at) > 1:
        kept = s.flatten_axes(kept, *(s[kept].axis[i] for i in row_at))
    acc = s.cache_write(kept, "register")
    o = s[group.outputs[0]]
    near = stays_near(c, target)
    order = [d.axis for d in layout.dims]
    level, _ = tile_output(
        o, anchor, c, order, vector_at, row_at, block.width, block.height, near, target, cfg, True
    )
    vectorize(o, o.leaf_axes[-1], block.width, lanes)
    column_at = vector_at - (len(row_at) - 1 if vector_at > row_at[0] else 0)
    places = row_at[0], column_at
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
    *windows, last = (a.reduce_axis[index_of(anchor.reduce_axis, k)] for k in reduction_order(c))
    outside, unrolled, inside = _tiled(a, places, block)
    last, *steps = a.split(last, factor=block.steps)
    for n in block.intrinsic.extents[3:]:
        steps += a.split(steps.pop(), factor=n)
    a.reorder(*outside, *windows, last, *unrolled, *inside, *steps)
    for x in unrolled:
        a.unroll(x)
    a.tensorize(inside[0], block.intrinsic)
    return True


def _arrange(s: Schedule, tensor: Tensor, places: tuple[int, int], block: TileBlock) -> None:
    """Let the tiles of a block be neighbours in memory, one after the other."""
    sizes = block.intrinsic.extents[:2]
    others = (LayoutDim(i) for i in range(tensor.rank) if i not in places)
    outer = (LayoutDim(i, "outer", n) for i, n in zip(places, sizes, strict=True))
    inner = (LayoutDim(i, "inner", n) for i, n in zip(places, sizes, strict=True))
    s.transform_layout(tensor, Layout((*others, *outer, *inner)))


def _tiled(
    stage: Stage, places: tuple[int, int], block: TileBlock
) -> tuple[list[Axis], list[Axis], list[Axis]]:
    """The spatial axes outside of a block's tiles, those over its tiles, and those of a tile."""
    outside = [x for i, x in enumerate(stage.axis) if i not in places]
    split = [
        stage.split(stage.axis[i], factor=n)
        for i, n in zip(places, block.intrinsic.extents[:2], strict=True)
    ]
    return outside, [x for x, _ in split], [x for _, x in split]


def copy_of(tile: Operand) -> TensorIntrinsic:
    """The intrinsic that copies a tile as a whole."""
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
