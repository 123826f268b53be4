"""Rules that place stages: inlined into their readers, in the tile of a reader, or alone.

The result is a list of *nests*.  A nest is a stage with its own loops, the `root`, and the stages
computed inside these loops.  An inner stage is stored for a tile, or is a reduction that the root
reads at its own index (an accumulator of the tile).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field

from tilesmith.ir.expr import Const, Load, Var, post_order
from tilesmith.ir.symbols import expected, expected_size
from tilesmith.ir.target import Target
from tilesmith.ir.types import same_dim
from tilesmith.ops.structure import is_costly
from tilesmith.strategy.cpu.injective import powers_of_two
from tilesmith.te.knobs import Config
from tilesmith.te.schedule import Schedule
from tilesmith.te.tensor import Compute, Extern

from .recompute import direct_readers, stored_stages
from .strips import Strips, merged
from .structure import StageBody, bodies, has_condition

REREAD = 1.5
"""Fewest reads per element for which a value counts as read repeatedly."""
BLOCKS = (8, 16, 24, 32, 48, 64, 96, 128)
"""Elements per block along an axis."""
FAR = 2
"""Size relative to the L2 cache above which a result is evicted before it is read again."""


@dataclass(slots=True, eq=False)
class Nest:
    """A stage with loops, and the stages computed inside these loops.

    root: name of the stage.
    fused: for each reduction in the tile, the root's axes that correspond to the reduction's axes.
    stored: the stages that are stored for a tile.
    strips: the strips in which the root and other stages without reductions are computed.
    block: (axis of the root, elements per block), if other nests are computed block by block.
    blocked: the roots of these other nests.
    home: (nest, own axis): the nest in whose blocks this nest is computed, and the axis of this
        nest that is divided into blocks.
    """

    root: str
    fused: dict[str, tuple[int, ...]] = field(default_factory=dict)
    stored: list[str] = field(default_factory=list)
    strips: Strips | None = None
    block: tuple[int, int] | None = None
    blocked: list[str] = field(default_factory=list)
    home: tuple[Nest, int] | None = None

    @property
    def members(self) -> set[str]:
        inside = self.strips.members if self.strips is not None else ()
        return {self.root, *self.fused, *self.stored, *inside}

    @property
    def shared(self) -> frozenset[int]:
        """The root's axes to which axes of its reductions correspond."""
        return frozenset(i for axes in self.fused.values() for i in axes if i >= 0)


def place_injective(s: Schedule, target: Target, cfg: Config, apart: Set[str]) -> set[str]:
    """Rule *inline*: compute a stage without a reduction in its readers, unless much of it would be
    computed repeatedly.

    Returns the stages to be stored in the tile of their reader.  Other rules schedule the stages
    `apart`.
    """
    usual = _usual_places(s, apart)
    cheap = {n for n, (where, fixed) in usual.items() if where != "root" and not fixed}
    stored = stored_stages(s.state, cheap, target)
    tiled: set[str] = set()
    for name, (where, _) in usual.items():
        stage = s[name]
        op = stage.state.compute
        if not op.inputs and not is_costly(op.body):
            stage.compute_inline()
            continue
        if name in cheap:
            where = "root" if name in stored else "inline"
        where = cfg.under(name).choice("place", ("inline", "tile", "root"), where)
        if where == "tile":
            tiled.add(name)
            continue
        readers = stored.get(name, ())
        if where == "root" and 0 < len(readers) < len(direct_readers(s.state)[name]):
            for t in op.outputs:
                s.cache_read(t, "heap", readers)
            where = "inline"
        if where == "inline":
            stage.compute_inline()
    return tiled


def _usual_places(s: Schedule, apart: Set[str]) -> dict[str, tuple[str, bool]]:
    """The default placement of each stage without a reduction, consumers first.  Also whether the
    placement is final: counted costs can't change a final placement.

    A placement before or after a reduction is final, since other rules fuse these chains.
    """
    s = s.copy()
    places: dict[str, tuple[str, bool]] = {}
    reads = {st.name: _reads_by_stage(s, st.name) for st in s.stages if not st.state.is_placeholder}
    for stage in reversed(s.stages):
        state = stage.state
        if state.is_placeholder or state.is_output or state.compute.reduce_axis:
            continue
        readers = s.state.consumers()[stage.name]
        if stage.name in apart or any(isinstance(s[r].op, Extern) for r in readers):
            continue
        op = state.compute
        where = "inline"
        reread = _is_reread(s, stage.name, reads) and _is_worth_storing(s, op)
        elsewhere = any(r in apart for r in readers)
        if reread or elsewhere:
            where = "root"
        elif is_costly(op.body) and len(readers) > 1:
            where = "tile"
        is_constant = not op.inputs and not is_costly(op.body)
        reduced = [s.state.stages[r].compute for r in readers]
        reduced += [t.op for t in op.inputs if isinstance(t.op, Compute)] if where == "tile" else []
        fixed = elsewhere or is_constant or any(r.reduce_axis for r in reduced)
        places[stage.name] = where, fixed
        if where == "inline":
            stage.compute_inline()
    return places


