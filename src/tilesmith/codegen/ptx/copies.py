"""Groups of asynchronous copies (see `loop.nodes.AsyncGroup`).

A store in a group is such a copy if it moves as many bytes as an instruction can from global to
shared memory.  One that stores zeros where a condition does not hold is, too: it reads nothing
there.  Any other store happens at once, as all do on a target without such instructions.
"""

from __future__ import annotations

from math import copysign

from tilesmith.codegen.indices import flat_index
from tilesmith.codegen.module import Module
from tilesmith.codegen.tensor_code import TensorCode, Value
from tilesmith.ir.expr import Broadcast, Const, Expr, Load, Ramp, Select, const, reads_memory, same
from tilesmith.ir.loop_tables import SCOPES
from tilesmith.loop.launches import Launch
from tilesmith.loop.nodes import AsyncGroup, Buffer, If, Store, Wait
from tilesmith.strategy.intrinsics import async_copies

from .fragments import FragmentEmitter


class CopyEmitter(FragmentEmitter):
    def __init__(self, module: Module, launch: Launch) -> None:
        super().__init__(module, launch)
        self._copies = async_copies(module.target)
        self._in_group = False
        self.rules_of_statements[AsyncGroup] = self._async_group
        self.rules_of_statements[Wait] = self._wait

    def _async_group(self, s: AsyncGroup) -> None:
        self._in_group = True
        self.statement(s.body)
        self._in_group = False
        if self._copies is not None:
            self._copies.commit(TensorCode(self))

    def _wait(self, s: Wait) -> None:
        if self._copies is not None:
            self._copies.wait(TensorCode(self), s.pending)

    def store(self, s: Store) -> None:
        if not self._copied(s, s.value):
            super().store(s)

    def _if(self, s: If) -> None:
        if not self._is_filled(s):
            super()._if(s)

    def _is_filled(self, s: If) -> bool:
        """Write `s` if it is one copy, or zeros in its place."""
        copy, zeros = s.then, s.otherwise
        if not isinstance(copy, Store) or not isinstance(zeros, Store):
            return False
        filled = zeros.value.value if isinstance(zeros.value, Broadcast) else zeros.value
        alike = copy.buffer is zeros.buffer and same(copy.indices, zeros.indices)
        return alike and _is_zero(filled) and self._copied(copy, copy.value, s.cond)

    def _copied(self, s: Store, value: Expr, cond: Expr | None = None) -> bool:
        """Write the store of `value`, or of zeros where `cond` does not hold, if it is a copy."""
        if not self._in_group or self._copies is None or s.mask is not None:
            return False
        if isinstance(value, Select) and cond is None and _is_zero(value.if_false):
            return value.cond.lanes == 1 and self._copied(s, value.if_true, value.cond)
        if not isinstance(value, Load) or value.mask is not None:
            return False
        source, size = value.buffer, value.lanes * value.dtype.bytes
        fits = isinstance(source, Buffer) and not SCOPES[source.scope].owner
        if not fits or SCOPES[s.buffer.scope].owner != "block" or size not in self._copies.sizes:
            return False
        first, start = (_first(flat_index(i), value.lanes) for i in (s.indices, value.indices))
        if first is None or start is None or (cond is not None and reads_memory(start)):
            return False  # where the condition does not hold, nothing can be read for an index
        taken = None
        if cond is not None:
            chosen = self.emit(f"select i1 {self.value(cond)}, i32 {size}, i32 0")
            taken = Value("i32", chosen)
        assert isinstance(source, Buffer)
        to, at = self.address(s.buffer, first), self.address(source, start)
        self._copies.copy(TensorCode(self), Value("ptr", to), Value("ptr", at), size, taken)
        return True


def _first(index: Expr, lanes: int) -> Expr | None:
    """The first of neighbouring elements; None for others."""
    if lanes == 1:
        return index
    return index.base if isinstance(index, Ramp) and index.stride is const(1) else None


def _is_zero(e: Expr) -> bool:
    """Whether all bits of `e` are 0."""
    return isinstance(e, Const) and e.value == 0 and copysign(1, e.value) > 0
