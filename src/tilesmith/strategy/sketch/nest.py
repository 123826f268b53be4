"""Rules for the loops of a nest: tiles, the order of the loops outside the tiles, threads.

parallel over outer loops; the one with the most bytes of its own (`Outer.bytes`) is outermost
  tile loops
    accumulators of the tile, in registers          (lanes along an axis of the result)
    or one element, partial results in vector lanes (lanes along the reduction)
  the root, stored tile by tile
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from tilesmith.ir.layout import Layout
from tilesmith.ir.symbols import expected, expected_size
from tilesmith.ir.target import Target
from tilesmith.strategy.access import divisions
from tilesmith.strategy.cpu.injective import (
    enough_iterations,
    schedule_injective,
    share,
    share_and_vectorize,
)
from tilesmith.strategy.cpu.reduction import in_vectors, reduce_along, vectorize
from tilesmith.strategy.group import Group
from tilesmith.te.knobs import Config
from tilesmith.te.schedule import Schedule
from tilesmith.te.stage import Axis, Stage
from tilesmith.te.tensor import Compute

from .pack import pack, packable
from .place import Nest
from .strips import Strips
from .structure import Read, StageBody, bodies, computes
from .tile import SHORT, SketchTile, TileModel, choose_tile

MAX_UNROLLED_STATEMENTS = 64
"""Upper bound on the statements of one unrolled reduction step."""
MAX_ORDERED = 4
"""Upper bound on the number of loops whose order is a knob."""


@dataclass(frozen=True, slots=True)
class Outer:
    """A loop outside the tile.

    axis: the loop's axis.
    trips: its iterations.
    exact: whether all iterations do the same work.
    bytes: bytes that an iteration loads and that no other iteration loads.
    """

    axis: Axis
    trips: int
    exact: bool
    bytes: int


def schedule_nest(
    s: Schedule,
    group: Group,
    nest: Nest,
    target: Target,
    blocks: dict[str, Axis],
    cfg: Config,
) -> None:
    """Schedule all stages of a nest.

    blocks: by root, the loop over blocks inside which other nests are computed.  If other nests are
        computed in blocks of this nest, its loop over blocks is added.
    """
    root = s[nest.root]
    own = cfg.under(nest.root)
    if not nest.fused:
        _schedule_injective(s, group, nest, target, own)
        return
    known = bodies(s)
    shared = sorted(nest.shared)
    anchor = max(nest.fused, key=lambda n: known[n].work)
    body = known[anchor]
    inner = [i for i in range(len(root.axis)) if i not in shared]
    at_root = nest.fused[anchor]
    alone = len(nest.fused) == 1 and not inner
    frozen = frozenset(k for k, i in enumerate(at_root) if i < 0)
    last = _innermost(root)
    contiguous = at_root.index(last) if last in at_root else None
    model = TileModel.of(body, target, frozen, contiguous)
    if nest.home is not None:
        home, own_axis = nest.home
        assert home.block is not None
        root.compute_at(s[home.root], blocks[home.root])
        extents = list(model.extents)
        extents[at_root.index(own_axis)] = home.block[1]
        model = replace(model, extents=tuple(extents))
    copies = packable(s, body, nest.blocked) if alone else {}
    tile, packs = choose_tile(model, [a.name for a in body.op.axis], copies, own)
    if not alone:  # in a chain of stages, tile only the lanes
        keep = {tile.lane} if tile.lane is not None else set()
        sizes = tuple(n if k in keep else 1 for k, n in enumerate(tile.sizes))
        tile = SketchTile(tile.lane, sizes, tile.lanes)
    for number in sorted(packs):
        if tile.lane is not None:
            pack(s, group, body.reads[number], body.op.axis[tile.lane].var, target)
    sizes = {i: n for i, n in zip(at_root, tile.sizes, strict=True) if i >= 0}
    lane = at_root[tile.lane] if tile.lane is not None else None
    level = _tile_root(s, known, nest, body, sizes, lane, tile, blocks, target, own)
    for name in reversed([n for n in known if n in nest.fused]):
        own_tile = [sizes.get(i, 1) for i in nest.fused[name]]
        own_lane = nest.fused[name].index(lane) if lane is not None else None
        _accumulate(s, known[name], root, level, own_tile, own_lane, tile, own)
    for name in nest.stored:
        _store(s, name, root, level, target)


def _schedule_injective(s: Schedule, group: Group, nest: Nest, target: Target, cfg: Config) -> None:
    """Schedule a nest without reductions."""
    root, with_loops = s[nest.root], computes(s)
    kept = [*with_loops.values()]
    kept += [st for st in group.stages if s[st.outputs[0]].name in with_loops]
    if nest.strips is not None:
        schedule_strips(s, nest.strips, kept, target, cfg)
        return
    schedule_injective(s, group, with_loops[nest.root], target, keep=kept, cfg=cfg)
    for name in nest.stored:
        _store(s, name, root, next(iter(root.leaf_axes), None), target)


def schedule_strips(
    s: Schedule, strips: Strips, kept: Sequence[Compute], target: Target, cfg: Config
) -> None:
    """Schedule strips: share the root's loops over strips among threads, and compute the members in
    the innermost of these loops.

    kept: the operations that are not inlined.
    """
    root = s[strips.root]
    outer, trips, inner, sizes = [], [], [], []
    for axis, n in zip(root.axis, strips.part, strict=True):
        extent = expected(axis.extent)
        if n == 1 < extent:
            outer.append(axis)
            trips.append(extent)
            continue
        near = axis
        if n < extent:
            far, near = root.split(axis, factor=n)
            outer.append(far)
            trips.append(-(-extent // n))
        inner.append(near)
        sizes.append(n)
    root.reorder(*outer, *inner)
    _rows(root, inner, sizes, kept, target, cfg)
    level = share(root, outer, trips, target, cfg) if outer else inner[0]
    for name in strips.members:
        stage = s[name]
        stage.compute_at(root, level)
        axes = stage.axis
        _rows(stage, axes, [expected(a.extent) for a in axes], kept, target, cfg.under(name))


def _rows(
    stage: Stage,
    axes: Sequence[Axis],
    sizes: Sequence[int],
    kept: Sequence[Compute],
    target: Target,
    cfg: Config,
) -> None:
    """Vectorise the last of a stage's `axes`."""
    op = stage.op
    assert isinstance(op, Compute)
    by_axis = divisions(op, kept)
    divided = [by_axis[a.var] for a in op.axis][-len(axes) :]
    width = max(t.dtype.bytes for t in op.outputs)
    share_and_vectorize(stage, axes, sizes, width, target, False, cfg, divided)