def _reads_by_stage(s: Schedule, name: str) -> dict[str, int]:
    """Number of elements that the loops of stage `name` read from each other stage."""
    op = s.state.stages[name].compute
    domain = expected_size(a.extent for a in (*op.axis, *op.reduce_axis))
    elements: dict[str, int] = {}
    for n in dict.fromkeys(n for b in op.body for n in post_order(b) if isinstance(n, Load)):
        source = s.state.tensors[n.buffer][0]  # type: ignore[index]  # a tensor
        elements[source] = elements.get(source, 0) + domain
    return elements


def _is_reread(s: Schedule, name: str, reads: Mapping[str, Mapping[str, int]]) -> bool:
    """Whether a reduction reads most elements of `name` repeatedly, directly or through inlined
    stages.
    """
    size = expected_size(s.state.stages[name].op.shape)
    # Count the readers of inlined readers too.
    times = sum(counts.get(name, 0) for counts in reads.values())
    through = [r for r in s.state.consumers()[name] if s.state.stages[r].compute.reduce_axis]
    for reader in through:
        if name not in reads[reader]:
            op = s.state.stages[reader].compute
            times += expected_size(a.extent for a in (*op.axis, *op.reduce_axis))
    return bool(through) and times > REREAD * size


def _is_worth_storing(s: Schedule, op: Compute) -> bool:
    after_reduction = any(isinstance(t.op, Compute) and t.op.reduce_axis for t in op.inputs)
    return has_condition(op.body) or is_costly(op.body) or after_reduction


def factor_reductions(s: Schedule, target: Target, cfg: Config, apart: Set[str]) -> None:
    """Rule *rfactor*: divide a long reduction to few elements into parts that threads share."""
    for name, body in bodies(s).items():
        op = body.op
        if not op.reduce_axis or name in apart:
            continue
        first = op.reduce_axis[0]
        extent = expected(first.extent)
        few = body.spatial < target.shared_trips
        scarce = few and body.work >= target.parallel_elements and extent > 1
        most = 2 * target.shared_trips
        parts = [1, *(n for n in powers_of_two(max(most, 128)) if n <= extent)] if scarce else [1]
        wanted = max((n for n in parts if n <= most), default=1)
        if not scarce or not op.laws.in_parts:
            continue
        parts_wanted = cfg.under(name).choice("parts", parts, wanted)
        if parts_wanted == 1:
            continue
        stage = s[name]
        outer, _ = stage.split(stage.reduce_axis[0], nparts=parts_wanted)
        s.rfactor(op.outputs[0], outer)


def form_nests(s: Schedule, tiled: Set[str], cfg: Config, apart: Set[str]) -> list[Nest]:
    """Rules *fuse* and *cache write*: form the nests, consumers first.

    A reduction that the root reads at its own index runs in the root's tile.  A reduction that is
    itself a root gets accumulators and stores them tile by tile.
    """
    known = bodies(s)
    readers = s.state.consumers()
    nests: list[Nest] = []
    owner: dict[str, Nest] = {}
    for name in reversed([n for n in known if n not in apart]):
        body = known[name]
        inside = not any(r in apart for r in readers[name])
        homes = {id(owner[r]): owner[r] for r in readers[name]} if inside else {}
        nest = next(iter(homes.values())) if len(homes) == 1 else None
        state = s.state.stages[name]
        if nest is not None and not state.is_output:
            if name in tiled:
                nest.stored.append(name)
                owner[name] = nest
                continue
            axes = _aligned(s, known, nest, name) if body.op.reduce_axis else None
            if axes is not None and cfg.under(name).choice("fuse", (False, True), True):
                nest.fused[name] = axes
                owner[name] = nest
                continue
        owner[name] = nest = Nest(name)
        nests.append(nest)
    for nest in nests:
        op = known[nest.root].op
        if op.reduce_axis:
            copy = s.cache_write(op.outputs[0], "register")
            nest.fused = {s[copy].name: tuple(range(len(op.axis)))}
    return nests


def merge_nests(s: Schedule, nests: list[Nest], target: Target, cfg: Config) -> list[Nest]:
    """Rule *strips*: compute stages without reductions in strips of their reader.

    Knob `strips`: whether to merge the stages whose merge saves predicted cycles.
    """
    plain = {n.root: n for n in nests if not n.fused and not n.stored}
    if len(plain) < 2:
        return nests
    known = bodies(s)
    outputs = {st.name for st in s.stages if st.state.is_output}
    roots = [n for n in known if n in plain]
    for strips in merged(known, roots, s.state.consumers(), outputs, target):
        if strips.members and cfg.under(strips.root).choice("strips", (False, True), True):
            plain[strips.root].strips = strips
    inside = {m for n in nests if n.strips is not None for m in n.strips.members}
    return [n for n in nests if n.root not in inside]


