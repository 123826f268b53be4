"""Where a kernel's heap buffers live.

Buffers allocated outside parallel loops share one region, `shared_bytes` long, that the caller
hands to the kernel. Those inside a parallel loop exist once per thread: each thread owns
`per_thread_bytes` of the runtime's scratch. Lifetimes nest, so offsets are given out as on a stack:
buffers of sibling statements reuse the same bytes.
"""

from __future__ import annotations

from dataclasses import dataclass

from tilesmith.ir.expr import Const, Expr
from tilesmith.loop.nodes import Allocate, Buffer, For, Func, If, LetStmt, Seq, Stmt
from tilesmith.support.errors import InternalError

ALIGNMENT = 64


@dataclass(frozen=True, slots=True)
class Workspace:
    """Byte offsets of heap buffers in their region, and the two regions' sizes."""

    offsets: dict[Buffer, int]
    per_thread: frozenset[Buffer]
    shared_bytes: int
    per_thread_bytes: int

    def overlapping(self) -> frozenset[Buffer]:
        """Buffers that share bytes with another one (at another time)."""
        found: set[Buffer] = set()
        for inside in (True, False):
            ranges = sorted(
                (
                    (o, o + buffer_bytes(b), b)
                    for b, o in self.offsets.items()
                    if (b in self.per_thread) is inside
                ),
                key=lambda r: r[:2],
            )
            end, last = -1, None
            for start, stop, b in ranges:
                if start < end and last is not None:
                    found |= {b, last}
                if stop > end:
                    end, last = stop, b
        return frozenset(found)


def buffer_bytes(buffer: Buffer) -> int:
    """Size of a buffer of constant shape, rounded up to the alignment.  Raises InternalError for
    symbolic shapes.
    """
    n = buffer.dtype.bytes
    for d in buffer.shape:
        n *= constant_extent(d, buffer)
    return -(-max(n, 1) // ALIGNMENT) * ALIGNMENT


def constant_extent(d: Expr | int, buffer: Buffer) -> int:
    if isinstance(d, Const):
        return int(d.value)
    if isinstance(d, int):
        return d
    raise InternalError(
        f"allocation of {buffer.name}: expected a constant shape, found the extent {d}"
    )


def plan_workspace(func: Func) -> Workspace:
    """Offsets for all heap allocations of `func`."""
    offsets: dict[Buffer, int] = {}
    inside: set[Buffer] = set()
    tops = {False: 0, True: 0}

    def visit(s: Stmt, parallel: bool, used: dict[bool, int]) -> None:
        while True:
            if isinstance(s, Allocate):
                if s.buffer.scope == "heap":
                    offsets[s.buffer] = used[parallel]
                    if parallel:
                        inside.add(s.buffer)
                    used = {**used, parallel: used[parallel] + buffer_bytes(s.buffer)}
                    tops[parallel] = max(tops[parallel], used[parallel])
                s = s.body
            elif isinstance(s, For):
                parallel = parallel or s.kind == "parallel"
                s = s.body
            elif isinstance(s, LetStmt):
                s = s.body
            elif isinstance(s, If):
                if s.otherwise is not None:
                    visit(s.otherwise, parallel, used)
                s = s.then
            elif isinstance(s, Seq):
                for part in s.stmts:
                    visit(part, parallel, used)
                return
            else:
                return

    visit(func.body, False, {False: 0, True: 0})
    return Workspace(offsets, frozenset(inside), tops[False], tops[True])
