"""Loop kinds and buffer scopes of loop IR, each declared once.

Verifier, parser, printer, schedule steps, loop passes and code generation use the properties below
instead of lists of names.  A new kind or scope needs its name in the `Literal`, its row, and code
in the writer of each target.  The tables stand beside the intrinsics, since the text of expressions
must not use the words of loops as names.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from tilesmith.support.errors import InternalError

ForKind = Literal[
    "serial", "parallel", "vectorized", "unrolled",
    "blockIdx.x", "blockIdx.y", "blockIdx.z", "threadIdx.x", "threadIdx.y", "threadIdx.z",
    "vthread",
]  # fmt: skip
Scope = Literal["param", "heap", "shared", "fragment", "stack", "register"]
Level = Literal["", "block", "thread"]
Owner = Literal["", "block", "warp", "thread"]


@dataclass(frozen=True, slots=True)
class LoopKind:
    """A way to run the iterations of a loop.

    name: its name in `For.kind`.
    word: its word in the text of loop IR.
    is_ordered: an iteration starts after the preceding one has ended.
    is_expanded: a pass replaces the loop by copies or lanes of its body before stage "final".  Its
        extent must be constant, and its variable becomes constants.
    level: "block" if iterations are the blocks of a launch on a device; "thread" if they are the
        threads of a block.
    is_virtual: iterations are virtual threads, independent and each with its own buffers.  One
        thread runs them; it may run a statement in all iterations before the next statement.
    """

    name: ForKind
    word: str
    is_ordered: bool
    is_expanded: bool
    level: Level = ""
    is_virtual: bool = False

    @property
    def is_threaded(self) -> bool:
        """Iterations run at the same time: in several threads, or blocks of threads."""
        return not self.is_ordered and not self.is_expanded


@dataclass(frozen=True, slots=True)
class BufferScope:
    """The memory of a buffer.

    name: its name in `Buffer.scope` and in the text of loop IR.
    is_allocated: an `Allocate` makes the memory; otherwise the caller of the kernel owns it.
    is_sized: the size must be constant.
    is_addressed: the elements have addresses.  Otherwise all indices must be constants once loops
        are expanded.
    owner: what has a buffer of its own: each thread, each warp, each block of threads, or else the
        kernel.  A warp consists of the threads of a block that differ only in `threadIdx.x`.
    """

    name: Scope
    is_allocated: bool
    is_sized: bool
    is_addressed: bool
    owner: Owner = ""


LOOP_KINDS: dict[str, LoopKind] = {kind.name: kind for kind in (
    LoopKind("serial", "range", is_ordered=True, is_expanded=False),  # in order
    LoopKind("parallel", "parallel", is_ordered=False, is_expanded=False),  # divided among threads
    LoopKind("vectorized", "vectorized", is_ordered=False, is_expanded=True),  # in lanes of vectors
    LoopKind("unrolled", "unrolled", is_ordered=True, is_expanded=True),  # copies of the body
    LoopKind("blockIdx.x", "block_x", is_ordered=False, is_expanded=False, level="block"),
    LoopKind("blockIdx.y", "block_y", is_ordered=False, is_expanded=False, level="block"),
    LoopKind("blockIdx.z", "block_z", is_ordered=False, is_expanded=False, level="block"),
    LoopKind("threadIdx.x", "thread_x", is_ordered=False, is_expanded=False, level="thread"),
    LoopKind("threadIdx.y", "thread_y", is_ordered=False, is_expanded=False, level="thread"),
    LoopKind("threadIdx.z", "thread_z", is_ordered=False, is_expanded=False, level="thread"),
    LoopKind("vthread", "vthread", is_ordered=True, is_expanded=False, is_virtual=True),
)}  # fmt: skip

BOUND: dict[str, ForKind] = {k.name: k.name for k in LOOP_KINDS.values() if k.level or k.is_virtual}
"""The kinds that bind a loop to an index of a block, of a thread or of a virtual thread."""

BLOCKS = tuple(k.name for k in LOOP_KINDS.values() if k.level == "block")
THREADS = tuple(k.name for k in LOOP_KINDS.values() if k.level == "thread")
"""The loop kinds for the x, y and z indices of blocks, and of the threads of a block."""

MOST_LANES = 1 << 12
"""Upper bound on the lanes of a vector: above any machine's, and small enough for LLVM."""

WAVE_OPERATIONS = "add", "mul", "min", "max"
"""The operations by which threads of a wave combine the values that they exchange."""

SCOPES: dict[str, BufferScope] = {scope.name: scope for scope in (
    BufferScope("param", is_allocated=False, is_sized=False, is_addressed=True),  # the caller's
    BufferScope("heap", is_allocated=True, is_sized=False, is_addressed=True),  # workspace
    BufferScope("shared", is_allocated=True, is_sized=True, is_addressed=True, owner="block"),
    BufferScope("fragment", is_allocated=True, is_sized=True, is_addressed=False, owner="warp"),
    BufferScope("stack", is_allocated=True, is_sized=True, is_addressed=True, owner="thread"),
    BufferScope("register", is_allocated=True, is_sized=True, is_addressed=False, owner="thread"),
)}  # fmt: skip

ALLOCATED: dict[str, Scope] = {s.name: s.name for s in SCOPES.values() if s.is_allocated}
"""The scopes that an `Allocate` or a schedule may name."""


def declare_scope(scope: BufferScope) -> BufferScope:
    """Add a row for memory that only some target has, such as an on-chip buffer of its own; the
    same object if the table has an equal row.

    Raises InternalError if the name has another row.
    """
    known = SCOPES.setdefault(scope.name, scope)
    if known != scope:
        raise InternalError(f"scope '{scope.name}' is declared as {known}, and again as {scope}")
    if scope.is_allocated:
        ALLOCATED[scope.name] = scope.name
    return known
