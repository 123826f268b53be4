"""The blocks of a Winograd convolution, and whether the algorithm is faster.

The model counts cycles of one core.  The Winograd and the direct kernel multiply in register tiles
(`step_cycles`).  The arithmetic, loads and stores of the transforms are added.  Images that exceed
the L2 cache cost extra: unlike the direct kernel, a transform has no multiply-adds to hide the
memory latency.  Weights are streamed from memory, and transforming to t x t points makes them t^2 /
9 times as large.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from tilesmith.graph.nodes import Node
from tilesmith.graph.passes.choices import Choose, preferred
from tilesmith.ir.dtypes import DType, f32, i8, i32, u8
from tilesmith.ir.symbols import expected, expected_size
from tilesmith.ir.target import Target
from tilesmith.ir.types import TensorType
from tilesmith.ops.conv import Conv
from tilesmith.ops.winograd import WinogradConv
from tilesmith.perf.cycles import Instructions, dram_rate, overlapped
from tilesmith.te.interpolation import SQUARES
from tilesmith.te.knobs import ANALYTIC, Config
from tilesmith.te.winograd import points

from .contraction import (
    RegisterTile,
    contraction_of,
    product_cycles,
    resident_rows,
    row_extent,
    step_cycles,
)
from .dot_instructions import joinable, products_per_fma
from .tile_dots import tile_block

WINOGRAD_MARGIN = 0.92
"""Upper bound on the predicted time relative to the direct kernel's: smaller gains are not trusted.
"""

ERRORS = {2: 2e-6, 4: 8e-6}
"""Expected largest error relative to the largest magnitude in the result, by tile size.

