"""The register tile of a reduction: the vector axis, and the number of elements computed
together.

For each step of the reduction, a tile loads each distinct vector or scalar of its elements once,
and does the arithmetic for all elements.  The analytic choice is the tile with the fewest cycles
for all elements, given the target's load and arithmetic ports, arithmetic latency and vector
registers.  The choice depends on the addresses of reads alone, not on the operator.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

from tilesmith.ir.symbols import expected, expected_size
from tilesmith.ir.target import LINE_BYTES, CpuModel, Target
from tilesmith.perf.cycles import Instructions, tile_cycles
from tilesmith.te.knobs import Config

from .structure import Read, StageBody

MAX_VECTORS, MAX_ROWS = 6, 30
ROW_SHARE = 0.001
"""Relative extra cost of a tile per row and per doubling of the rows' distance in cache lines.
Rows are separate streams, and distant rows may map to the same cache sets.
"""
SHORT = 9
"""Upper bound on the steps of a window that is unrolled completely."""
SLIDING = 128
"""Upper bound on the statements of an unrolled window whose steps share loads."""


@dataclass(frozen=True, slots=True)
class SketchTile:
    """A register tile.

    lane: the vector axis; None if it is a reduction axis.
    sizes: elements along each spatial axis.
    lanes: elements of a vector.
    slides: whether all steps of the window are unrolled, see `TileModel.slides`.
    """

    lane: int | None
    sizes: tuple[int, ...]
    lanes: int
    slides: bool = False

    @property
    def vectors(self) -> int:
        return 1 if self.lane is None else -(-self.sizes[self.lane] // self.lanes)


@dataclass(frozen=True, slots=True)
class Operand:
    """The address of a read, as numbers.

    strides: stride in elements along each spatial axis (see `Read`).
    periods: period of each spatial axis; 0 for none.
    along: stride along the last reduction axis.
    itemsize: bytes of an element.
    elements: elements of the whole operand.
    """

    strides: tuple[int | None, ...]
    periods: tuple[int, ...]
    along: int | None
    itemsize: int
    elements: int

    def depends(self, axis: int, tile: int) -> bool:
        """Whether `tile` neighbours along a spatial axis read different elements."""
        return self.strides[axis] != 0 or (
            self.periods[axis] > 0 and self.periods[axis] % tile != 0
        )

    def overlap(self, lane: int, sizes: Sequence[int], last: int) -> float:
        """Fraction of loads that remain if all `last` steps of the last reduction axis are
        unrolled.

        A step of a window reads the elements that other steps read for neighbours in the tile.
        """
        left = 1.0
        for i, n in enumerate(sizes):
            step = self.strides[i]
            if i == lane or n < 2 or not step or not self.along or self.along % step:
                continue
            shift = self.along // step
            if 0 < shift <= n:
                left = min(left, (n + shift * (last - 1)) / (n * last))
        return left


@dataclass(frozen=True, slots=True)
class TileModel:
    """Cycles of a reduction for a given tile.

    extents: extents of the spatial axes.
    operands: the reads.
    steps: values reduced to one element.
    last: extent of the last reduction axis; 0 if there is none.
    operations: arithmetic instructions per value.
    lanes: elements of a vector.
    model: the CPU's latencies, ports and caches.
    vector_registers: number of registers.
    packed: operands that will be copied so that lanes are contiguous.
    frozen: axes that must not be tiled.
    contiguous: the innermost axis of the result in memory.
    """

    extents: tuple[int, ...]
    operands: tuple[Operand, ...]
    steps: int
    last: int
    operations: int
    lanes: int
    model: CpuModel
    vector_registers: int
    packed: frozenset[int] = frozenset()
    frozen: frozenset[int] = frozenset()
    contiguous: int | None = None

    @staticmethod
    def of(
        body: StageBody, target: Target, frozen: frozenset[int], contiguous: int | None
    ) -> TileModel:
        """The model of a stage on a target."""
        axes, reduced = body.op.axis, body.op.reduce_axis

        def operand(r: Read) -> Operand:
            return Operand(
                tuple(r.stride(a.var) for a in axes),
                tuple(r.periods.get(a.var, 0) for a in axes),
                r.stride(reduced[-1].var) if reduced else None,
                r.load.dtype.bytes,
                expected_size(r.load.buffer.shape),
            )

        return TileModel(
            tuple(expected(a.extent) for a in axes),
            tuple(operand(r) for r in body.reads),
            body.reduced,
            expected(reduced[-1].extent) if reduced else 0,
            body.operations,
            target.vector_lanes(body.element_bytes),
            target.model,
            target.vector_registers,
            frozenset(),
            frozen,
            contiguous,
        )

    def step_cycles(self, lane: int, sizes: Sequence[int]) -> float:
        """Cycles of one step of the reduction for a tile."""
        vectors = -(-sizes[lane] // self.lanes)
        tile = vectors * math.prod(n for i, n in enumerate(sizes) if i != lane)
        slides = self.slides(lane, sizes)
        loads = 0.0
        for number, read in enumerate(self.operands):
            count = 1.0
            for i, n in enumerate(sizes):
                if i != lane and n > 1 and read.depends(i, n):
                    count *= n
            count *= read.overlap(lane, sizes, self.last) if slides else 1.0
            loads += count * self._lane_cost(number, lane, sizes[lane], vectors)
        model = self.model
        step = Instructions(fma=tile * self.operations, load=loads, chain=model.fma_latency)
        return tile_cycles(step, loads + 2 * vectors, model, self.last if slides else 1)

    def slides(self, lane: int, sizes: Sequence[int]) -> bool:
        """Whether to unroll all steps of the last reduction axis, since they share loads.

        Registers must hold the tile, its invariants, and a part of the window.
        """
        if not 1 < self.last <= SHORT:
            return False
        vectors = -(-sizes[lane] // self.lanes)
        tile = vectors * math.prod(n for i, n in enumerate(sizes) if i != lane)
        taken = tile + self.last * (vectors + 1) + 1
        return (
            tile * self.last <= SLIDING
            and taken <= self.vector_registers
            and any(r.overlap(lane, sizes, self.last) < 1 for r in self.operands)
        )

    def _lane_cost(self, number: int, lane: int, width: int, vectors: int) -> float:
        read = self.operands[number]
        if not read.depends(lane, width):
            return 1.0
        if read.strides[lane] == 1 or number in self.packed:
            return vectors
        return width * self.model.gather_cycles * self.model.load_ports

    def cycles(self, lane: int, sizes: Sequence[int]) -> float:
        """Cycles of all elements with tiles of `sizes`.  Tail tiles count with their own sizes."""
        total = 0.0
        parts = [
            [(n // t, t), *([(1, n % t)] if n % t else [])]
            for n, t in zip(self.extents, sizes, strict=True)
        ]
        for combination in itertools.product(*parts):
            times = math.prod(count for count, _ in combination)
            tile = [t for _, t in combination]
            step = self.step_cycles(lane, tile)
            total += times * (step * self.steps + self._store_cycles(lane, tile) + 2)
        apart = max(
            (n * math.log2(self._distance(i)) for i, n in enumerate(sizes) if i != lane and n > 1),
            default=0.0,
        )
        copies = sum(
            self.model.copy_cycles * self.operands[number].elements for number in self.packed
        )
        return total * (1 + ROW_SHARE * (apart + len(sizes))) + copies

    def _distance(self, axis: int) -> float:
        """Largest distance between neighbouring rows, in cache lines; at least two."""
        strides = [abs(r.strides[axis] or 0) * r.itemsize for r in self.operands]
        return max(2.0, max(strides, default=0) / LINE_BYTES)

    def _store_cycles(self, lane: int, sizes: Sequence[int]) -> float:
        n = math.prod(sizes)
        return n / self.lanes if lane == self.contiguous else n * self.model.gather_cycles

    def registers(self, lane: int, sizes: Sequence[int]) -> int:
        """Vector registers that a tile needs."""
        vectors = -(-sizes[lane] // self.lanes)
        return vectors * math.prod(n for i, n in enumerate(sizes) if i != lane) + vectors + 1

    def row_axes(self, lane: int) -> list[int]:
        """Axes other than `lane` that are worth tiling: at least one read does not depend on the
        axis.
        """
        return [
            i
            for i, n in enumerate(self.extents)
            if i != lane and i not in self.frozen and n > 1
            and any(not r.depends(i, 2) or r.periods[i] for r in self.operands)
        ]  # fmt: skip

    def best(self, lane: int, vectors: int | None = None) -> tuple[float, tuple[int, ...]]:
        """The fewest cycles, and the tile that takes them.  `vectors` fixes its width."""
        return _best(self, lane, vectors)

    def tiles(self, lane: int, vectors: int | None) -> Iterator[tuple[int, ...]]:
        """The tiles that fit into registers."""
        rows = self.row_axes(lane)
        pairs = [(a,) for a in rows] + list(itertools.combinations(rows, 2)) or [()]
        for count in (vectors,) if vectors else range(1, MAX_VECTORS + 1):
            if count > 1 and (count - 1) * self.lanes >= self.extents[lane]:
                break
            width = min(count * self.lanes, self.extents[lane])
            base = [width if i == lane else 1 for i in range(len(self.extents))]
            for pair in pairs:
                options = [_row_options(self.extents[i], len(pair)) for i in pair]
                for heights in itertools.product(*options):
                    sizes = list(base)
                    for i, n in zip(pair, heights, strict=True):
                        sizes[i] = n
                    if self.registers(lane, sizes) <= self.vector_registers:
                        yield tuple(sizes)

    def along_reduction(self) -> float:
        """Cycles if lanes run along the last reduction axis, one element at a time; infinite
        without a reduction.
        """
        if not self.last:
            return float("inf")
        vectors = -(-self.last // self.lanes)
        loads = 0.0
        gathered = self.model.gather_cycles * self.model.load_ports
        for number, read in enumerate(self.operands):
            if number not in self.packed:
                near = {0: 1.0, 1: float(vectors)}
                loads += near.get(read.along, self.last * gathered)  # type: ignore[call-overload]
        run = Instructions(fma=vectors * self.operations, load=loads)
        elements = math.prod(self.extents)
        steps = run.cycles(self.model) * (self.steps // self.last)
        return elements * (steps + self.model.lane_sum_cycles + self.model.entry_cycles)


@lru_cache(maxsize=4096)
def _best(model: TileModel, lane: int, vectors: int | None) -> tuple[float, tuple[int, ...]]:
    best = (float("inf"), tuple(1 for _ in model.extents))
    if lane in model.frozen:
        return best
    for sizes in model.tiles(lane, vectors):
        cost = model.cycles(lane, sizes)
        if cost < best[0]:
            best = (cost, sizes)
    return best


def _row_options(extent: int, axes: int) -> list[int]:
    """Candidate numbers of rows along each of `axes` axes.  Two axes have fewer candidates each."""
    if axes == 1:
        return list(range(1, min(extent, MAX_ROWS) + 1))
    return [n for n in (2, 3, 4, 6, 7, 8) if n <= extent]


def choose_tile(
    model: TileModel, names: Sequence[str], packable: Mapping[int, frozenset[int]], cfg: Config
) -> tuple[SketchTile, frozenset[int]]:
    """The register tile by knobs `lane`, `vectors` and `rows.…`, and the operands to pack for the
    tile.

    names: names of the spatial axes.
    packable: by lane axis, the operands that may be packed so that lanes are contiguous.
    """
    by_lane: dict[int, tuple[float, frozenset[int]]] = {}
    for i, extent in enumerate(model.extents):
        if extent < 2 or i in model.frozen:
            continue
        plain = model.best(i)[0]
        packs = packable.get(i, frozenset())
        packed = replace(model, packed=packs).best(i)[0] if packs else plain
        by_lane[i] = min((plain, frozenset()), (packed, packs), key=lambda x: x[0])
    along = model.along_reduction()
    best = min(by_lane, key=lambda i: by_lane[i][0], default=None)
    lane = best if best is not None and by_lane[best][0] <= along else None
    options = [*(names[i] for i in by_lane), *(["reduction"] if along < float("inf") else [])]
    default = names[lane] if lane is not None else "reduction"
    chosen = cfg.choice("lane", options, default)
    if chosen == "reduction":
        return SketchTile(None, tuple(1 for _ in names), model.lanes), frozenset()
    lane = next(i for i in by_lane if names[i] == chosen)
    packs = packable.get(lane, frozenset())
    if packs and not cfg.choice("pack", (False, True), bool(by_lane[lane][1])):
        packs = frozenset()
    model = replace(model, packed=packs)
    extents = model.extents
    _, sizes = model.best(lane)
    widest = min(MAX_VECTORS, -(-extents[lane] // model.lanes))
    usual = -(-sizes[lane] // model.lanes)
    vectors = cfg.choice("vectors", range(1, widest + 1), usual)
    if vectors != usual:
        _, sizes = model.best(lane, vectors)
    result = [
        min(vectors * model.lanes, extents[lane]) if i == lane else 1 for i in range(len(extents))
    ]
    room = max((model.vector_registers - 1 - vectors) // vectors, 1)
    for i in model.row_axes(lane):
        most = min(room, extents[i])
        start = min(sizes[i], most)
        result[i] = cfg.choice(f"rows.{names[i]}", range(1, most + 1), start)
        room = max(room // result[i], 1)
    return SketchTile(lane, tuple(result), model.lanes, model.slides(lane, result)), packs
