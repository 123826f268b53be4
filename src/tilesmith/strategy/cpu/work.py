"""What a kernel has to do, read off its final loop IR: how many instructions of each kind, and how
many bytes cross into each cache.

It is the structure of the code that counts, not which operator it came from, so that whatever a
strategy produces can be judged.  `cost` turns a `Work` into seconds on a measured machine.  A Work
is plain data: it is kept with the compiled kernel and predicts without the source model.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import astuple, dataclass
from typing import Any

from tilesmith.ir.target import Target
from tilesmith.loop.nodes import Buffer, Func

from .count import RegionCount, count_kernel
from .footprint import Footprints, Moved, buffer_size


@dataclass(frozen=True, slots=True)
class Body:
    """Straight-line code: the body of a loop without the loops inside it.

    `trips`: times it runs in all; `entries`: times its loop is entered.  Then per trip: `fma`,
    `alu`: vector instructions that multiply(-add), and other ones; `slow`: cycles of dividers and
    library calls; `load`, `store`: full-width vector accesses (narrow ones count as a half or
    more); `issued`: instructions of all kinds; `chain`: cycles of the longest dependency from one
    trip to the next.
    """

    trips: float
    entries: float
    fma: float
    alu: float
    slow: float
    load: float
    store: float
    issued: float
    chain: float


@dataclass(frozen=True, slots=True)
class Stream:
    """What a region moves of one buffer: `argument` is the number of the kernel's parameter, -1 for
    its own memory.  `footprint`: bytes that it touches; `l1`, `l2`, `l3`: bytes that cross into
    that cache; each as (read, written).  `shared`: every thread touches all of it.
    """

    argument: int
    shared: bool
    footprint: tuple[float, float]
    l1: tuple[float, float]
    l2: tuple[float, float]
    l3: tuple[float, float]


@dataclass(frozen=True, slots=True)
class Region:
    """A parallel loop of `extent` iterations entered `entries` times, or (extent 1) serial code."""

    extent: float
    entries: float
    bodies: tuple[Body, ...]
    streams: tuple[Stream, ...]


@dataclass(frozen=True, slots=True)
class Work:
    """A kernel's work.  `flops`: floating-point operations that its code executes; `bytes`: what it
    must read of its arguments and write to them at least.
    """

    flops: float
    bytes: float
    regions: tuple[Region, ...]

    def to_json(self) -> list[Any]:
        return [
            self.flops,
            self.bytes,
            [
                [
                    r.extent,
                    r.entries,
                    [[round(v, 4) for v in astuple(b)] for b in r.bodies],
                    [
                        [*astuple(s)[:2], *(list(map(round, p)) for p in astuple(s)[2:])]
                        for s in r.streams
                    ],
                ]
                for r in self.regions
            ],
        ]

    @staticmethod
    def from_json(m: Any) -> Work:
        """Raises ValueError or TypeError for anything that `to_json` does not write."""
        flops, moved, regions = m
        return Work(
            _number(flops),
            _number(moved),
            tuple(
                Region(
                    _number(extent),
                    _number(entries),
                    tuple(Body(*map(_number, b)) for b in bodies),
                    tuple(
                        Stream(
                            int(argument),
                            bool(shared),
                            *((_number(a), _number(b)) for a, b in pairs),
                        )
                        for argument, shared, *pairs in streams
                    ),
                )
                for extent, entries, bodies, streams in regions
            ),
        )


def _number(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value):
        raise ValueError(f"expected a number, found {value!r}")
    return value


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
) -> Region:
    bodies = []
    for s in r.scopes:
        c = s.count
        if c.issued or c.slow:
            bodies.append(
                Body(s.trips, s.entries, c.fma, c.alu, c.slow, c.load, c.store, c.issued, c.chain)
            )
    levels = [prints.of(r.root)]
    levels += [
        prints.traffic(r.root, c) for c in (target.l1_bytes, target.l2_bytes, target.l3_bytes)
    ]
    iteration = prints.of(r.root.loops[0], iteration=True) if r.extent > 1 and r.root.loops else {}
    streams = []
    for b, whole in levels[0].items():
        moved = [level.get(b, Moved()) * r.entries for level in levels]
        shared = b in iteration and iteration[b].read >= whole.read > 0
        pairs = [(m.read, m.write) for m in moved]
        streams.append(Stream(arguments.get(b, -1), shared, *pairs))
    return Region(r.extent, r.entries, tuple(bodies), tuple(streams))
