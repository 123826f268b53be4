"""The work of a kernel, read from its final loop IR.

Only the structure of the code counts, not the operator it came from.  So the kernels of every
strategy can be judged.
"""

from __future__ import annotations

from collections.abc import Mapping

from tilesmith.ir.target import Target
from tilesmith.loop.nodes import Buffer, Func
from tilesmith.perf.work import LoopBody, ParallelRegion, Stream, Work

from .count import RegionCount, count_kernel
from .footprint import Footprints, Moved, buffer_size


def work_of(func: Func, target: Target) -> Work:
    """The work of a kernel in final form (after the loop passes and `expand_math`)."""
    arguments = {b: i for i, b in enumerate(func.buffers)}
    prints = Footprints()
    regions, flops = [], 0.0
    touched: dict[Buffer, float] = {}
    for r in count_kernel(func, target):
        flops += sum(s.count.flops * s.trips for s in r.scopes)
        for b, m in prints.of(r.root).items():
            if b in arguments:
                touched[b] = min(touched.get(b, 0.0) + m.read + m.write, buffer_size(b))
        made = _region(r, arguments, prints, target)
        if made.bodies:
            regions.append(made)
    return Work(flops, sum(touched.values()), tuple(regions))


def _region(
    r: RegionCount, arguments: Mapping[Buffer, int], prints: Footprints, target: Target
) -> ParallelRegion:
    bodies = []
    for s in r.scopes:
        c = s.count
        if c.issued or c.slow:
            bodies.append(
                LoopBody(
                    s.trips, s.entries, c.fma, c.alu, c.slow, c.load, c.store, c.issued, c.chain
                )
            )
    levels = [prints.of(r.root)]
    levels += [prints.traffic(r.root, c) for c in target.model.cache_bytes]
    iteration = prints.of(r.root.loops[0], iteration=True) if r.extent > 1 and r.root.loops else {}
    streams = []
    for b, whole in levels[0].items():
        moved = [level.get(b, Moved()) * r.entries for level in levels]
        shared = b in iteration and iteration[b].read >= whole.read > 0
        pairs = [(m.read, m.write) for m in moved]
        streams.append(Stream(arguments.get(b, -1), shared, *pairs))
    return ParallelRegion(r.extent, r.entries, tuple(bodies), tuple(streams))
