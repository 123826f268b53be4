"""Sums of products: each thread computes a tile of the result in registers.

Where both operands are matrices, the threads of a block load tiles of them together:

    for by, bx in blocks:
        for ty, tx in threads:
            C_register[4, 4] = 0
            for ko:
                A_shared[128, 32] = A; B_shared[32, 32] = B   # cooperatively
                for ki: C_register += A_shared * B_shared
            C = C_register

Both tiles have several buffers where the device copies asynchronously (`copies_ahead`).

Otherwise, as in convolutions, a thread computes several results that read the same element of one
operand, and neighbouring threads read neighbours of this element.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from tilesmith.ir.expr import Const, Var, vars_of
from tilesmith.ir.loop_tables import BLOCKS, THREADS
from tilesmith.ir.symbols import expected, expected_size
from tilesmith.ir.target import Target
from tilesmith.ops.structure import product_of_loads
from tilesmith.strategy.group import accumulator
from tilesmith.te.knobs import ANALYTIC, Config
from tilesmith.te.schedule import Schedule
from tilesmith.te.stage import Axis, Stage
from tilesmith.te.tensor import Compute, IterVar, Tensor

from .blocks import bind_loop, block_size, block_sizes, fused, in_memory
from .copies_ahead import buffers, can_copy_ahead
from .split_sums import divide_sum, parts_of

TILE = 4
"""Rows and columns of a thread's tile: 16 sums, and 8 loads for 16 multiply-adds."""
STEP = 32
"""Steps of the sum whose operands are in shared memory together."""
TILES, STEPS = (2, 4, 8), (8, 16, 32, 64)
"""Values of `TILE` and `STEP` that tuning may choose."""
SIDES = 32, 8
"""Upper bounds on the threads of a block along y and x.  The threads of a wave read 8 columns with
stride `TILE`, and 4 rows.  No two of these elements share a bank, if rows along the sum are padded
by one element.
"""
RESULTS = 8
"""Results of a thread that read the same element of an operand."""
RESULT_COUNTS = 1, 2, 4, 8, 16
"""Values of `RESULTS` that tuning may choose."""


@dataclass(frozen=True, slots=True)
class Product:
    """A sum of products.

    name: the stage.
    rows, columns: numbers of the result's axes.  Only the first operand depends on `rows`, only the
        second on `columns`.
    matrices: whether all indices of both operands are axes, so that their tiles are tiles of
        memory.
    along: for each operand, whether it is contiguous along the sum.
    """

    name: str
    rows: tuple[int, ...]
    columns: tuple[int, ...]
    matrices: bool
    along: tuple[bool, bool]


def product_of(name: str, op: Compute) -> Product | None:
    """The product that a stage computes, if its result has rows and columns."""
    factors = product_of_loads(op)
    if factors is None:
        return None
    left, right = (vars_of(x.indices) for x in factors)
    axes = [(n, a.var) for n, a in enumerate(op.axis) if expected(a.extent) > 1]
    rows = tuple(n for n, v in axes if v in left - right)
    columns = tuple(n for n, v in axes if v in right - left)
    if not rows or not columns:
        return None
    plain = all(isinstance(i, (Var, Const)) for x in factors for i in x.indices)
    terms = [a.var for a in op.reduce_axis]
    along = (any(x.indices[-1] is v for v in terms) for x in factors)
    return Product(name, rows, columns, plain, (next(along), next(along)))


