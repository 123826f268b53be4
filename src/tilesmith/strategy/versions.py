"""Kernels in two versions, for few and for many positions of an open extent.

A schedule that is good for many rows may be poor for one.  Where both occur in runs of one program,
such as prompts and the tokens that follow, a kernel holds both loop nests, and the extent decides.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from tilesmith.ir.expr import Expr, Load, Var, compare
from tilesmith.ir.symbols import expected
from tilesmith.loop.nodes import Buffer, Func, If, Stmt, Store
from tilesmith.loop.visit import map_stmt
from tilesmith.te.rewrite import map_loads


@dataclass(frozen=True, slots=True)
class Versions:
    """The open extent that tells few from many.

    extent: the symbol.
    most: the largest value that is few; 0: there is no version for few.
    few: the value for which the version for few is scheduled.
    has_one: whether another version is for the value 1 alone.  Its loops know that value, so it may
        fuse what stands around the extent.
    """

    extent: Var
    most: int
    few: int = 1
    has_one: bool = False

    @property
    def sizes(self) -> tuple[dict[Var, int], dict[Var, int]]:
        """Values of the symbol for which the versions for few and for many are scheduled."""
        return {self.extent: self.few}, {self.extent: max(expected(self.extent), 16 * self.most)}

    def joined(self, few: Func, many: Func) -> Func:
        """The kernel that has both; their parameters are of the same types."""
        return _either(compare("le", self.extent, self.most), few, many)

    def with_one(self, one: Func, others: Func) -> Func:
        """The kernel `others` that does as `one` where the extent is 1."""
        return _either(compare("eq", self.extent, 1), one, others)


def _either(condition: Expr, first: Func, second: Func) -> Func:
    """The kernel `second` that does as `first` where `condition` is true."""
    body = If(condition, _on_buffers(first, dict(zip(first.buffers, second.buffers))), second.body)
    return replace(second, body=body)


def _on_buffers(func: Func, new: dict[Buffer, Buffer]) -> Stmt:
    """The body of `func` on other parameters."""

    def load(e: Load) -> Expr:
        buffer = new.get(e.buffer)  # type: ignore[arg-type]  # a buffer: this is loop IR
        return e if buffer is None else Load(buffer, e.indices, e.mask)

    def store(s: Stmt) -> Stmt:
        if not isinstance(s, Store) or s.buffer not in new:
            return s
        return Store(new[s.buffer], s.indices, s.value, s.mask)

    return map_stmt(func.body, lambda e: map_loads((e,), load)[0], store)
