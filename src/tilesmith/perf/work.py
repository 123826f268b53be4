"""A kernel's work as plain data: the instructions of each kind that it executes, and the bytes that
move into each cache.

`kernel_work` reads it from the code; `cost` turns it into seconds on a measured machine.  Work is
stored with the compiled kernel, for predictions without the source model.  So this module imports
no part of the compiler.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, fields
from operator import attrgetter
from typing import Any

from .cycles import Instructions


@dataclass(frozen=True, slots=True)
class LoopBody:
    """Straight-line code: the body of a loop without the loops inside it.

    trips: total number of executions.
    entries: number of times that its loop is entered.
    each: instructions of one execution.
    """

    trips: float
    entries: float
    each: Instructions


@dataclass(frozen=True, slots=True)
class Stream:
    """Traffic of a region with one buffer.  Pairs are (read, written) bytes.

    argument: number of the kernel's parameter; -1 for memory that the kernel allocates.
    shared: whether every thread touches the whole buffer.
    during: fraction of the region's time in which the buffer is read for the first time.
    footprint: bytes that the region touches.
    l1, l2, l3: bytes that move into that cache.
    """

    argument: int
    shared: bool
    during: float
    footprint: tuple[float, float]
    l1: tuple[float, float]
    l2: tuple[float, float]
    l3: tuple[float, float]


@dataclass(frozen=True, slots=True)
class ParallelRegion:
    """A piece of a kernel: a parallel loop, or one of several consecutive loops inside a parallel
    loop, or serial code.  Serial code has extent 1.

    extent: iterations of the parallel loop.
    entries: number of times that threads are started for the region.  If several regions are loops
        in one parallel loop, only the first has entries.
    bodies: the loop bodies inside it.
    streams: the traffic of each buffer.
    """

    extent: float
    entries: float
    bodies: tuple[LoopBody, ...]
    streams: tuple[Stream, ...]


@dataclass(frozen=True, slots=True)
class Work:
    """A kernel's work.

    flops: floating-point operations that its code executes.
    bytes: lower bound on the bytes that it reads from its arguments and writes to them.
    regions: the parallel loops and serial parts, in order.
    """

    flops: float
    bytes: float
    regions: tuple[ParallelRegion, ...]

    def to_json(self) -> list[Any]:
        return [
            self.flops,
            self.bytes,
            [
                [
                    r.extent,
                    r.entries,
                    [_rounded(b.trips, b.entries, *_counts(b.each)) for b in r.bodies],
                    [
                        [s.argument, s.shared, s.during, *(list(map(round, p)) for p in _moved(s))]
                        for s in r.streams
                    ],
                ]
                for r in self.regions
            ],
        ]

    @staticmethod
    def from_json(m: Any) -> Work:
        """Read `to_json` output.  Raises ValueError or TypeError for other values."""
        flops, moved, regions = m
        return Work(
            _number(flops),
            _number(moved),
            tuple(
                ParallelRegion(
                    _number(extent),
                    _number(entries),
                    tuple(
                        LoopBody(trips, entered, Instructions(*counts))
                        for trips, entered, *counts in (map(_number, b) for b in bodies)
                    ),
                    tuple(
                        Stream(
                            int(argument),
                            bool(shared),
                            _number(during),
                            *((_number(a), _number(b)) for a, b in pairs),
                        )
                        for argument, shared, during, *pairs in streams
                    ),
                )
                for extent, entries, bodies, streams in regions
            ),
        )


_counts = attrgetter(*(f.name for f in fields(Instructions)))
_moved = attrgetter("footprint", "l1", "l2", "l3")


def _rounded(*values: float) -> list[float]:
    return [round(v, 4) for v in values]


def _number(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value):
        raise ValueError(f"expected a number, found {value!r}")
    return value
