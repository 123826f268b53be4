"""Strips: stages that are computed part by part in the loops of the stage that reads them.

    for y: for x: B[y, x] = ...             for yo in parallel:
    for y: for x: C[y, x] = B[y - 1 .. y + 1, x]    ->      for y in 16 + 2: for x: B[y, x] = ...
                                                            for yi in 16: for x: C[...] = ...

The part of `B` for a strip stays in the cache, but the rows at the border of two strips are
computed twice.  Stages are merged one by one, the largest gain first, until no merge gains (the
grouping of Halide's first automatic scheduler: Mullapudi et al., "Automatically scheduling Halide
image processing pipelines", 2016).  The gain is computed from the elements of all parts, their
cycles, and the bytes that move between caches.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from tilesmith.ir.context import Context
from tilesmith.ir.expr import Expr, Load, Var, free_vars
from tilesmith.ir.interval import make
from tilesmith.ir.simplify import EMPTY, interval
from tilesmith.ir.symbols import expected, expected_size
from tilesmith.ir.target import Target
from tilesmith.perf.cycles import overlapped, read_rate
from tilesmith.te.tensor import Tensor

from .structure import StageBody
from .work import element_cycles

SIZES = (1, 2, 4, 8, 16, 32, 64, 128, 256)
"""Elements of a strip along an axis."""
LONG = (1024, 4096, 16384)
"""Elements of a strip of a result with one axis."""
PROBES = 16, 32
"""Part sizes along an axis for which reads are counted exactly; other sizes are extrapolated."""
MERGE_GAIN = 0.05
"""Least gain, as a fraction of the time of the stages that are merged."""


@dataclass(frozen=True, slots=True)
class Extent:
    """The elements of one dimension that a part of a reader needs, as a function of the part's
    size.

    axis: the reader's axis with which the number grows; None for a fixed number.
    slope: elements needed per element of the reader.
    fixed: elements needed at size 0, by extrapolation.
    most: extent of the dimension.
    """

    axis: int | None
    slope: float
    fixed: float
    most: int

    def of(self, part: Sequence[float]) -> float:
        own = 0.0 if self.axis is None else self.slope * part[self.axis]
        return min(max(own + self.fixed, 1.0), self.most)


@dataclass(frozen=True, slots=True)
class Source:
    """Reads of a stage from one tensor.

    extents: elements that a part needs, by dimension.
    bytes: bytes of an element.
    total: bytes of the tensor.
    """

    extents: tuple[Extent, ...]
    bytes: int
    total: int

    def elements(self, part: Sequence[float]) -> float:
        return math.prod(e.of(part) for e in self.extents)


@dataclass(frozen=True, slots=True)
class Member:
    """The sizes and costs of a stage that may be computed in strips.

    shape: extents of its result.
    bytes: bytes of one element of all its results.
    cycles: cycles of one core per element.
    sources: its reads, by stage or placeholder.
    """

    shape: tuple[int, ...]
    bytes: int
    cycles: float
    sources: Mapping[str, Source]

    @staticmethod
    def of(body: StageBody, target: Target) -> Member:
        axes = body.op.axis
        lane = axes[-1].var if axes else None
        return Member(
            tuple(expected(a.extent) for a in axes),
            sum(t.dtype.bytes for t in body.op.outputs),
            element_cycles(body.values, lane, target),
            _sources(body),
        )


@dataclass(slots=True)
class Strips:
    """A stage that is computed strip by strip, and the stages computed in its strips.

    root: name of the stage.
    members: names of the other stages, readers first.
    part: elements of a strip along each axis of the root.
    cycles: predicted cycles of the busiest core.
    """

    root: str
    members: list[str] = field(default_factory=list)
    part: tuple[int, ...] = ()
    cycles: float = 0.0


def merged(
    bodies: Mapping[str, StageBody],
    roots: Iterable[str],
    readers: Mapping[str, Sequence[str]],
    outputs: Iterable[str],
    target: Target,
) -> list[Strips]:
    """The strips of the stages `roots`, producers first.  Each stage belongs to exactly one of the
    strips.

    bodies: all stages with loops.  readers: the readers of each stage.  outputs: the stages that
        must be stored.
    """
    members = {n: Member.of(bodies[n], target) for n in roots}
    groups = {n: strips for n in members if (strips := _with_best_part(Strips(n), members, target))}
    fixed = set(outputs)
    tried: dict[tuple[str, ...], Strips | None] = {}
    while True:
        best: tuple[float, Strips, str] | None = None
        for name, own in groups.items():
            homes = {_home(groups, r) for r in readers[name]}
            home = homes.pop() if len(homes) == 1 else None
            if name in fixed or home is None:
                continue
            into = groups[home]
            key = (home, *into.members, name, *own.members)
            if key not in tried:
                both = Strips(home, [*into.members, name, *own.members])
                tried[key] = _with_best_part(both, members, target)
            together = tried[key]
            if together is None:
                continue
            apart = into.cycles + own.cycles
            gain = apart - together.cycles
            if gain > MERGE_GAIN * apart and (best is None or gain > best[0]):
                best = gain, together, name
        if best is None:
            return list(groups.values())
        del groups[best[2]]
        groups[best[1].root] = best[1]


def _home(groups: Mapping[str, Strips], name: str) -> str | None:
    """The root of the strips in which a stage is computed; None for a stage outside all strips."""
    if name in groups:
        return name
    return next((g.root for g in groups.values() if name in g.members), None)


def _with_best_part(strips: Strips, members: Mapping[str, Member], target: Target) -> Strips | None:
    """`strips` with the part size of the fewest cycles, and its members with readers first.  None
    if the root's result is too small for parts.
    """
    order = _readers_first(strips, members)
    parts = _parts(members[strips.root].shape, bool(strips.members))
    cycles = {part: _cycles(strips.root, order, members, part, target) for part in parts}
    if not cycles:
        return None
    part = min(cycles, key=cycles.__getitem__)
    return Strips(strips.root, order, part, cycles[part])


def _readers_first(strips: Strips, members: Mapping[str, Member]) -> list[str]:
    """Members in an order in which each follows its readers."""
    known = {strips.root, *strips.members}
    return [n for n in reversed(tuple(members)) if n in known and n != strips.root]


def _parts(shape: Sequence[int], several: bool) -> Iterator[tuple[int, ...]]:
    """Candidate sizes, by axis, of the part of a result that is computed together.

    several: whether other stages are computed in the part.  If not, the part is one row.  If so,
        the part is a number of rows, with one index or all indices of each axis outside the rows.
        The parts of a result with one axis are long pieces (`LONG`).  A scalar has no parts.
    """
    if not several:
        yield (*(1 for _ in shape[:-1]), *shape[-1:])
        return
    if not shape:
        return
    if len(shape) == 1:
        yield from ((n,) for n in LONG if n < shape[0])
        return
    leading = [(1, n) if n > 1 else (1,) for n in shape[:-2]]
    rows = list(dict.fromkeys(_near_divisor(n, shape[-2]) for n in SIZES if n <= shape[-2]))
    for outer in itertools.product(*leading):
        for n in rows:
            yield (*outer, n, shape[-1])


def _near_divisor(size: int, extent: int) -> int:
    """A divisor of `extent` near `size`, so that all strips are equal; `size` if there is none."""
    near = [n for n in range(size, max(size * 3 // 4, 1) - 1, -1) if extent % n == 0]
    near += [n for n in range(size + 1, size * 5 // 4 + 1) if extent % n == 0]
    even = [n for n in near if n % 2 == 0 or size == 1]
    return next(iter(even or near), size)


def _cycles(
    root: str,
    order: Sequence[str],
    members: Mapping[str, Member],
    part: Sequence[int],
    target: Target,
) -> float:
    """Predicted cycles of the busiest core for the root and the stages `order`, in parts of size
    `part`.
    """
    model, shape = target.model, members[root].shape
    count = math.prod(-(-n // p) if p else 0 for n, p in zip(shape, part, strict=True))
    regions: dict[str, list[float]] = {root: [float(p) for p in part]}
    for name in order:
        region = [1.0] * len(members[name].shape)
        for reader, needed in regions.items():
            source = members[reader].sources.get(name)
            if source is not None:
                own = (e.of(needed) for e in source.extents)
                region = [max(a, b) for a, b in zip(region, own, strict=True)]
        regions[name] = region
    busy = footprint = inner = outer = 0.0
    external: dict[str, tuple[float, Source]] = {}
    for name, region in regions.items():
        member = members[name]
        elements = math.prod(region)
        rows = elements / region[-1] if region and region[-1] else 1.0
        busy += elements * member.cycles + rows * model.entry_cycles
        footprint += elements * member.bytes
        if name != root:
            inner += 2 * elements * member.bytes
        for source_name, source in member.sources.items():
            if source_name not in regions:
                moved = source.elements(region) * source.bytes
                if moved > external.get(source_name, (0.0, source))[0]:
                    external[source_name] = moved, source
    footprint += sum(moved for moved, _ in external.values())
    total = math.prod(shape) * members[root].bytes
    outer += 2 * math.prod(part) * members[root].bytes / read_rate(total, target)
    outer += sum(moved / read_rate(s.total, target) for moved, s in external.values())
    if footprint > model.l1_bytes / 2:
        near = footprint <= model.l2_bytes * 3 / 4
        outer += inner / (model.l2_bytes_per_cycle if near else read_rate(
            max(footprint * target.threads, model.l2_bytes), target))  # fmt: skip
    one = overlapped(busy, outer, model)
    work = math.prod(shape) * members[root].bytes
    if work < model.parallel_bytes and not order:
        return count * one
    return -(-count // target.threads) * one + model.fork_join_cycles


def _sources(body: StageBody) -> dict[str, Source]:
    """The reads of a stage from each other stage, as functions of the part's size."""
    axes = [a.var for a in body.op.axis]
    numbers = {v: i for i, v in enumerate(axes)}
    contexts = [_probe(axes, [expected(a.extent) for a in body.op.axis], n) for n in PROBES]
    spans: dict[Expr, tuple[tuple[int | None, int | None], ...]] = {}
    by_source: dict[str, list[tuple[Load, ...]]] = {}
    for read in body.reads:
        by_source.setdefault(read.source, []).append((read.load,))
    result: dict[str, Source] = {}
    for source, loads in by_source.items():
        tensor = loads[0][0].buffer
        assert isinstance(tensor, Tensor)
        extents = []
        for d, n in enumerate(tensor.shape):
            indices = list(dict.fromkeys(load.indices[d] for (load,) in loads))
            for index in indices:
                if index not in spans:
                    spans[index] = tuple(
                        (i.lo, i.hi) for c in contexts for i in (interval(index, c),)
                    )
            extents.append(_extent(indices, spans, numbers, expected(n)))
        whole = expected_size(tensor.shape) * tensor.dtype.bytes
        result[source] = Source(tuple(extents), tensor.dtype.bytes, whole)
    return result


def _probe(axes: Sequence[Var], extents: Sequence[int], size: int) -> Context:
    """A context in which each axis has `size` adjacent values in its middle, far from borders."""
    ctx = EMPTY
    for v, n in zip(axes, extents, strict=True):
        start = max(n // 2 - size, 0) // size * size
        ctx = ctx.with_interval(v, make(start, start + size - 1))
    return ctx


def _extent(
    indices: Sequence[Expr],
    spans: Mapping[Expr, tuple[tuple[int | None, int | None], ...]],
    numbers: Mapping[Var, int],
    most: int,
) -> Extent:
    """The elements that reads at `indices` need together, along a dimension of extent `most`."""
    whole = Extent(None, 0.0, most, most)
    along = {numbers[v] for i in indices for v in free_vars(i) if v in numbers}
    if len(along) > 1:
        return whole
    sizes = []
    for k in range(len(PROBES)):
        los, his = zip(*(spans[i][k] for i in indices), strict=True)
        if None in los or None in his:
            return whole
        sizes.append(max(his) - min(los) + 1)
    slope = (sizes[1] - sizes[0]) / (PROBES[1] - PROBES[0])
    return Extent(next(iter(along), None), slope, sizes[0] - slope * PROBES[0], most)