def block_nests(s: Schedule, nests: Sequence[Nest], target: Target, cfg: Config) -> None:
    """Rule *block*: compute a nest block by block, inside the outermost loop of the nest that reads
    it.

    All reads must index one axis of the result by the same axis of the reader's root.  By default,
    only results that would be evicted from L2 are blocked.  Knob `block`: elements per block; 0: no
    blocks.
    """
    known = bodies(s)
    readers = s.state.consumers()
    owner = {m: n for n in nests for m in n.members}
    for nest in nests:
        homes = [owner.get(r) for r in readers[nest.root]]
        home = homes[0] if homes else None
        op = known[nest.root].op
        if home is None or any(h is not home for h in homes) or not (home.fused and nest.fused):
            continue
        if home.home is not None or nest.block is not None or s[nest.root].state.is_output:
            continue
        axes = _read_along(known, home, nest.root)
        if axes is None:
            continue
        own, theirs = axes
        rows = expected(op.axis[own].extent)
        size = expected_size(op.shape) * known[nest.root].element_bytes
        options = [n for n in BLOCKS if rows % n == 0 and n * (target.shared_trips // 2) <= rows]
        if home.block is not None:
            options = [home.block[1]] if home.block[0] == theirs else []
        near = [n for n in options if n * (size // rows) <= target.model.l2_bytes // 8]
        usual = max(near, default=0) if size >= FAR * target.model.l2_bytes else 0
        chosen = cfg.under(nest.root).choice("block", (0, *options), usual) if options else 0
        if chosen:
            home.block, nest.home = (theirs, chosen), (home, own)
            home.blocked.append(nest.root)


def _reads(
    known: Mapping[str, StageBody], nest: Nest, name: str
) -> Iterator[tuple[Load, dict[Var, int]]]:
    """The loads of stage `name` in a nest, each with a map from variables to root axes."""
    root = known[nest.root].op
    for member in nest.members:
        body = known[member]
        pairs = zip(body.op.axis, _axes_of(nest, root, member), strict=False)
        root_axes = {a.var: i for a, i in pairs if i >= 0 and same_dim(a.extent, root.shape[i])}
        yield from ((read.load, root_axes) for read in body.reads if read.source == name)


def _read_along(known: Mapping[str, StageBody], home: Nest, name: str) -> tuple[int, int] | None:
    """(axis of stage `name`, axis of the root).  All reads of the stage in `home` index this axis
    by the same root axis.  The first such pair; None if there is none.
    """
    root, own = known[home.root].op, known[name].op
    common: tuple[int, ...] | None = None
    for load, root_axes in _reads(known, home, name):
        axes = tuple(root_axes.get(x, -1) if isinstance(x, Var) else -1 for x in load.indices)
        common = axes if common is None or axes == common else tuple(-1 for _ in axes)
    for n, i in enumerate(common or ()):
        if i >= 0 and expected(own.axis[n].extent) > 1 and same_dim(own.shape[n], root.shape[i]):
            return n, i
    return None


def _aligned(
    s: Schedule, known: Mapping[str, StageBody], nest: Nest, name: str
) -> tuple[int, ...] | None:
    """The root's axes that correspond to the axes of reduction `name`.  None if the reduction can't
    run in the root's tile, for instance if the nest reads it at several indices.
    """
    root = known[nest.root].op
    if root.reduce_axis:
        return None
    own = known[name].op
    aligned: tuple[int, ...] | None = None
    for load, root_axes in _reads(known, nest, name):
        axes = _point(load, own, root, root_axes)
        if axes is None or (aligned is not None and axes != aligned):
            return None
        aligned = axes
    if aligned is None or len(set(aligned)) != len(aligned):
        return None
    if nest.fused:
        same = nest.shared == frozenset(i for i in aligned if i >= 0)
        tiles = [_has_reuse(known[n]) for n in (*nest.fused, name)]
        if not same or any(tiles):
            return None
    return aligned


def _axes_of(nest: Nest, root: Compute, member: str) -> Sequence[int]:
    if member in nest.fused:
        return nest.fused[member]
    return range(len(root.axis))


def _point(
    load: Load, own: Compute, root: Compute, root_axes: Mapping[Var, int]
) -> tuple[int, ...] | None:
    """The root's axes with which `load` indexes a result of `own`."""
    axes: list[int] = []
    for index, axis in zip(load.indices, own.axis, strict=True):
        if isinstance(index, Const) and same_dim(axis.extent, 1):
            axes.append(-1 - len(axes))  # an axis that does not belong to the root
            continue
        if not isinstance(index, Var) or index not in root_axes:
            return None
        if not same_dim(root.shape[root_axes[index]], axis.extent):
            return None
        axes.append(root_axes[index])
    return tuple(axes)


def _has_reuse(body: StageBody) -> bool:
    """Whether tiles are useful, because neighbours along some axis read the same elements."""
    return any(
        not read.strides.get(a.var, 0) and a.var not in read.periods
        for a in body.op.axis
        if expected(a.extent) > 1
        for read in body.reads
    )
