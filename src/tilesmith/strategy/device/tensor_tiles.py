"""Products of matrices by instructions that the threads of a wave run together.

    for by, bx in blocks:
        for ty, tz in waves:
            C_fragment[tiles] = 0
            for ko:
                A_shared = A; B_shared = B                   # cooperatively, in vectors
                for tiles: C_fragment += A_shared * B_shared  # one instruction for a tile
            C = C_fragment                                   # each thread its part of each tile

Tiles of operands have several buffers where the device copies asynchronously (`copies_ahead`).

Block sizes minimise loads per product, but leave enough blocks for the device.  Tiles may extend
past the end of the result: nothing is stored there.  The number of terms must be a multiple of an
instruction's terms.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import product as pairs
from math import gcd

from tilesmith.ir.expr import Const, Load, Var, vars_of
from tilesmith.ir.layout import Layout, LayoutDim
from tilesmith.ir.loop_tables import BLOCKS, THREADS
from tilesmith.ir.symbols import expected_size
from tilesmith.ir.target import Target
from tilesmith.ir.tensor_intrinsics import TensorIntrinsic, matches
from tilesmith.ir.types import same_dim
from tilesmith.loop.passes.vector_copies import WIDEST
from tilesmith.perf.warps import BANKS, SECTOR, WORD, bank_conflicts
from tilesmith.strategy.group import accumulator
from tilesmith.strategy.intrinsics import available
from tilesmith.te.schedule import Schedule
from tilesmith.te.stage import Axis, Stage
from tilesmith.te.tensor import Compute, Reduce, Tensor

from .blocks import fused
from .copies_ahead import buffers, can_copy_ahead
from .split_sums import divide_sum, parts_of

WAVES = 2
"""Upper bound on the waves along each side of a block."""
HEIGHTS = (1, 2, 4)
WIDTHS = (2, 4, 8)
"""Candidate numbers of a wave's tiles along rows (`HEIGHTS`) and along columns."""
STEPS = (4, 2, 1)
"""Candidate numbers of instructions along the sum between two barriers."""
PADS = (0, 4, 2, 1)
"""Candidate padding of rows in shared memory, in words.  The padding limits the width of stores."""


@dataclass(frozen=True, slots=True)
class TensorTile:
    """A product with the sizes of its tiles.

    intrinsic: the instruction.
    a, b: its operands.
    row, column: the axes of the result, by number.
    turned: whether `a` is stored with its rows along the sum.
    waves: waves of a block, along rows and along columns.
    tiles: tiles of a wave, along rows and along columns.
    steps: instructions along the sum between two barriers.
    parts: number of parts into which blocks divide the sum.
    buffers: buffers of each operand in shared memory.
    """

    intrinsic: TensorIntrinsic
    a: Tensor
    b: Tensor
    row: int
    column: int
    turned: bool
    waves: tuple[int, int]
    tiles: tuple[int, int]
    steps: int
    parts: int = 1
    buffers: int = 1

    @property
    def block(self) -> tuple[int, int]:
        """Rows and columns of the result that a block computes."""
        rows, columns, _ = self.intrinsic.extents
        return self.waves[0] * self.tiles[0] * rows, self.waves[1] * self.tiles[1] * columns

    def row_of(self, number: int) -> int:
        """Elements of a row of an operand in shared memory."""
        along_k = self.intrinsic.strides(self.intrinsic.operands[number])[2] == 1
        return self.depth if along_k else self.block[1]

    @property
    def depth(self) -> int:
        """Terms of the sum between two barriers."""
        return self.steps * self.intrinsic.extents[2]


def tensor_tile(op: Compute, target: Target, divides: bool = True) -> TensorTile | None:
    """The fastest tiles for a sum of matrix products by instructions on tiles; None if there are
    none.

    divides: whether blocks may divide the sum.
    """
    root = op.body[0]
    if not op.reduce_axis or len(op.axis) < 2 or not isinstance(root, Reduce):
        return None
    k, column = op.reduce_axis[-1], len(op.axis) - 1
    sizes = [a.extent for a in (*op.axis, k)]
    if not all(isinstance(n, int) for n in sizes):
        return None
    for i in available(target).values():
        if i.threads != _wave(target) or not _is_product(i):
            continue
        for operands in matches(i, root.sources[0]):
            a, b = (operands[o] for o in i.operands)
            row = _row(op, a, b, k.var)
            if row is None or not isinstance(k.extent, int) or k.extent % i.extents[2]:
                continue
            along_k = b.indices[-1] is k.var
            fits = along_k == (i.strides(i.operands[1])[2] == 1)
            plain = along_k or b.indices[-1] is op.axis[column].var
            if not fits or not plain or not isinstance(a.buffer, Tensor):
                continue
            assert isinstance(b.buffer, Tensor)
            turned = a.indices[-1] is not k.var
            made = (
                t
                for waves, tiles in _arrangements(target)
                for t in _staged(
                    TensorTile(i, a.buffer, b.buffer, row, column, turned, waves, tiles, 1),
                    op, target, divides,
                )
            )  # fmt: skip
            fitting = [t for t in made if _bytes(t) <= _shared_bytes(target) and _has_waves(t, op)]
            return min(
                fitting,
                key=lambda t: (_conflicts(t), _cost(t, op, target), t.buffers == 1),
                default=None,
            )
    return None


