"""Planning of the workspace: offsets of a kernel's heap buffers, from the buffers' live ranges.

Buffers allocated outside parallel loops share one region of `shared_bytes`, which the caller passes
to the kernel.  Buffers allocated inside a parallel loop exist once per thread, in a region of
`per_thread_bytes`.  A kernel run by n threads needs `shared_bytes + n * per_thread_bytes`.

A buffer's live range extends from its first use to its last.  If a loop inside the allocation uses
the buffer, the live range includes the whole loop.  Buffers whose live ranges don't overlap may
share bytes.  Buffers are placed in order of decreasing size, each at the lowest free offset.
Buffers of symbolic size follow all others and share no bytes.  Their offsets and sizes are
expressions of the kernel's scalar parameters.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

from tilesmith.ir.expr import Const, Expr, free_vars, symbols
from tilesmith.ir.loop_tables import LOOP_KINDS
from tilesmith.ir.symbols import as_dim
from tilesmith.ir.types import Dim
from tilesmith.support.errors import InternalError

from ..nodes import Allocate, Buffer, For, Func, Stmt, Store
from ..visit import children, own_exprs

ALIGNMENT = 64
_NEVER = 1 << 62


@dataclass(frozen=True, slots=True)
class Workspace:
    """Offsets of heap buffers.

    offsets: byte offset of each buffer in its region.
    per_thread: the buffers that exist once for each thread.
    shared_bytes: size of the shared region.
    per_thread_bytes: size of each thread's region.
    """

    offsets: dict[Buffer, Dim]
    per_thread: frozenset[Buffer]
    shared_bytes: Dim
    per_thread_bytes: Dim

    def overlapping(self) -> frozenset[Buffer]:
        """Buffers that share bytes with another buffer whose live range is disjoint."""
        placed = [
            (b, o, o + buffer_bytes(b), b in self.per_thread)
            for b, o in self.offsets.items()
            if isinstance(o, int) and is_constant(b)
        ]
        sharing: set[Buffer] = set()
        for n, (a, start, end, inside) in enumerate(placed):
            for b, first, last, other in placed[:n]:
                if inside is other and start < last and first < end:
                    sharing |= {a, b}
        return frozenset(sharing)


def constant_extent(extent: Expr | int, buffer: Buffer) -> int:
    """The extent as a number.  Raises InternalError if it is symbolic."""
    if isinstance(extent, Const):
        return int(extent.value)
    if isinstance(extent, int):
        return extent
    raise InternalError(
        f"workspace: expected a constant shape of the allocation {buffer.name}, found {extent}"
    )


def element_count(buffer: Buffer) -> int:
    """Number of elements of a buffer of constant shape."""
    return prod(constant_extent(extent, buffer) for extent in buffer.shape)


def buffer_bytes(buffer: Buffer) -> int:
    """Size in bytes of a buffer of constant shape, rounded up to the alignment."""
    size = buffer.dtype.bytes * element_count(buffer)
    return -(-max(size, 1) // ALIGNMENT) * ALIGNMENT


def is_constant(buffer: Buffer) -> bool:
    """Whether the size of a buffer is constant."""
    return all(isinstance(n, (int, Const)) for n in buffer.shape)


def _symbolic_bytes(buffer: Buffer) -> Dim:
    """Size in bytes of a buffer of any shape, rounded up to the alignment."""
    size: Dim = buffer.dtype.bytes
    for extent in buffer.shape:
        size = size * extent
    return as_dim((size + (ALIGNMENT - 1)) // ALIGNMENT * ALIGNMENT)


def plan_workspace(func: Func) -> Workspace:
    """Offsets for all heap allocations of `func`.

    Raises InternalError if a size depends on anything but the scalar parameters.
    """
    lives = _Lifetimes()
    lives.visit(func.body, inside=False)
    offsets: dict[Buffer, int] = {}
    sizes = {False: 0, True: 0}
    constant = [b for b in lives.spans if is_constant(b)]
    for buffer in sorted(constant, key=buffer_bytes, reverse=True):
        size, inside = buffer_bytes(buffer), buffer in lives.per_thread
        taken = sorted(
            (o, o + buffer_bytes(b))
            for b, o in offsets.items()
            if (b in lives.per_thread) is inside and lives.meet(b, buffer)
        )
        offset = 0
        for start, end in taken:
            if offset + size <= start:
                break
            offset = max(offset, end)
        offsets[buffer] = offset
        sizes[inside] = max(sizes[inside], offset + size)
    places: dict[Buffer, Dim] = {**offsets}
    ends: dict[bool, Dim] = {**sizes}
    for buffer in lives.spans:
        if buffer not in offsets:
            _check_known(buffer, func)
            inside = buffer in lives.per_thread
            places[buffer] = ends[inside]
            ends[inside] = as_dim(ends[inside] + _symbolic_bytes(buffer))
    return Workspace(places, frozenset(lives.per_thread), ends[False], ends[True])


def _check_known(buffer: Buffer, func: Func) -> None:
    for extent in buffer.shape:
        if isinstance(extent, Expr) and not free_vars(extent) <= set(func.params):
            raise InternalError(
                f"workspace: expected a shape of the allocation {buffer.name} that the parameters "
                f"of {func.name} determine, found {extent}"
            )


class _Loop:
    __slots__ = ("start", "used")

    def __init__(self, start: int) -> None:
        self.start = start
        self.used: set[Buffer] = set()
        """Buffers used in this loop, and allocated outside it but inside the next outer loop."""


class _Lifetimes:
    """Finds the live ranges of each heap buffer: a span of statement numbers for each
    allocation.
    """

    def __init__(self) -> None:
        self.spans: dict[Buffer, list[list[int]]] = {}
        self.per_thread: set[Buffer] = set()
        self._clock = 0
        self._loops: list[_Loop] = []
        self._depth: dict[Buffer, int] = {}

    def meet(self, a: Buffer, b: Buffer) -> bool:
        """Whether live ranges of both buffers overlap."""
        return any(p[0] <= q[1] and q[0] <= p[1] for p in self.spans[a] for q in self.spans[b])

    def visit(self, stmt: Stmt, inside: bool) -> None:
        waiting = [stmt]
        while waiting:
            s = waiting.pop()
            self._clock += 1
            for e in own_exprs(s):
                for symbol in symbols(e):
                    if isinstance(symbol, Buffer):
                        self.use(symbol)
            if isinstance(s, Store):
                self.use(s.buffer)
            elif isinstance(s, Allocate) and s.buffer.scope == "heap":
                # Copies of an allocation have the same buffer; each of them has its own live range.
                self.spans.setdefault(s.buffer, []).append([_NEVER, -1])
                self._depth[s.buffer] = len(self._loops)
                if inside:
                    self.per_thread.add(s.buffer)
            elif isinstance(s, For):
                self.loop(s, inside)
                continue
            waiting += reversed(children(s))

    def loop(self, stmt: For, inside: bool) -> None:
        self._loops.append(_Loop(self._clock))
        self.visit(stmt.body, inside or LOOP_KINDS[stmt.kind].is_threaded)
        self._clock += 1
        loop = self._loops.pop()
        for buffer in loop.used:
            self.extend(buffer, loop.start, self._clock)

    def use(self, buffer: Buffer) -> None:
        depth = self._depth.get(buffer)
        if depth is None:
            return
        if depth < len(self._loops):
            self._loops[depth].used.add(buffer)
        else:
            self.extend(buffer, self._clock, self._clock)

    def extend(self, buffer: Buffer, first: int, last: int) -> None:
        span = self.spans[buffer][-1]
        span[0], span[1] = min(span[0], first), max(span[1], last)
