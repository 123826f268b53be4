"""Windows that slide along the rows of a register tile; each lane is another channel.

    for kh:
        for kw in TAPS, unrolled:
            # a vector of x that several rows read is loaded once
            acc[r] += x[kh, r * step + kw * dilation] * w[kh, kw]

In a depthwise convolution a vector of `x` is multiplied with one vector of `w`, so nothing is
broadcast.  A step that shares no vectors loads one for each multiply-add, and a core can load no
more vectors per cycle than it multiplies.  Neighbouring rows read the same vectors at other taps.
If they are unrolled together, each vector is loaded once, and the multiply-add units become the
limit.  The vectors must stay in registers beside the accumulators, so the tile is narrow and has
few rows.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

from tilesmith.ir.affine import affine_form
from tilesmith.ir.target import Target
from tilesmith.perf.cycles import Instructions, tile_cycles
from tilesmith.te.tensor import IterVar

from .contraction import (
    MAX_ROWS,
    MAX_VECTORS,
    Contraction,
    RegisterTile,
    reduction_order,
)
from .unrolling import UNROLL_FACTORS


@dataclass(frozen=True, slots=True)
class Slide:
    """A sliding window: row `r` reads `x` at `r * step + k * dilation` in step `k`.

    step: stride between rows.
    dilation: stride between taps.
    taps: number of steps.
    """

    step: int
    dilation: int
    taps: int

    def loads(self, rows: int, taps: int) -> int:
        """Number of distinct elements that `rows` rows read in `taps` steps."""
        elements = {r * self.step + k * self.dilation for r in range(rows) for k in range(taps)}
        return len(elements)


def slide_of(c: Contraction, run: tuple[IterVar, ...]) -> Slide | None:
    """The window that slides along the rows `run`; None if there is none, or if lanes run along
    different axes of `x` and `w`.
    """
    order = reduction_order(c)
    if not run or not order or c.vector is None:
        return None
    if not any(i is c.vector.var for i in c.x.indices):
        return None
    row, tap = run[-1].var, order[-1]
    for index in c.x.indices:
        terms = affine_form(index)[0]
        if row in terms and tap.var in terms and isinstance(tap.extent, int) and tap.extent > 1:
            return Slide(abs(terms[row]), abs(terms[tap.var]), tap.extent)
    return None


@lru_cache(maxsize=256)
def sliding_tile(
    slide: Slide,
    rows: int,
    columns: int,
    target: Target,
    element_bytes: int,
    vectors: int | None = None,
) -> tuple[RegisterTile, int]:
    """The register tile with the least predicted time for `rows` x `columns` results, and the
    number of steps of the window to unroll.

    The number is 1 if too few registers remain for the shared vectors.  Then the tile is no faster
    than the tile of `best_tile`.  `vectors` fixes the vectors per row.
    """
    lanes = target.vector_lanes(element_bytes)
    best, best_cost = (RegisterTile(1, vectors or 1, lanes), 1), float("inf")
    counts = [n for n in UNROLL_FACTORS if slide.taps % n == 0]
    for count in (vectors,) if vectors else range(1, MAX_VECTORS + 1):
        if count > 1 and not vectors and count * lanes >= columns + lanes:
            break
        for height in range(1, min(rows, MAX_ROWS) + 1):
            for taps in counts:
                kept = slide.loads(height, taps) if taps > 1 else 1
                if (height + kept + 1) * count > target.vector_registers and height > 1:
                    continue
                full, rest = divmod(rows, height)
                cost = full * _cycles(slide, height, count, taps, target)
                if rest:
                    cost += _cycles(slide, rest, count, taps, target)
                # Tall tiles are long code, and their many rows make register allocation hard.
                cost *= -(-columns // (count * lanes)) * (1 + 0.01 * height)
                if cost < best_cost:
                    best, best_cost = (RegisterTile(height, count, lanes), taps), cost
    return best


def _cycles(slide: Slide, rows: int, vectors: int, taps: int, target: Target) -> float:
    """Cycles of all steps along one row of the window."""
    loads = (slide.loads(rows, taps) + taps) * vectors
    waits = target.model.fma_latency * taps
    step = Instructions(fma=rows * vectors * taps, load=loads, chain=waits)
    return tile_cycles(step, loads, target.model) * (slide.taps // taps)