def _staged(t: TensorTile, op: Compute, target: Target, divides: bool) -> Iterator[TensorTile]:
    """Variants of `t`, each with as many steps as possible.  The first has one buffer.  The second,
    if there is one, has several buffers, and fewer steps if shared memory requires this.
    """
    depth = t.intrinsic.extents[2]
    terms = [a.extent for a in op.reduce_axis]
    length, size = terms[-1], expected_size(terms)
    assert isinstance(length, int)
    fitting = [replace(t, steps=n) for n in STEPS if length % (n * depth) == 0]
    if divides:
        fitting = [replace(x, parts=parts_of(op, _blocks(x, op), x.block, target, x.depth))
                   for x in fitting]  # fmt: skip
    yield fitting[0]
    for x in fitting:
        if _can_copy_ahead(x, target):
            count = buffers(target, _bytes(x), size // x.parts // x.depth)
            if count > 1:
                yield replace(x, buffers=count)
                return


def _can_copy_ahead(t: TensorTile, target: Target) -> bool:
    if t.turned:
        return False  # the tile is stored one element at a time
    for number, tensor in enumerate((t.a, t.b)):
        row = tensor.shape[-1]
        assert isinstance(row, int)
        if not can_copy_ahead(target, tensor, _padding(t, number, row)[1]):
            return False
    return True


def _has_waves(t: TensorTile, op: Compute) -> bool:
    """Whether the result needs all waves of a block.  Along each side with several waves, the
    result must be longer than the tiles of one wave.
    """
    sides = zip(t.waves, t.block, (op.axis[t.row], op.axis[t.column]), strict=True)
    return all(
        n == 1 or (isinstance(x.extent, int) and size // n < x.extent) for n, size, x in sides
    )


def _wave(target: Target) -> int:
    assert target.device is not None
    return target.device.wave


def _shared_bytes(target: Target) -> int:
    assert target.device is not None
    return target.device.shared_bytes


def _is_product(i: TensorIntrinsic) -> bool:
    return i.accumulates and i.is_reduced == (False, False, True) and len(i.operands) == 2


def _row(op: Compute, a: Load, b: Load, k: Var) -> int | None:
    """The axis of the rows: the last one on which `a` depends and `b` does not.  None unless the
    operands are matrices whose columns are the last axis.
    """
    last = op.axis[-1].var
    if not all(isinstance(i, (Var, Const)) for i in (*a.indices, *b.indices)):
        return None
    left, right = (vars_of(x.indices) for x in (a, b))
    if last in left or last not in right or k not in left or k not in right:
        return None
    rows = [n for n, x in enumerate(op.axis) if x.var in left - right and not same_dim(x.extent, 1)]
    if not rows or not any(a.indices[-1] is v for v in (k, op.axis[rows[-1]].var)):
        return None
    return rows[-1]


def _arrangements(target: Target) -> Iterator[tuple[tuple[int, int], tuple[int, int]]]:
    """Waves of a block and tiles of a wave, larger ones first."""
    for tiles in pairs(reversed(HEIGHTS), reversed(WIDTHS)):
        if tiles[0] * tiles[1] <= HEIGHTS[-1] * WIDTHS[1]:  # the accumulators stay in registers
            for waves in pairs(range(WAVES, 0, -1), repeat=2):
                yield (waves[0], waves[1]), (tiles[0], tiles[1])


def _bytes(t: TensorTile) -> int:
    """Bytes of shared memory, with the largest padding."""
    size = t.intrinsic.operands[0].dtype.bytes
    rows, columns = t.block
    across = t.row_of(1)
    along = columns * t.depth // across
    pad = max(PADS) * WORD
    return rows * (t.depth * size + pad) + along * (across * size + pad)


def _blocks(t: TensorTile, op: Compute) -> int:
    """Number of blocks if sums are not divided."""
    height, width = t.block
    rows, columns = (op.axis[n].extent for n in (t.row, t.column))
    assert isinstance(rows, int) and isinstance(columns, int)
    others = expected_size(a.extent for n, a in enumerate(op.axis) if n not in (t.row, t.column))
    return -(-rows // height) * -(-columns // width) * others


def _cost(t: TensorTile, op: Compute, target: Target) -> float:
    """Time of one wave, in multiply-adds: computing, loading and adding partial sums, times the
    number of blocks that run one after the other.
    """
    device = target.device
    assert device is not None
    height, width = t.block
    waves = t.waves[0] * t.waves[1]
    products = height * width / min(waves, WAVES * WAVES)
    loading = device.load_fmas * device.wave / waves
    terms = expected_size(a.extent for a in op.reduce_axis) / t.parts
    partial = 2 * loading * height * width if t.parts > 1 else 0
    rounds = device.rounds(_blocks(t, op) * t.parts)
    return rounds * (terms * (products + loading * (height + width)) + partial)


def schedule_tensor_tiles(
    s: Schedule, t: TensorTile, name: str, out: str, target: Target, axes: Sequence[int] = ()
) -> None:
    """Compute the product `name` in the tiles of `out`.  `out` is `name` or its elementwise reader.

    axes: numbers of axes of `out`: axes that are merged into rows, then the axis of columns.
        Empty: the axes of the product.
    """
    if t.parts > 1:
        name = out = divide_sum(s, name, out, t.parts, target)
        t, axes = replace(t, row=t.row + 1, column=t.column + 1), ()
    stage = s[out]
    own = accumulator(s, name, out, "fragment")
    a, b = (s[s.cache_read(x, "shared", [own])] for x in (t.a, t.b))
    rows, columns, depth = t.intrinsic.extents
    outer, inner = [LayoutDim(n) for n in range(len(own.axis))], []
    for n, size in ((t.row, rows), (t.column, columns)):
        outer[n] = LayoutDim(n, "outer", size)
        inner.append(LayoutDim(n, "inner", size))
    s.transform_layout(own.op.outputs[0], Layout((*outer, *inner)))

    waves = _tile_result(stage, t, axes)
    own.compute_at(stage, waves)
    others = [x for n, x in enumerate(own.axis) if n not in (t.row, t.column)]
    it, i = own.split(own.axis[t.row], factor=rows, tail="roundup")
    jt, j = own.split(own.axis[t.column], factor=columns, tail="roundup")
    *taps, terms = own.reduce_axis
    ko, ki = own.split(terms, factor=t.depth)
    kt, ki = own.split(ki, factor=depth)
    own.reorder(*others, *taps, ko, kt, it, jt, i, j, ki)
    if t.buffers > 1:
        ko = fused(own, [*taps, ko])  # fuse them into one loop, which is pipelined
    for axis in (kt, it, jt):
        own.unroll(axis)
    own.tensorize(i, t.intrinsic)
    for number, operand in enumerate((a, b)):
        operand.compute_at(own, ko)
        if t.buffers > 1:
            operand.pipeline(t.buffers)
        _load(s, operand, t, number)


def _tile_result(stage: Stage, t: TensorTile, axes: Sequence[int]) -> Axis:
    """Bind the loops of the result.  Returns the loop over waves, which contains a wave's tiles."""
    rows, columns, _ = t.intrinsic.extents
    height, width = t.block
    others: list[Axis] = []
    if axes:
        *positions, across = (stage.axis[n] for n in axes)
        stage.reorder(*positions, across)
        down = fused(stage, positions)
    else:
        others = [x for n, x in enumerate(stage.axis) if n not in (t.row, t.column)]
        down, across = stage.axis[t.row], stage.axis[t.column]
    by, y = stage.split(down, factor=height, tail="guard")
    bx, x = stage.split(across, factor=width, tail="guard")
    ty, y = stage.split(y, nparts=t.waves[0])
    tz, x = stage.split(x, nparts=t.waves[1])
    yt, y = stage.split(y, factor=rows)
    xt, x = stage.split(x, factor=columns)
    yh, yl = stage.split(y, factor=rows // 2)
    xh, xl = stage.split(x, factor=2)
    stage.reorder(*others, by, bx, ty, tz, yl, xh, yt, yh, xt, xl)
    lane = stage.fuse(yl, xh)
    if others:
        stage.bind(fused(stage, others), BLOCKS[2])
    bound = zip((by, bx, ty, tz, lane), (*BLOCKS[1::-1], *THREADS[:0:-1], THREADS[0]), strict=True)
    for axis, index in bound:
        stage.bind(axis, index)
    for axis in (yt, yh, xt, xl):
        stage.unroll(axis)
    return tz


def _load(s: Schedule, operand: Stage, t: TensorTile, number: int) -> None:
    """Let all threads of a block load an operand into shared memory, in vectors where rows allow
    it, with a row stride that avoids bank conflicts.
    """
    turned = number == 0 and t.turned
    tensor = (t.a, t.b)[number]
    dtype, lanes = tensor.dtype, 1
    rest: Axis | None = None
    vector: Axis | None = None
    if turned:
        last = operand.op.outputs[0].rank - 1
        order = (*range(last - 1), last, last - 1)
        s.transform_layout(operand.op.outputs[0], Layout(tuple(map(LayoutDim, order))))
    else:
        row, distance = t.row_of(number), tensor.shape[-1]
        assert isinstance(distance, int)
        pad, size, down = _padding(t, number, distance)
        lanes = size // dtype.bytes
        operand.storage_align(operand.axis[-2], row + pad)
        if down:  # adjacent threads fill adjacent rows
            *rows, across = operand.axis
            ro, ri = operand.split(fused(operand, rows), factor=_stored_together(size))
            vectors, vector = operand.split(across, factor=lanes)
            operand.reorder(ro, vectors, ri, vector)
            rest = operand.fuse(ro, vectors, ri)
    if rest is None:
        rest = fused(operand, operand.axis)
        if lanes > 1:
            rest, vector = operand.split(rest, factor=lanes)
    if vector is not None:
        operand.vectorize(vector)
    sizes = (t.intrinsic.threads, t.waves[0], t.waves[1])
    for size, index in zip(sizes, (THREADS[0], THREADS[2], THREADS[1]), strict=True):
        rest, part = operand.split(rest, factor=size, tail="guard")
        operand.bind(part, index)
    operand.unroll(rest)


def _conflicts(t: TensorTile) -> int:
    """Bank conflicts when operands are stored in shared memory and loaded by an instruction."""
    rows = [x.shape[-1] for x in (t.a, t.b)]
    along = (n for n in (0, 1) if not (n == 0 and t.turned))
    return sum(_padded(t, n, size)[0] for n in along if isinstance(size := rows[n], int))


def _padding(t: TensorTile, number: int, distance: int) -> tuple[int, int, bool]:
    """Padding in elements between rows in shared memory, bytes of the vectors that fill them, and
    whether neighbouring threads fill neighbouring rows.  The choice has the fewest bank conflicts;
    among equal choices, the widest vectors.

    distance: row stride in global memory, in elements.
    """
    _, size, pad, down = _padded(t, number, distance)
    return pad * WORD // t.intrinsic.operands[number].dtype.bytes, -size, down


def _stored_together(size: int) -> int:
    """Number of threads that one access to shared memory serves if each stores `size` bytes."""
    return BANKS * WORD // max(size, WORD)


def _padded(t: TensorTile, number: int, distance: int) -> tuple[int, int, int, bool]:
    """The choice of `_padding` as (bank conflicts, minus bytes of vectors, padding, order)."""
    operand = t.intrinsic.operands[number]
    element, row = operand.dtype.bytes, t.row_of(number)
    paddings: list[tuple[int, int, int, bool]] = []
    rows = t.block[number] * t.depth // row
    for pad in PADS:
        pitch = row * element + pad * WORD
        size = gcd(WIDEST, row * element, distance * element, pitch)
        if size < element:
            continue
        assert t.intrinsic.reads is not None
        reads = sum(bank_conflicts(offsets, n) for n, offsets in t.intrinsic.reads(operand, pitch))
        vectors, together = row * element // size, _stored_together(size)
        for down in (False, True):
            across = min(vectors, t.intrinsic.threads // together) * size
            if down and (rows % together or across < SECTOR):
                # Each row would get less than one transaction of global memory.
                continue
            places = (
                (n // (vectors * together) * together + n % together, n // together % vectors)
                if down
                else divmod(n, vectors)
                for n in range(t.intrinsic.threads)
            )
            filled = [y * pitch + x * size for y, x in places]
            paddings.append((bank_conflicts(filled, size) + reads, -size, pad, down))
    return min(paddings)
