"""The register tile of a reduction: which axis runs along vector lanes, and how many elements are
computed together.

For each step of the reduction a tile loads what its elements need, each distinct vector or scalar
once, and does the arithmetic for all of them.  The analytic choice is the tile with the least
cycles for all elements, given the target's load and arithmetic ports, the latency of its
arithmetic and its vector registers; only where reads land decides, not what the operator is.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from tilesmith.ir.expr import Var
from tilesmith.ir.target import Target
from tilesmith.strategy.knobs import Config

from .structure import Body, Read, size_of

MAX_VECTORS, MAX_ROWS = 6, 30
LOADS = 2
"""Vectors loaded per cycle."""
LOOP_CYCLES = 0.75
"""What a step of the reduction costs beside loads and arithmetic."""
GATHER_CYCLES = 1.2
"""Of one element that is not the neighbour of the last lane's."""
COPY_CYCLES = 2.5
"""Of an element that is copied to lie in another order."""
COMBINE_CYCLES = 14
"""To add up the lanes of a vector, and what surrounds a reduction along lanes."""


@dataclass(frozen=True, slots=True)
class Tile:
    """`lane`: the axis along vectors, None where a reduction axis is; `sizes`: elements of the tile
    along each spatial axis; `lanes`: elements of a vector.
    """

    lane: int | None
    sizes: tuple[int, ...]
    lanes: int

    @property
    def vectors(self) -> int:
        return 1 if self.lane is None else -(-self.sizes[self.lane] // self.lanes)


@dataclass(frozen=True, slots=True, eq=False)
class TileModel:
    """Cycles of a reduction `body` under tiles.  `packed`: reads whose tensor will be copied so
    that lanes are neighbours.  `frozen`: axes that are not to be tiled.  `contiguous`: the axis
    along which the result is written to memory.
    """

    body: Body
    target: Target
    packed: frozenset[Read] = frozenset()
    frozen: frozenset[int] = frozenset()
    contiguous: int | None = None

    @property
    def lanes(self) -> int:
        return max(self.target.vector_lanes(self.body.element_bytes), 1)

    def sizes(self) -> list[int]:
        return [size_of(a.extent) for a in self.body.op.axis]

    def step_cycles(self, lane: int, sizes: Sequence[int]) -> float:
        """Cycles of one step of the reduction for a tile."""
        axes = self.body.op.axis
        vectors = -(-sizes[lane] // self.lanes)
        tile = vectors
        for i, n in enumerate(sizes):
            tile *= n if i != lane else 1
        loads = 0.0
        for read in self.body.reads:
            count = 1.0
            for i, n in enumerate(sizes):
                if i != lane and n > 1 and read.depends(axes[i].var, n):
                    count *= n
            loads += count * self._lane_cost(read, axes[lane].var, sizes[lane], vectors)
        work = tile * self.body.operations / self.target.fma_ports
        return max(work, loads / LOADS, self.target.fma_latency) + LOOP_CYCLES + 0.2 * vectors

    def _lane_cost(self, read: Read, v: Var, width: int, vectors: int) -> float:
        if not read.depends(v, width):
            return 1.0
        if read.step(v) == 1 or read in self.packed:
            return vectors
        return width * GATHER_CYCLES * LOADS

    def cycles(self, lane: int, sizes: Sequence[int]) -> float:
        """Cycles of all elements with tiles of `sizes`; tails of rows count for what they are."""
        extents = self.sizes()
        total = 0.0
        parts = [
            [(n // t, t), *([(1, n % t)] if n % t else [])]
            for n, t in zip(extents, sizes, strict=True)
        ]
        for combination in itertools.product(*parts):
            times = 1
            for count, _ in combination:
                times *= count
            tile = [t for _, t in combination]
            step = self.step_cycles(lane, tile)
            total += times * (step * self.body.reduced + self._store_cycles(lane, tile) + 2)
        # tall tiles are long code, and their rows may fall on the same cache sets
        height = max((n for i, n in enumerate(sizes) if i != lane), default=1)
        copies = sum(COPY_CYCLES * _elements(r) for r in self.packed)
        return total * (1 + 0.004 * height) + copies

    def _store_cycles(self, lane: int, sizes: Sequence[int]) -> float:
        n = 1
        for size in sizes:
            n *= size
        return n / self.lanes if lane == self.contiguous else n * GATHER_CYCLES

    def registers(self, lane: int, sizes: Sequence[int]) -> int:
        """Vector registers that a tile takes."""
        vectors = -(-sizes[lane] // self.lanes)
        tile = vectors
        for i, n in enumerate(sizes):
            tile *= n if i != lane else 1
        return tile + vectors + 1

    def row_axes(self, lane: int) -> list[int]:
        """Axes other than `lane` worth tiling: those along which some read stays the same."""
        axes = self.body.op.axis
        return [
            i
            for i, a in enumerate(axes)
            if i != lane and i not in self.frozen and size_of(a.extent) > 1
            and any(not r.depends(a.var, 2) or a.var in r.periods for r in self.body.reads)
        ]  # fmt: skip

    def best(self, lane: int, vectors: int | None = None) -> tuple[float, tuple[int, ...]]:
        """The tile with the least cycles, and these; `vectors` fixes its width."""
        extents = self.sizes()
        if lane in self.frozen:
            return float("inf"), tuple(1 for _ in extents)
        best = (float("inf"), tuple(1 for _ in extents))
        for sizes in self._tiles(lane, vectors):
            cost = self.cycles(lane, sizes)
            if cost < best[0]:
                best = (cost, sizes)
        return best

    def _tiles(self, lane: int, vectors: int | None) -> Iterator[tuple[int, ...]]:
        extents = self.sizes()
        rows = self.row_axes(lane)
        pairs = [(a,) for a in rows] + list(itertools.combinations(rows, 2)) or [()]
        for count in (vectors,) if vectors else range(1, MAX_VECTORS + 1):
            if count > 1 and (count - 1) * self.lanes >= extents[lane]:
                break
            width = min(count * self.lanes, extents[lane])
            base = [width if i == lane else 1 for i in range(len(extents))]
            for pair in pairs:
                options = [_row_options(extents[i], len(pair)) for i in pair]
                for heights in itertools.product(*options):
                    sizes = list(base)
                    for i, n in zip(pair, heights, strict=True):
                        sizes[i] = n
                    if self.registers(lane, sizes) <= self.target.vector_registers:
                        yield tuple(sizes)

    def along_reduction(self) -> float:
        """Cycles when lanes run along the reduction, element by element; infinite when no read
        allows it.
        """
        axes = self.body.op.reduce_axis
        if not axes:
            return float("inf")
        along = axes[-1].var
        n = size_of(axes[-1].extent)
        vectors = -(-n // self.lanes)
        loads = sum(
            self._lane_cost(r, along, n, vectors) for r in self.body.reads if r not in self.packed
        )
        work = vectors * self.body.operations / self.target.fma_ports
        steps = self.body.reduced // max(n, 1)
        return self.body.spatial * (max(work, loads / LOADS) * steps + COMBINE_CYCLES)


def _row_options(extent: int, axes: int) -> list[int]:
    """Numbers of rows to consider; with two axes only a few of each."""
    if axes == 1:
        return list(range(1, min(extent, MAX_ROWS) + 1))
    return [n for n in (2, 3, 4, 6, 7, 8) if n <= extent]


def _elements(read: Read) -> int:
    n = 1
    for e in read.load.buffer.shape:
        n *= size_of(e)
    return n


def choose_tile(
    model: TileModel, packable: dict[int, frozenset[Read]], cfg: Config
) -> tuple[Tile, frozenset[Read]]:
    """Knobs `lane`, `vectors`, `rows.…`: the register tile and the reads to pack for it.

    `packable`: by lane axis, the reads that may be packed so that lanes are neighbours.
    """
    body = model.body
    found: dict[int, tuple[float, frozenset[Read]]] = {}
    for i, a in enumerate(body.op.axis):
        if size_of(a.extent) < 2 or i in model.frozen:
            continue
        plain = model.best(i)[0]
        packs = packable.get(i, frozenset())
        packed = replace(model, packed=packs).best(i)[0] if packs else plain
        found[i] = min((plain, frozenset()), (packed, packs), key=lambda x: x[0])
    along = model.along_reduction()
    best = min(found, key=lambda i: found[i][0], default=None)
    lane = best if best is not None and found[best][0] <= along else None
    names = {i: body.op.axis[i].name for i in found}
    options = [*names.values(), *(["reduction"] if along < float("inf") else [])]
    default = names[lane] if lane is not None else "reduction"
    chosen = cfg.choice("lane", options, default)
    if chosen == "reduction":
        return Tile(None, tuple(1 for _ in body.op.axis), model.lanes), frozenset()
    lane = next(i for i, n in names.items() if n == chosen)
    packs = packable.get(lane, frozenset())
    if packs and not cfg.choice("pack", (False, True), bool(found[lane][1])):
        packs = frozenset()
    model = replace(model, packed=packs)
    extents = model.sizes()
    _, sizes = model.best(lane)
    widest = min(MAX_VECTORS, -(-extents[lane] // model.lanes))
    usual = -(-sizes[lane] // model.lanes)
    vectors = cfg.choice("vectors", range(1, widest + 1), usual)
    if vectors != usual:
        _, sizes = model.best(lane, vectors)
    result = [
        min(vectors * model.lanes, extents[lane]) if i == lane else 1 for i in range(len(extents))
    ]
    room = max((model.target.vector_registers - 1 - vectors) // vectors, 1)
    for i in model.row_axes(lane):
        most = min(room, extents[i])
        start = min(sizes[i], most)
        result[i] = cfg.choice(f"rows.{body.op.axis[i].name}", range(1, most + 1), start)
        room = max(room // result[i], 1)
    return Tile(lane, tuple(result), model.lanes), packs
