"""Rule *winograd*: minimal filtering for convolutions with a 3x3 window, where it is faster.

    parallel over rows of tiles
      image tiles of the row         per tile and vector of channels, in registers
      for the other axes of the image
        products                     a matrix product per point, accumulators in registers
        for tiles of the row, vectors
          result tiles               in registers, stored

The transformed image and the products of a row of tiles stay in the cache.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from tilesmith.ir.dtypes import f32
from tilesmith.ir.expr import Load, Var
from tilesmith.ir.symbols import expected, expected_size
from tilesmith.ir.target import Target
from tilesmith.strategy.cpu.winograd_cost import ERRORS
from tilesmith.strategy.winograd import schedule_half, schedule_products, schedule_transform
from tilesmith.te.interpolation import SQUARES
from tilesmith.te.knobs import Config
from tilesmith.te.schedule import Schedule
from tilesmith.te.stage import Axis, Stage
from tilesmith.te.steps.winograd import Windowed, WinogradStages, windowed
from tilesmith.te.tensor import Compute
from tilesmith.te.winograd import points

FILTERED_MARGIN = 0.8
"""Upper bound on the predicted time relative to the direct convolution: smaller gains are not
trusted.
"""
TRANSFORM = 8
"""Instructions per vector of transformed numbers, one per cycle: arithmetic, loads and stores."""
VECTORS = 2
"""Vectors of accumulators in a row of the products."""


@dataclass(frozen=True, slots=True)
class Filtered:
    """A convolution computed in tiles.

    name: its stage.
    m: the tiles are `m` x `m`.
    window: the image, weights and axes of the convolution.
    stages: the stages of the transforms and products.
    """

    name: str
    m: int
    window: Windowed
    stages: WinogradStages


def filter_windows(s: Schedule, target: Target, bound: float, cfg: Config) -> list[Filtered]:
    """Tile convolutions by knob `winograd`: a tile size with an error within `bound`, or 0: no
    tiles.
    """
    tiles = tuple(m for m in SQUARES if ERRORS[m] <= bound)
    filtered: list[Filtered] = []
    for stage in list(s.stages):
        if stage.state.is_placeholder or not stage.state.compute.reduce_axis:
            continue
        op = stage.state.compute
        w = windowed(op)
        if w is None or not _fits(op, w) or not all(_is_plain(s, x) for x in (w.image, w.weights)):
            continue
        costs = {m: filtered_cycles(op, w, m, target) for m in tiles}
        best = min(costs, key=lambda m: costs[m], default=0)
        direct = expected_size(a.extent for a in (*op.axis, *op.reduce_axis))
        direct //= target.vector_lanes(w.image.dtype.bytes) * target.model.fma_ports
        usual = best if best and costs[best] < FILTERED_MARGIN * direct else 0
        m = cfg.under(stage.name).choice("winograd", (0, *tiles), usual)
        if m:
            filtered.append(Filtered(stage.name, m, w, s.winograd(op.outputs[0], m)))
    return filtered


def _fits(op: Compute, w: Windowed) -> bool:
    """Whether `op` is float32 and vectors can run along the last dimension of every tensor."""
    last = len(op.axis) - 1
    if w.image.dtype is not f32:
        return False
    along = (w.image.buffer.shape, w.image_dims), (w.weights.buffer.shape, w.weight_dims)
    return last not in w.places and all(len(shape) - 1 not in dims for shape, dims in along)


def _is_plain(s: Schedule, read: Load) -> bool:
    """Whether the tensor that `read` loads from is row-major."""
    source, _ = s.state.tensors[read.buffer]  # type: ignore[index]  # a tensor
    return s.state.stages[source].layout is None


def filtered_cycles(op: Compute, w: Windowed, m: int, target: Target) -> float:
    """Cycles of one core: products, and the transforms of image, weights and result."""
    lanes = target.vector_lanes(w.image.dtype.bytes)
    t = points(m)
    tiles = math.prod(-(-expected(op.axis[p].extent) // m) for p in w.places)
    results = expected_size(a.extent for n, a in enumerate(op.axis[:-1]) if n not in w.places)
    results *= -(-expected(op.axis[-1].extent) // lanes)  # only whole vectors are computed
    reduced = expected_size(a.extent for a in w.others)

    def vectors(shape: Any, dims: tuple[int, int]) -> int:
        outer = expected_size(n for d, n in enumerate(shape[:-1]) if d not in dims)
        return outer * -(-expected(shape[-1]) // lanes)

    image = tiles * vectors(w.image.buffer.shape, w.image_dims)
    weights = vectors(w.weights.buffer.shape, w.weight_dims)
    products = t * t * tiles * results * reduced / target.model.fma_ports
    moved = t * t * (image + weights + tiles * results) * TRANSFORM
    return products + moved


def schedule_filtered(s: Schedule, f: Filtered, target: Target, cfg: Config) -> None:
    """Schedule the stages of a convolution in tiles."""
    own = cfg.under(f.name)
    root = s[f.name]
    op = root.op
    assert isinstance(op, Compute)
    lanes = target.vector_lanes(f.window.image.dtype.bytes)
    image_row, row, vector = _schedule_result(root, f, lanes)
    schedule_half(s[f.stages.rows], root, vector)
    products, place = f.stages.products, 2 + f.window.places[1]
    rows, columns = _register_tile(s[products], place, lanes, own)
    width = min(lanes, expected(products.shape[-1]))
    schedule_products(s, products, root, row, place, rows, width, columns)
    image = s[f.stages.image]
    image.compute_at(root, image_row)
    image.set_scope("heap")
    schedule_transform(image, s[f.stages.image_rows], min(lanes, expected(image.axis[-1].extent)))
    weights = s[f.stages.weights]
    width = min(lanes, expected(weights.axis[-1].extent))
    outer = schedule_transform(weights, s[f.stages.weight_rows], width)
    if outer is not None and expected_size(f.stages.weights.shape) >= target.parallel_elements:
        weights.parallel(outer)


def _schedule_result(root: Stage, f: Filtered, lanes: int) -> tuple[Axis, Axis, Axis]:
    """Make the loops of the result.

    Returns the loops at which the image of a row of tiles, its products, and one vector of a tile
    are computed.
    """
    axes = root.axis
    i, j = f.window.places
    op = root.op
    assert isinstance(op, Compute)
    batch = {x for x in f.window.image.indices if isinstance(x, Var)}
    across = [n for n in range(len(axes) - 1) if n not in (i, j)]
    first = [n for n in across if op.axis[n].var in batch]
    rest = [n for n in across if n not in first]
    rows, y = root.split(axes[i], factor=f.m, tail="guard")
    columns, z = root.split(axes[j], factor=f.m, tail="guard")
    vector, lane = root.split(axes[-1], factor=min(lanes, expected(op.axis[-1].extent)))
    last = [axes[n] for n in rest]
    root.reorder(*(axes[n] for n in first), rows, *last, columns, vector, y, z, lane)
    outer = root.fuse(*(axes[n] for n in first), rows) if first else rows
    root.parallel(outer)
    root.unroll(y)
    root.unroll(z)
    root.vectorize(lane)
    return outer, (last[-1] if last else outer), vector


def _register_tile(products: Stage, place: int, lanes: int, cfg: Config) -> tuple[int, int]:
    """Rows and columns of the register tile of the products.  Rows are tiles along axis `place`."""
    width, tiles = (expected(products.axis[n].extent) for n in (-1, place))
    lanes = min(lanes, width)
    vectors = min(VECTORS, -(-width // lanes))
    vectors = cfg.choice("tile_vectors", range(1, min(-(-width // lanes), 4) + 1), vectors)
    height = min(tiles, 28 // vectors)
    height = -(-tiles // -(-tiles // height))
    return cfg.choice("tile_rows", range(1, min(tiles, 28 // vectors) + 1), height), lanes * vectors
