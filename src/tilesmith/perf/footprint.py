"""Footprints of a loop nest in bytes, and the nest's traffic with each cache.

The nest is a tree of `LoopDigit`s with `Access`es in their bodies.  An access touches `base +
sum(coefficient * atom)` bytes for every value of its atoms.  Atoms are index expressions:
variables, and quotients and remainders of variables.  The footprint of a subtree is the set of
bytes that its accesses touch while its loops run, during one iteration of the loops around it.

Traffic is computed from the outermost loop inwards.  If the footprint of one iteration fits in the
cache, the loop fetches its whole footprint once.  Otherwise each iteration fetches the traffic of
the loop's body.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, field

from tilesmith.ir.expr import Expr, Var, post_order
from tilesmith.ir.interval import make
from tilesmith.ir.simplify import EMPTY
from tilesmith.ir.symbols import expected_size
from tilesmith.ir.target import LINE_BYTES
from tilesmith.loop.nodes import Buffer


@dataclass(slots=True, eq=False)
class Access:
    """Loads or stores of one buffer.

    buffer: the buffer.
    write: whether it stores.
    terms: (atom, coefficient in bytes) of the address.
    run: contiguous bytes at each offset.
    offsets: constant distances in bytes; one access may have several.
    """

    buffer: Buffer
    write: bool
    terms: tuple[tuple[Expr, int], ...]  # pairs (atom, stride in bytes)
    run: int
    offsets: set[int] = field(default_factory=set)


@dataclass(slots=True, eq=False)
class LoopDigit:
    """A loop of the nest.  The root is a loop of one iteration without a variable.

    If indices divide a loop variable by constants, these split the variable into digits, as in a
    mixed-radix number.  The loop is then represented by a nest with one loop for each digit.

    var: the loop's variable.
    whole: number of values of `var` in the whole loop.
    body: number of values of `var` in one iteration.
    trips: number of iterations.
    loops: the loops inside.
    accesses: the accesses in the body, by (buffer, write, terms, run).
    """

    var: Var | None
    whole: float
    body: float
    trips: float
    loops: list[LoopDigit] = field(default_factory=list)
    accesses: dict[object, Access] = field(default_factory=dict)

    def add(self, access: Access, offset: int) -> None:
        """Add an access to the body.  Accesses whose addresses differ by a constant are merged."""
        key = (access.buffer, access.write, access.terms, access.run)
        self.accesses.setdefault(key, access).offsets.add(offset)

    def walk(self) -> Iterable[LoopDigit]:
        yield self
        for inner in self.loops:
            yield from inner.walk()


@dataclass(frozen=True, slots=True)
class Moved:
    """Traffic of one buffer.

    read: bytes read.
    write: bytes written.
    """

    read: float = 0.0
    write: float = 0.0

    def __add__(self, other: Moved) -> Moved:
        return Moved(self.read + other.read, self.write + other.write)

    def __mul__(self, times: float) -> Moved:
        return Moved(self.read * times, self.write * times)


Traffic = dict[Buffer, Moved]


class Footprints:
    """Footprints and traffic of the loops of one nest."""

    def __init__(self) -> None:
        self._extents: dict[tuple[Expr, tuple[tuple[Var, float], ...]], int] = {}
        self._found: dict[tuple[LoopDigit, bool], Traffic] = {}

    def of(self, loop: LoopDigit, iteration: bool = False) -> Traffic:
        """Bytes that the whole loop touches.  If `iteration`: bytes that one iteration touches."""
        key = (loop, iteration)
        if key not in self._found:
            ranges: dict[Var, float] = {}
            for inner in loop.walk():
                if inner.var is not None:
                    n = inner.body if inner is loop and iteration else inner.whole
                    ranges[inner.var] = max(n, ranges.get(inner.var, 1))
            accesses = (a for inner in loop.walk() for a in inner.accesses.values())
            self._found[key] = self._union(accesses, ranges)
        return self._found[key]

    def traffic(self, loop: LoopDigit, cache: float) -> Traffic:
        """Bytes that move into and out of a cache of `cache` bytes."""
        whole = self.of(loop)
        missing = miss_rate(total(self.of(loop, iteration=True)), cache)
        if total(whole) <= cache or missing == 0.0:
            return whole
        own = self._union(loop.accesses.values(), {})
        moved = {b: m * loop.trips for b, m in own.items()}
        for inner in loop.loops:
            for b, m in self.traffic(inner, cache).items():
                moved[b] = moved.get(b, Moved()) + m * loop.trips
        return {b: m * missing + whole.get(b, Moved()) * (1 - missing) for b, m in moved.items()}

    def _union(self, accesses: Iterable[Access], ranges: dict[Var, float]) -> Traffic:
        seen: dict[object, tuple[Buffer, bool, float]] = {}
        for a in accesses:
            dims = [(c, n) for atom, c in a.terms if (n := self.extent(atom, ranges)) > 1]
            start = min(a.offsets)
            shape = (a.buffer, a.write, tuple(sorted(dims)), a.run, start)
            size = touched(a.run, dims, a.offsets)
            if shape not in seen or seen[shape][2] < size:
                seen[shape] = (a.buffer, a.write, size)
        result: Traffic = {}
        for buffer, write, size in seen.values():
            moved = Moved(write=size) if write else Moved(read=size)
            result[buffer] = result.get(buffer, Moved()) + moved
        for buffer, m in result.items():
            limit = buffer_size(buffer)
            result[buffer] = Moved(min(m.read, limit), min(m.write, limit))
        return result

    def extent(self, atom: Expr, ranges: dict[Var, float]) -> int:
        """Number of values of an atom while the variables in `ranges` vary and all others are
        fixed.
        """
        if isinstance(atom, Var):
            return max(round(ranges.get(atom, 1)), 1)
        known = tuple((v, n) for v, n in ranges.items() if n > 1)
        key = (atom, known)
        if key not in self._extents:
            context = EMPTY
            variables = [e for e in post_order(atom) if isinstance(e, Var)]
            for v in variables:
                last = max(math.ceil(ranges.get(v, 1)) - 1, 0)
                context = context.with_interval(v, make(0, last))
            values = context.interval(atom)
            n = math.prod(ranges.get(v, 1) for v in variables)
            if values.lo is not None and values.hi is not None:
                n = min(n, (values.hi - values.lo) // max(values.stride, 1) + 1)
            self._extents[key] = max(round(n), 1)
        return self._extents[key]


def total(traffic: Traffic) -> float:
    """Bytes of all buffers; bytes that are both read and written count once."""
    return sum(max(m.read, m.write) for m in traffic.values())


def miss_rate(size: float, cache: float) -> float:
    """Fraction of `size` bytes that miss a cache of `cache` bytes when all bytes are read again in
    the same order.

    A working set that fits never misses.  Random replacement keeps the fraction `h` of a larger
    working set, where `h = exp(-(1 - h) size / cache)`.
    """
    if size <= cache:
        return 0.0
    kept = 0.0
    for _ in range(60):
        kept = math.exp(-(1 - kept) * size / cache)
    return 1 - kept


def buffer_size(buffer: Buffer) -> float:
    """Bytes of a buffer in whole cache lines, at the expected sizes."""
    size = buffer.dtype.bytes * expected_size(buffer.shape)
    return float(math.ceil(size / LINE_BYTES) * LINE_BYTES)


def touched(run: int, dims: Iterable[tuple[int, int]], offsets: Iterable[int] = (0,)) -> float:
    """Bytes of the cache lines touched by runs of `run` bytes, repeated along `dims` (stride,
    count) at each offset.

    Runs that touch or overlap are joined.  Dimensions are joined if one continues the other, like
    the rows of overlapping windows.
    """
    # A run of `length` bytes without gaps is repeated along each [stride, count] in `strides`.
    length = run
    strides: list[list[int]] = []
    for distance, n in sorted((*_progressions(offsets), *((abs(c), n) for c, n in dims))):
        if n <= 1 or distance == 0:
            continue
        if distance <= max(length, LINE_BYTES):
            length += distance * (n - 1)
            continue
        for known in strides:
            if distance % known[0] == 0 and distance <= known[0] * known[1]:
                known[1] += distance // known[0] * (n - 1)
                break
        else:
            strides.append([distance, n])
    lines = max(math.ceil(length / LINE_BYTES), 1)
    return float(lines * LINE_BYTES * math.prod(n for _, n in strides))


def _progressions(offsets: Iterable[int]) -> list[tuple[int, int]]:
    """Dimensions, as pairs (stride, count), that cover `offsets`.  The offsets are expected to be
    arithmetic series, since unrolled loops give such offsets.
    """
    left = sorted(offsets)
    dims: list[tuple[int, int]] = []
    while len(left) > 1:
        step = left[1] - left[0]
        n = 1
        while n < len(left) and left[n] - left[n - 1] == step:
            n += 1
        heads = left[::n]
        dims.append((step, n))
        if len(left) % n or len(heads) == len(left):
            dims.append((left[-1] - left[0], math.ceil(len(left) / n)))
            break
        left = heads
    return dims
