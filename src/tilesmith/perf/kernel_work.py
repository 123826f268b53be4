"""The work of a kernel, read from its final loop IR.

The work depends on the code alone, not on the operator.  So kernels of different schedule rules can
be compared.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence, Set

from tilesmith.ir.expr import Load
from tilesmith.ir.target import Target
from tilesmith.loop.nodes import Buffer, Evaluate, Func
from tilesmith.loop.visit import walk
from tilesmith.perf.work import LoopBody, ParallelRegion, Stream, Work

from .count import RegionCount, count_kernel
from .footprint import Footprints, LoopDigit, Moved, Traffic, buffer_size, total


def work_of(func: Func, target: Target) -> Work:
    """The work of a kernel in final form (after the loop passes and `expand_math`)."""
    arguments = {b: i for i, b in enumerate(func.buffers)}
    prints = Footprints()
    ahead = _prefetched(func)
    regions: list[ParallelRegion] = []
    flops = 0.0
    touched: dict[Buffer, float] = {}
    for r in count_kernel(func, target):
        flops += sum(s.flops * s.trips for s in r.scopes)
        for b, m in prints.of(r.root).items():
            if b in arguments:
                touched[b] = min(touched.get(b, 0.0) + m.read + m.write, buffer_size(b))
        regions += _parts(r, arguments, prints, ahead, target)
    return Work(flops, sum(touched.values()), tuple(regions))


def _prefetched(func: Func) -> set[Buffer]:
    """The buffers that a kernel prefetches."""
    calls = (s.value for s in walk(func.body) if isinstance(s, Evaluate))
    sources = (a.buffer for c in calls for a in c.children if isinstance(a, Load))
    return {b for b in sources if isinstance(b, Buffer)}


def _parts(
    r: RegionCount,
    arguments: Mapping[Buffer, int],
    prints: Footprints,
    ahead: Set[Buffer],
    target: Target,
) -> Iterator[ParallelRegion]:
    """The region as a whole, if the footprint of an iteration stays in L1 until the next iteration.
    Otherwise one part for each of the consecutive loops in an iteration.
    """
    loop = r.root
    while len(loop.loops) == 1:
        loop = loop.loops[0]
    near = total(prints.of(loop, iteration=True)) <= target.model.l1_bytes
    parts = [r.root] if near or not loop.loops else loop.loops
    owner = {digit: part for part in parts for digit in part.walk()}
    caches = target.model.cache_bytes
    whole = prints.of(r.root)
    iteration = prints.of(r.root.loops[0], iteration=True) if r.extent > 1 and r.root.loops else {}
    during = {b: 1.0 if b in ahead else _during(r.root, b, prints) for b in whole}
    moved = {
        part: [{b: m * r.entries for b, m in level.items()} for level in levels]
        for part, levels in _divided(r.root, parts, prints, caches).items()
    }
    entries = r.entries
    for part in parts:
        bodies = [
            LoopBody(s.trips, s.entries, s.count)
            for s in r.scopes
            if owner.get(s.loop, parts[-1]) is part and (s.count.issued or s.count.slow)
        ]
        streams = []
        for b in moved[part][0]:
            shared = b in iteration and iteration[b].read >= whole[b].read > 0
            pairs = [(m.read, m.write) for m in (level.get(b, Moved()) for level in moved[part])]
            streams.append(Stream(arguments.get(b, -1), shared, during[b], *pairs))
        if bodies:
            yield ParallelRegion(r.extent, entries, tuple(bodies), tuple(streams))
            entries = 0.0


def _divided(
    root: LoopDigit, parts: Sequence[LoopDigit], prints: Footprints, caches: Sequence[int]
) -> dict[LoopDigit, list[Traffic]]:
    """For each part of a nest, its share of the footprint and of the traffic with each cache.

    Shares are in proportion to the footprint and traffic of each part by itself.  Bytes that no
    part touches belong to the last part.
    """
    by_part: dict[LoopDigit, list[Traffic]] = {part: [] for part in parts}
    for cache in (None, *caches):

        def of(loop: LoopDigit, cache: int | None = cache) -> Traffic:
            return prints.of(loop) if cache is None else prints.traffic(loop, cache)

        own = {part: of(part) for part in parts}
        for part in parts:
            mine: Traffic = {}
            for b, m in of(root).items():
                every = sum(_bytes(t, b) for t in own.values())
                share = _bytes(own[part], b) / every if every else float(part is parts[-1])
                if share:
                    mine[b] = m * share
            by_part[part].append(mine)
    return by_part


def _bytes(traffic: Traffic, buffer: Buffer) -> float:
    m = traffic.get(buffer, Moved())
    return m.read + m.write


def _during(loop: LoopDigit, buffer: Buffer, prints: Footprints) -> float:
    """Fraction of a loop's time in which it touches bytes of a buffer for the first time.  If all
    iterations of a loop touch the same bytes, only the first iteration counts.
    """
    share = 1.0
    while buffer in prints.of(loop):
        if _bytes(prints.of(loop, iteration=True), buffer) >= _bytes(prints.of(loop), buffer):
            share /= max(loop.trips, 1.0)
        if not loop.loops:
            break
        loop = max(loop.loops, key=lambda i: _bytes(prints.of(i), buffer))
    return share