def _innermost(root: Stage) -> int:
    """The root's axis that is contiguous in memory: the last dimension of more than one element."""
    layout = root.state.layout
    order = [d.axis for d in layout.dims] if layout is not None else range(len(root.axis))
    return next((i for i in reversed(order) if expected(root.axis[i].extent) > 1), -1)


def _tile_root(
    s: Schedule,
    known: Mapping[str, StageBody],
    nest: Nest,
    body: StageBody,
    sizes: Mapping[int, int],
    lane: int | None,
    tile: SketchTile,
    blocks: dict[str, Axis],
    target: Target,
    cfg: Config,
) -> Axis | None:
    """Tile the root.  Returns the loop that holds one tile; None if there is only one tile."""
    root = s[nest.root]
    op = root.op
    assert isinstance(op, Compute)
    at_root = nest.fused[body.name]
    outer: list[Outer] = []
    inside: list[Axis] = []
    lanes: Axis | None = None
    axes = root.axis
    for i, axis in enumerate(axes):
        extent = expected(axis.extent)
        if i not in sizes:
            inside.append(axis)
            continue
        n = sizes[i]
        if nest.block is not None and nest.block[0] == i:
            blocks[nest.root], axis = root.split(axis, factor=nest.block[1])
            extent = nest.block[1]
        own = body.op.axis[at_root.index(i)].var
        moved = sum(_bytes(r, body, tile) for r in body.reads if r.depends(own, n))
        if n == 1 and i != lane:
            outer.append(Outer(axis, extent, True, moved))
            continue
        far, near = root.split(axis, factor=n)
        outer.append(Outer(far, -(-extent // n), extent % n == 0, moved))
        if i == lane:
            lanes = near
        else:
            inside.append(near)
    outer = _ordered(outer, cfg)
    tail = [*inside, *([lanes] if lanes is not None else [])]
    block = blocks.get(nest.root)
    root.reorder(*([block] if block is not None else []), *(x.axis for x in outer), *tail)
    whole = [i for i in range(len(axes)) if i not in sizes]
    for axis in inside if not whole else ():
        root.unroll(axis)
    if block is not None:
        root.parallel(block)
        level = outer[-1].axis if outer else block
    elif nest.home is not None:
        level = outer[-1].axis if outer else None
    else:
        level = _share(root, outer, max(known[n].work for n in nest.fused), target, cfg)
    if lanes is not None:
        assert lane is not None
        in_vectors(root, lanes, sizes[lane], tile.lanes)
    elif whole:
        last = inside[-1]
        vectorize(root, last, expected(last.extent), tile.lanes, unrolled=0)
    return level


def _bytes(read: Read, body: StageBody, tile: SketchTile) -> int:
    """Bytes of an operand that one tile reads."""
    n = read.load.dtype.bytes
    for a, size in zip(body.op.axis, tile.sizes, strict=True):
        n *= size if read.depends(a.var, size) else 1
    for a in body.op.reduce_axis:
        n *= expected(a.extent) if read.depends(a.var, expected(a.extent)) else 1
    return n


def _ordered(outer: list[Outer], cfg: Config) -> list[Outer]:
    """Order the outer loops by knob `order`.  By default, the loop with the largest `bytes` is
    outermost, since an outer loop loads its bytes least often.
    """
    long = [x for x in outer if x.trips > 1]
    usual = sorted(long, key=lambda x: -x.bytes)
    plain = tuple(range(len(usual)))
    if 1 < len(usual) <= MAX_ORDERED:
        order = cfg.choice("order", lambda: itertools.permutations(plain), plain)
        usual = [usual[i] for i in order]
    return [*(x for x in outer if x.trips == 1), *usual]


def _share(
    root: Stage, outer: Sequence[Outer], work: int, target: Target, cfg: Config
) -> Axis | None:
    """Knobs `parallel`, `shared_iterations`: fuse outer loops until there are enough iterations,
    and share them among threads.  Returns the innermost loop that remains.
    """
    if not outer:
        return None
    level = outer[-1].axis
    if not cfg.choice("parallel", (False, True), work >= target.parallel_elements):
        return level
    long = [x for x in outer if x.trips > 1]
    if not long:
        return level
    enough = enough_iterations(target, cfg)
    first = long[0]
    shared, trips, used = first.axis, first.trips, 1
    while used < len(long) and trips < enough and long[used - 1].exact and long[used].exact:
        shared = root.fuse(shared, long[used].axis)
        trips *= long[used].trips
        used += 1
    root.parallel(shared)
    return shared if used == len(long) else level


def _accumulate(
    s: Schedule,
    body: StageBody,
    root: Stage,
    level: Axis | None,
    sizes: Sequence[int],
    lane: int | None,
    tile: SketchTile,
    cfg: Config,
) -> None:
    """Compute a reduction in the tile at `level`."""
    lanes = tile.lanes
    stage = s[body.name]
    result = stage.op.outputs[0]
    if level is not None:
        stage.compute_at(root, level)
        stage.set_scope("register")
    if lane is None:
        loop, n = _one_loop(stage, body)
        place = (root, level) if level is not None else None
        reduce_along(s, result, loop, n, lanes, place, cfg)
        return
    rank = len(stage.axis)
    others = [i for i in range(rank) if i != lane]
    width = sizes[lane]
    layout = Layout.with_innermost(rank, lane, lanes if width > lanes else None)
    for t in stage.op.outputs:
        s.transform_layout(t, layout)
    rows = [stage.axis[i] for i in others if sizes[i] > 1]
    single = [stage.axis[i] for i in others if sizes[i] <= 1]
    reduced = _reduction_order(stage, cfg)
    column = stage.axis[lane]
    stage.reorder(*single, *reduced, *rows, column)
    if reduced:
        _unroll(
            stage, reduced, expected_size(sizes) // width * -(-width // lanes), tile.slides, cfg
        )
    for axis in rows:
        stage.unroll(axis)
    in_vectors(stage, column, width, lanes)


def _reduction_order(stage: Stage, cfg: Config) -> list[Axis]:
    """Order the reduction loops by knob `reduction_order`."""
    axes = list(stage.reduce_axis)
    long = [a for a in axes if expected(a.extent) > 1]
    if not 1 < len(long) <= MAX_ORDERED or not stage.state.compute.laws.any_order:
        return axes
    plain = tuple(range(len(long)))
    order = cfg.choice("reduction_order", lambda: itertools.permutations(plain), plain)
    return [*(a for a in axes if a not in long), *(long[i] for i in order)]


def _unroll(
    stage: Stage, reduced: Sequence[Axis], statements: int, slides: bool, cfg: Config
) -> None:
    """Unroll steps of the innermost reduction loop, as many as knob `unroll` says.

    The default is all steps of a short window, or of a window whose steps share loads.
    """
    last = reduced[-1]
    extent = expected(last.extent)
    counts = [n for n in (1, 2, 3, 4, 5, 6, 7, 8, 9) if extent % n == 0]
    counts = [n for n in counts if n == 1 or n * statements <= 4 * MAX_UNROLLED_STATEMENTS]
    short = slides or (extent <= SHORT and extent * statements <= MAX_UNROLLED_STATEMENTS)
    short = short and extent in counts
    steps = cfg.choice("unroll", counts, extent if short else 1)
    if steps > 1:
        _, near = stage.split(last, factor=steps)
        stage.unroll(near)


def _one_loop(stage: Stage, body: StageBody) -> tuple[Axis, int]:
    """Fuse the innermost loops of the reduction along which every read has one stride.  Returns the
    fused loop and its extent.
    """
    axes = body.op.reduce_axis
    run = [axes[-1]]
    for outer in reversed(axes[:-1]):
        inner = run[0]
        strides = [(r.stride(outer.var), r.stride(inner.var)) for r in body.reads]
        if any(a is None or b is None or a != b * expected(inner.extent) for a, b in strides):
            break
        run.insert(0, outer)
    loops = stage.reduce_axis[len(axes) - len(run) :]
    loop = stage.fuse(*loops)
    return loop, expected_size(a.extent for a in run)


def _store(s: Schedule, name: str, root: Stage, level: Axis | None, target: Target) -> None:
    """Rule *store*: store the part of a stage that a tile needs, vectorised along its last axis."""
    stage = s[name]
    if level is not None:
        stage.compute_at(root, level)
    op = stage.op
    assert isinstance(op, Compute)
    if op.axis and expected(op.axis[-1].extent) > 1:
        lanes = target.vector_lanes(min(max(t.dtype.bytes for t in op.outputs), 8))
        _, near = stage.split(stage.axis[-1], factor=lanes)
        stage.vectorize(near)


# --- packing
