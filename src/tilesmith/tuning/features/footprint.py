"""Footprints, working sets, traffic and reuse of a nest's loops, per cache.

The footprint of an access is the set of elements that it touches while the loops of its statement's
path from number `p` on run.  Per dimension, these are `sum(|coefficient| * (extent - 1)) + 1`
elements, or the number of distinct indices if that is less.  In bytes, the footprint is the cache
lines of the runs that adjacent dimensions form together.

The working set of a loop is the set of bytes that all statements inside touch in one iteration.  A
cache that is large enough keeps the working set until the next iteration; then the loop fetches its
footprint once.  Otherwise each iteration fetches its own footprint (the model of `perf.footprint`).
"""

from __future__ import annotations

from functools import cached_property

from tilesmith.ir.expr import Expr
from tilesmith.ir.target import LINE_BYTES

from . import algebra as sym
from .algebra import Number
from .axes import Span
from .nest import Statement, SymbolicAccess, SymbolicLoop, SymbolicNest


class SymbolicFootprints:
    """Footprints, working sets and traffic of a nest, each cached."""

    def __init__(self, nest: SymbolicNest) -> None:
        self.nest = nest
        self._bytes: dict[tuple[SymbolicAccess, int], Number] = {}
        self._working: dict[SymbolicLoop, Number] = {}
        self._inside: dict[SymbolicLoop, list[tuple[Statement, int]]] = {}
        for s in nest.statements.values():
            for n, loop in enumerate(s.path):
                self._inside.setdefault(loop, []).append((s, n + 1))

    def elements(self, s: Statement, access: SymbolicAccess, p: int) -> Number:
        """Distinct elements that an access touches in the loops from `p` on."""
        return sym.product(d.distinct for d in self.nest.touched(s.stage.name, access, p))

    def bytes(self, s: Statement, access: SymbolicAccess, p: int) -> Number:
        """Bytes of the cache lines that an access touches in the loops from number `p` on.  0 if
        the value is in registers.
        """
        if access.in_registers:
            return 0
        key = (access, p)
        if key not in self._bytes:
            spans = self.nest.touched(s.stage.name, access, p)
            shape = self.nest.shape(access.tensor)
            self._bytes[key] = _lines(spans, shape, access.bytes)
        return self._bytes[key]

    def working_set(self, loop: SymbolicLoop) -> Number:
        """Bytes that one iteration of a loop touches, each tensor counted once."""
        if loop not in self._working:
            largest_of: dict[tuple[str, int], Number] = {}
            for s, p in self._inside[loop]:
                for a in s.accesses:
                    if not a.in_registers:
                        size = self.bytes(s, a, p)
                        known = largest_of.get(a.tensor)
                        largest_of[a.tensor] = size if known is None else sym.maximum(known, size)
            self._working[loop] = sym.total(largest_of.values())
        return self._working[loop]

    @cached_property
    def whole(self) -> Number:
        """Bytes of all tensors that the kernel touches."""
        sizes: dict[tuple[str, int], Number] = {}
        for s in self.nest.statements.values():
            for a in s.accesses:
                if not a.in_registers:
                    size = self.bytes(s, a, 0)
                    sizes[a.tensor] = sym.maximum(sizes.get(a.tensor, 0), size)
        return sym.total(sizes.values())

    def traffic(self, s: Statement, access: SymbolicAccess, cache: int) -> Number:
        """Bytes that an access moves into a cache of `cache` bytes during the whole kernel."""
        if access.in_registers:
            return 0
        n = len(s.path)
        moved = self.bytes(s, access, n)
        for p in reversed(range(n)):
            loop = s.path[p]
            if not isinstance(loop.extent, Expr) and loop.extent == 1:
                continue
            once = self.bytes(s, access, p)
            again = sym.maximum(sym.mul(moved, loop.trips), once)
            fits = sym.is_most(self.working_set(loop), cache)
            moved = sym.where(fits, once, again)
        return moved

    def kept(self, s: Statement, cache: int) -> Number:
        """Number of iterations of the innermost loops whose working sets all fit into the cache."""
        trips: Number = 1
        for loop in s.path:
            fits = sym.is_most(self.working_set(loop), cache)
            trips = sym.where(fits, sym.mul(trips, loop.extent), 1)
        return trips

    def reuse(self, s: Statement, access: SymbolicAccess) -> tuple[Number, Number]:
        """Reuse distance of an access in bytes (0 without reuse), and the number of times that each
        cache line is touched.
        """
        distance: Number = 0
        for p, loop in enumerate(s.path):
            again = sym.is_most(self.bytes(s, access, p), self.bytes(s, access, p + 1))
            several = not_one(loop.extent)
            seen = sym.where(several, self.working_set(loop), distance)
            distance = sym.where(again, seen, distance)
        times = sym.mul(sym.product(loop.extent for loop in s.path), access.bytes)
        return distance, sym.maximum(sym.div(times, sym.maximum(self.bytes(s, access, 0), 1)), 1)


def not_one(n: Number) -> sym.Truth:
    """Whether an extent is more than 1."""
    return sym.is_most(2, n)


def _lines(spans: list[Span], shape: tuple[Number, ...], size: int) -> Number:
    """Bytes of the cache lines that a box of elements of an array touches.

    The result is the least of several upper bounds.  The first counts one line per element.  Every
    other bound divides the dimensions into outer and inner ones.  For each index of the outer
    dimensions, it counts the lines from the first to the last element along the inner dimensions.
    Such a bound is smaller if neighbouring rows share lines, since rows are short or completely
    touched.
    """
    outer = [sym.product(s.distinct for s in spans[:d]) for d in range(len(spans) + 1)]
    lines = outer[-1]
    reach: Number = 1
    pitch: Number = 1
    for d in reversed(range(len(spans))):
        if not spans[d].is_still or d == len(spans) - 1:
            reach = sym.add(reach, sym.mul(sym.sub(spans[d].width, 1), pitch))
            lines = sym.minimum(
                lines, sym.mul(outer[d], sym.ceil_div(sym.mul(reach, size), LINE_BYTES))
            )
        pitch = sym.mul(pitch, shape[d])
    return sym.mul(lines, LINE_BYTES)