def product_parts(product: Product, op: Compute, target: Target) -> int:
    """Number of parts of the sum; 1 if blocks of undivided sums fill the device."""
    if not product.matrices:
        return 1
    size = expected_size(a.extent for a in op.axis)
    if _is_in_tiles(product, op.axis):
        height, width = (expected(op.axis[n[-1]].extent) for n in (product.rows, product.columns))
        y, x = (n * TILE for n in _block(height, width, target))
        blocks = size // (height * width) * -(-height // y) * -(-width // x)
        return parts_of(op, blocks, (y, x), target, STEP)
    y, x = _rows_of_threads(product, op.axis, range(len(op.axis)))[1], block_size(target)
    return parts_of(op, -(-size // (y * x)), (y, x), target)


def schedule_product(
    s: Schedule, product: Product, out: str, target: Target, cfg: Config = ANALYTIC
) -> None:
    """Compute a product in the tiles of `out`, which is its stage or the stage's elementwise
    reader.  Blocks divide the terms if there are too few tiles for the device.
    """
    parts = product_parts(product, s[product.name].state.compute, target)
    if parts > 1:
        out = divide_sum(s, product.name, out, parts, target)
        rows, columns = (tuple(n + 1 for n in x) for x in (product.rows, product.columns))
        product = replace(product, name=out, rows=rows, columns=columns)
    stage = s[out]
    factors = product_of_loads(s[product.name].state.compute)
    own = accumulator(s, product.name, out, "register")
    if _is_in_tiles(product, stage.axis):
        assert factors is not None
        tensors = [x.buffer for x in factors]
        operands = [s[s.cache_read(t, "shared", [own])] for t in tensors if isinstance(t, Tensor)]
        _blocks_of_tiles(stage, own, operands, product, target, cfg)
    else:
        _results_of_threads(stage, own, product, target, cfg)


def _is_in_tiles(product: Product, axes: Sequence[IterVar] | Sequence[Axis]) -> bool:
    """Whether blocks load tiles of two matrices.  They do if each side of the result has several
    tiles.
    """
    sides = (expected(axes[n[-1]].extent) for n in (product.rows, product.columns))
    return product.matrices and min(sides) >= 2 * TILE


def _rows_of_threads(
    product: Product, axes: Sequence[IterVar] | Sequence[Axis], order: Sequence[int]
) -> tuple[int, int]:
    """Number of the axis along which a thread has several results, and the results per thread.

    order: the axes in memory, outermost first.
    """
    last = max((*product.rows, *product.columns), key=order.index)
    tiled = max(product.rows if last in product.columns else product.columns, key=order.index)
    return tiled, min(RESULTS, expected(axes[tiled].extent))


def _blocks_of_tiles(
    stage: Stage,
    own: Stage,
    operands: Sequence[Stage],
    product: Product,
    target: Target,
    cfg: Config,
) -> None:
    numbers = product.rows[-1], product.columns[-1]
    height, width = (stage.axis[n] for n in numbers)
    others = [a for n, a in enumerate(stage.axis) if n not in numbers]
    analytic = _block(expected(height.extent), expected(width.extent), target)
    threads_y, threads_x = block = cfg.choice("block", lambda: _blocks(target), analytic)
    tile, step = cfg.choice("tile", TILES, TILE), cfg.choice("step", STEPS, STEP)
    by, y = stage.split(height, factor=threads_y * tile, tail="guard")
    bx, x = stage.split(width, factor=threads_x * tile, tail="guard")
    ty, y = stage.split(y, nparts=threads_y)
    tx, x = stage.split(x, nparts=threads_x)
    stage.reorder(*others, by, bx, ty, tx, y, x)
    if others:
        stage.bind(fused(stage, others), "blockIdx.z")
    for axis, index in zip((by, bx, ty, tx), (*BLOCKS[1::-1], *THREADS[1::-1]), strict=True):
        stage.bind(axis, index)
    stage.unroll(y)
    stage.unroll(x)
    own.compute_at(stage, tx)
    *before, last = own.reduce_axis
    outer, inner = own.split(last, factor=step, tail="guard")
    own.reorder(*before, outer, inner, *own.axis)
    for axis in own.axis:
        own.unroll(axis)
    sides = threads_y * tile, threads_x * tile
    count = _buffers(operands, product, sides, step, expected(last.extent), target)
    for operand, along in zip(operands, product.along, strict=True):
        operand.compute_at(own, outer)
        if count > 1:
            operand.pipeline(count)
        if along and len(operand.axis) > 1:
            operand.storage_align(operand.axis[-2], step + 1)
        rest = fused(operand, operand.axis)
        for size, index in zip(reversed(block), THREADS[:2], strict=True):
            rest, part = operand.split(rest, factor=size, tail="guard")
            operand.bind(part, index)


def _buffers(
    operands: Sequence[Stage],
    product: Product,
    sides: tuple[int, int],
    step: int,
    terms: int,
    target: Target,
) -> int:
    """Number of buffers for each operand tile.  A tile has `sides` rows or columns and `step`
    terms.
    """
    tensors = [s.op.outputs[0] for s in operands]
    if not all(can_copy_ahead(target, t, t.dtype.bytes) for t in tensors):
        return 1
    sizes = (
        t.dtype.bytes * (side * (step + 1) if along else side * step)
        for t, side, along in zip(tensors, sides, product.along, strict=True)
    )
    return buffers(target, sum(sizes), -(-terms // step))


def _block(height: int, width: int, target: Target) -> tuple[int, int]:
    """Threads of a block along y and x, for a result of `height` x `width` threads."""
    assert target.device is not None
    x = _threads(width, min(SIDES[1], target.device.block_x))
    y = _threads(height, min(SIDES[0], target.device.block_y, target.device.block_threads // x))
    return y, x


def _blocks(target: Target) -> list[tuple[int, int]]:
    """The threads along y and x that a block of tiles may have: powers of two."""
    assert target.device is not None
    d = target.device
    sides = [1 << n for n in range(max(SIDES).bit_length())]
    return [(y, x) for x in sides for y in sides
            if y * x <= d.block_threads and y <= d.block_y and x <= d.block_x]  # fmt: skip


def _threads(extent: int, most: int) -> int:
    """Threads along one side: one per tile if there are at most `most` tiles.  Otherwise the
    largest number of threads up to `most` that divides the tiles evenly, or `most` if that number
    is at most half of `most`.
    """
    tiles = -(-extent // TILE)
    if tiles <= most:
        return tiles
    whole = max((n for n in range(1, most + 1) if extent % (n * TILE) == 0), default=1)
    return whole if 2 * whole > most else most


def _results_of_threads(
    stage: Stage, own: Stage, product: Product, target: Target, cfg: Config
) -> None:
    """Bind each thread to several elements of a result, along the axis from `_rows_of_threads`."""
    order = in_memory(stage)
    axes = list(stage.axis)
    tiled, count = _rows_of_threads(product, axes, order)
    count = cfg.choice("results", RESULT_COUNTS, count)
    threads = cfg.choice("threads", lambda: block_sizes(target), block_size(target))
    axes[tiled], results = stage.split(axes[tiled], factor=count, tail="guard")
    axes = [axes[n] for n in order]
    stage.reorder(*axes, results)
    thread = bind_loop(stage, fused(stage, axes), threads)
    stage.unroll(results)
    own.compute_at(stage, thread)
    own.reorder(*own.reduce_axis, *own.axis)
    for axis in own.axis:
        own.unroll(axis)