Each entry is three times the largest error seen with up to 512 channels of normal random data (see
`ops.winograd`).
"""


@dataclass(frozen=True, slots=True)
class Sizes:
    """The sizes of a Winograd convolution.

    m: tile size.
    tiles: tiles in all images.
    channels: input channels.
    filters: output channels.
    """

    m: int
    tiles: int
    channels: int
    filters: int

    @staticmethod
    def of(op: WinogradConv, x: Sequence[int], filters: int) -> Sizes:
        tiles = expected_size((x[0], *op.tiles(x[2:])))
        return Sizes(op.m, tiles, x[1], filters)

    @property
    def t(self) -> int:
        return points(self.m)

    @property
    def products(self) -> int:
        """Multiply-adds."""
        return self.t**2 * self.tiles * self.channels * self.filters


@dataclass(frozen=True, slots=True)
class Blocking:
    """The division of the work into blocks.

    tile: register tile of the matrix products, whose rows are tiles of the image.
    tiles: tiles of the image in a block.
    shared: whether the transformed input of all blocks is computed first.
    parallel: whether threads share the work.
    """

    tile: RegisterTile
    tiles: int
    shared: bool
    parallel: bool


def blocking(sizes: Sizes, target: Target, cfg: Config = ANALYTIC) -> Blocking:
    """The division of the work into blocks.

    Transformed inputs and products of a block fill at most half of the L2 cache.  Weights come from
    that cache (or a farther one) once per row of register tiles.  So register tiles are two vectors
    wide and as high as registers and the L1 cache allow.  All tiles of a block have about the same
    height.  The number of blocks has the least load imbalance.
    """
    highest = min(_most_rows(target), resident_rows(sizes.channels * 4, target))
    tile = RegisterTile(min(highest, sizes.tiles), 2, target.vector_lanes(4))
    columns = min(tile.columns, sizes.filters)
    budget = target.model.l2_bytes // 2 // (sizes.t**2 * 4)
    own = budget // (sizes.channels + columns)
    column_blocks = -(-sizes.filters // columns)
    wanted = target.shared_trips // 2  # a block has several rows of register tiles
    few = sizes.tiles < wanted * tile.rows // 2
    # Column blocks share the transformed input, so a single block shares nothing.
    shared = own < tile.rows or (few and column_blocks > 1)
    shared = cfg.choice("transform_first", (False, True), shared)
    limit = max(budget // columns if shared else own, tile.rows)
    wanted = -(-wanted // column_blocks) if shared else wanted
    fewest = max(-(-sizes.tiles // limit), min(wanted, sizes.tiles // (2 * tile.rows)), 1)
    each = column_blocks if shared else 1
    ways = [_divided(sizes.tiles, n, tile.rows) for n in range(fewest, 2 * fewest + 1)]
    rows, count = min(ways, key=lambda way: _busiest(sizes.tiles, *way, each, target))
    rows = cfg.choice("rows", range(1, tile.rows + 1), rows)
    most = -(-sizes.tiles // rows)
    counts = [n for n in (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64) if n <= most]
    count = cfg.choice("block_rows", counts, min(count, most))
    parallel = sizes.products >= target.parallel_fmas
    tile = RegisterTile(rows, tile.vectors, tile.lanes)
    return Blocking(tile, count * rows, shared, parallel)


def _most_rows(target: Target) -> int:
    """Rows of the highest register tile that is two vectors wide."""
    return (target.vector_registers - 3) // 2


def _divided(tiles: int, blocks: int, highest: int) -> tuple[int, int]:
    """Rows of a register tile, and register tiles per block, if there are `blocks` blocks."""
    size = -(-tiles // blocks)
    heights = range(highest, max(highest // 2, 1) - 1, -1)
    rows = min(heights, key=lambda r: -(-size // r) * r)
    return rows, -(-size // rows)


def _busiest(tiles: int, rows: int, count: int, each: int, target: Target) -> float:
    """Time of the busiest thread, in steps of the product.

    each: iterations of the parallel loop for each block.
    """
    blocks = -(-tiles // (rows * count)) * each
    return -(-blocks // target.threads) / each * count * step_cycles(rows, 2, target)


def winograd_cycles(sizes: Sizes, target: Target) -> float:
    """Cycles of one core for a Winograd convolution."""
    b, model, points = blocking(sizes, target), target.model, sizes.t**2
    vectors = min(-(-sizes.filters // b.tile.lanes), b.tile.vectors)
    register_tiles = -(-sizes.tiles // b.tile.rows) * -(-sizes.filters // (vectors * b.tile.lanes))
    step = step_cycles(b.tile.rows, vectors, target)
    products = points * register_tiles * sizes.channels * step
    weights = points * sizes.channels * sizes.filters * 4 / dram_rate(target)
    images = sizes.m**2 * sizes.tiles * (sizes.channels + sizes.filters) * 4
    far = images / model.l3_bytes_per_cycle if images > model.l2_bytes else 0.0
    # Each point of a tile moves in and out of L2, and once more between product and transform; a
    # load takes as long as a store.  A transform takes about m operations for each point.
    channels, filters = (-(-n // b.tile.lanes) for n in (sizes.channels, sizes.filters))
    tiles = points * sizes.tiles
    each = max(2 / model.store_ports, b.tile.lanes * 4 / model.l2_bytes_per_cycle)
    moved = tiles * (channels + 2 * filters) * each
    arithmetic = Instructions(fma=sizes.m * tiles * (channels + filters)).cycles(model)
    return overlapped(products, weights, model) + moved + arithmetic + far + model.parallel_cycles


def direct_cycles(node: Node, target: Target, element: DType = f32) -> float:
    """Cycles of one core for the direct kernel of a `Conv` node with a 3x3 window; 0 if register
    tiles do not compute it.

    element: type of the factors; unsigned bytes are multiplied with signed ones.
    """
    assert isinstance(node.op, Conv)
    x, w = (v.shape for v in node.inputs)
    channels = joinable(x[1], element)
    op = replace(node.op, to=i32 if element.is_int else f32)
    first = u8 if element is i8 else element
    tensors = op.tensors(
        TensorType(first, (x[0], channels, *x[2:])), TensorType(element, (w[0], channels, *w[2:]))
    )
    c = contraction_of(tensors, frozenset((1,)))
    if c is None or c.vector is None:
        return 0.0
    steps = expected_size((*node.outputs[0].shape, *w[1:]))
    rows, columns = row_extent(c), expected(c.vector.extent)
    if element is f32:
        products = product_cycles(c, target)
    elif (block := tile_block(c, target, rows)) is not None:
        products = steps * block.cycles(target, rows, columns)
    else:
        vectors = steps / columns * -(-columns // target.vector_lanes(4))
        rows = _most_rows(target)
        each = step_cycles(rows, 2, target) / (2 * rows)
        products = vectors * each / products_per_fma(element, target)
    weights = expected_size(w) * element.bytes
    return overlapped(products, weights / dram_rate(target), target.model)


def winograd_choice(
    target: Target, bound: float, choose: Choose = preferred, element: DType = f32
) -> Callable[[Node], int | None]:
    """The tile size for a 3x3 `Conv` node; None if the direct kernel is faster.

    bound: the error that the accuracy policy allows for float32.
    element: type of the factors of the direct kernel.
    """
    allowed = [m for m in SQUARES if ERRORS[m] <= bound]

    def choice(node: Node) -> int | None:
        assert isinstance(node.op, Conv)
        x, w = ([*map(expected, v.shape)] for v in node.inputs)
        if 0 in (*x, *w):
            return None  # a Winograd convolution would save no multiplications
        best, fewest = None, WINOGRAD_MARGIN * direct_cycles(node, target, element)
        for m in allowed:
            sizes = Sizes.of(WinogradConv(m, node.op.pads), x, w[0])
            cycles = winograd_cycles(sizes, target)
            if cycles < fewest:
                best, fewest = m, cycles
        return choose("algorithm", (node,), (0, *allowed), best or 0) or None

    return choice
