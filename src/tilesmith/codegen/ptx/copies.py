"""Groups of asynchronous copies (see `loop.nodes.AsyncGroup`).

A store in a group becomes an asynchronous copy if an instruction copies that number of bytes from
global to shared memory.  A conditional copy may store zeros where its condition does not hold; it
then reads nothing.  All other stores are synchronous.  On a target without such instructions, every
store is synchronous.
"""

from __future__ import annotations

from math import copysign

from tilesmith.codegen.indices import flat_index
from tilesmith.codegen.statements import Statements
from tilesmith.codegen.tensor_code import Value
from tilesmith.ir.expr import Broadcast, Const, Expr, Load, Ramp, Select, const, reads_memory, same
from tilesmith.ir.loop_tables import SCOPES
from tilesmith.ir.target import Target
from tilesmith.loop.nodes import AsyncGroup, Buffer, If, Store, Wait
from tilesmith.strategy.intrinsics import async_copies


class Copies:
    """Writer of the groups of copies in one launch.  Methods that return a bool write `s` only if
    it is a copy.  They return whether they wrote it.
    """

    def __init__(self, target: Target) -> None:
        self._copies = async_copies(target)
        self._in_group = False

    def group(self, f: Statements, s: AsyncGroup) -> None:
        """Write the stores of a group, and the instruction that ends the group."""
        self._in_group = True
        f.statement(s.body)
        self._in_group = False
        if self._copies is not None:
            self._copies.commit(f.tensors.code())

    def wait(self, f: Statements, s: Wait) -> None:
        """Write the wait until all groups except the `s.pending` most recent ones are complete."""
        if self._copies is not None:
            self._copies.wait(f.tensors.code(), s.pending)

    def store(self, f: Statements, s: Store) -> bool:
        """Write `s` if it is an asynchronous copy."""
        return self._copied(f, s, s.value)

    def branch(self, f: Statements, s: If) -> None:
        """Write a branch: as one conditional copy if possible, else as a branch."""
        if not self._is_filled(f, s):
            f.plain(s)

    def _is_filled(self, f: Statements, s: If) -> bool:
        """Write `s` if it copies where its condition holds and stores zeros elsewhere."""
        copy, zeros = s.then, s.otherwise
        if not isinstance(copy, Store) or not isinstance(zeros, Store):
            return False
        filled = zeros.value.value if isinstance(zeros.value, Broadcast) else zeros.value
        alike = copy.buffer is zeros.buffer and same(copy.indices, zeros.indices)
        return alike and _is_zero(filled) and self._copied(f, copy, copy.value, s.cond)

    def _copied(self, f: Statements, s: Store, value: Expr, cond: Expr | None = None) -> bool:
        """Write `s`, which stores `value` where `cond` holds and zeros elsewhere, if it can be an
        asynchronous copy.  Returns whether it was written.
        """
        if not self._in_group or self._copies is None or s.mask is not None:
            return False
        if isinstance(value, Select) and cond is None and _is_zero(value.if_false):
            return value.cond.lanes == 1 and self._copied(f, s, value.if_true, value.cond)
        if not isinstance(value, Load) or value.mask is not None:
            return False
        source, size = value.buffer, value.lanes * value.dtype.bytes
        fits = isinstance(source, Buffer) and not SCOPES[source.scope].owner
        if not fits or SCOPES[s.buffer.scope].owner != "block" or size not in self._copies.sizes:
            return False
        first, start = (_first(flat_index(i), value.lanes) for i in (s.indices, value.indices))
        if first is None or start is None or (cond is not None and reads_memory(start)):
            return False  # where `cond` is false, the load in `start` may be out of bounds
        taken = None
        if cond is not None:
            chosen = f.emit(f"select i1 {f.value(cond)}, i32 {size}, i32 0")
            taken = Value("i32", chosen)
        assert isinstance(source, Buffer)
        to, origin = f.memory.address(s.buffer, first), f.memory.address(source, start)
        self._copies.copy(f.tensors.code(), Value("ptr", to), Value("ptr", origin), size, taken)
        return True


def _first(index: Expr, lanes: int) -> Expr | None:
    """The index of the first of contiguous elements; None for other accesses."""
    if lanes == 1:
        return index
    return index.base if isinstance(index, Ramp) and index.stride is const(1) else None


def _is_zero(e: Expr) -> bool:
    """Whether all bits of `e` are 0."""
    return isinstance(e, Const) and e.value == 0 and copysign(1, e.value) > 0
