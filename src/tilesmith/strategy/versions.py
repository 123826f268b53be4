"""Kernels in two versions, for few and for many values of a symbolic extent.

A schedule that is good for many rows may be poor for one row.  If a program runs many rows and
single rows (a prompt, then the tokens that follow), a kernel holds two loop nests, and the extent
selects one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from tilesmith.graph.bind import Binding
from tilesmith.graph.nodes import Graph
from tilesmith.ir.expr import Expr, Load, Var, compare, substitute
from tilesmith.ir.symbols import expected
from tilesmith.loop.nodes import Allocate, Buffer, Func, If, Stmt, Store
from tilesmith.loop.visit import map_stmt, walk
from tilesmith.te.rewrite import map_loads


@dataclass(frozen=True, slots=True)
class Versions:
    """The symbolic extent whose values select a version.

    extent: the symbol.
    most: the largest value that counts as few; 0: there is no version for few.
    few: the value for which the version for few is scheduled.
    many: the value for which the version for many is scheduled, if it exceeds the expected one; 0:
        sixteen times `most`.
    has_one: whether there is another version for the value 1.  In that version the extent is
        the constant 1, so the loops around it may be fused.
    """

    extent: Var
    most: int
    few: int = 1
    many: int = 0
    has_one: bool = False

    @property
    def sizes(self) -> tuple[dict[Var, int], dict[Var, int]]:
        """Values of the symbol for which the versions for few and for many are scheduled."""
        many = max(expected(self.extent), self.many or 16 * self.most)
        if self.extent.sizes is not None:
            many = min(many, self.extent.sizes.high)
        return {self.extent: self.few}, {self.extent: many}

    def joined(self, few: Func, many: Func) -> Func:
        """The kernel with both versions; their parameters have the same types."""
        return _either(compare("le", self.extent, self.most), few, many)

    def with_one(self, one: Func, others: Func) -> Func:
        """The kernel that runs `one` where the extent is 1, and `others` elsewhere."""
        return _either(compare("eq", self.extent, 1), one, others)


def expecting(body: Graph, sizes: Mapping[Var, int]) -> tuple[Graph, dict[Var, Var]]:
    """The fused group `body` with new symbols, whose expected sizes are `sizes`, and a map from the
    new symbols to the replaced symbols.

    A schedule for many rows must be lowered with many expected rows.  Otherwise the 16 rows of a
    tile would exceed the expected rows, and each tile would compute all rows.
    """
    new = {
        v: replace(v, sizes=replace(v.sizes, expected=min(max(n, v.sizes.low), v.sizes.high)))
        for v, n in sizes.items()
        if v.sizes is not None and n != v.sizes.expected
    }
    if not new:
        return body, {}
    return Binding({**new}).graph(body), {stand_in: v for v, stand_in in new.items()}


def renamed(func: Func, names: Mapping[Var, Var]) -> Func:
    """The kernel `func` with its symbols replaced."""
    if not names:
        return func
    exprs: dict[Expr, Expr] = {**names}

    def extent(n: Expr | int) -> Expr | int:
        return n if isinstance(n, int) else substitute(n, exprs)

    allocated = (s.buffer for s in walk(func.body) if isinstance(s, Allocate))
    new = {
        b: replace(b, shape=tuple(map(extent, b.shape)))
        for b in (*func.buffers, *allocated)
        if any(isinstance(n, Expr) for n in b.shape)
    }

    def allocation(s: Stmt) -> Stmt:
        if isinstance(s, Allocate) and s.buffer in new:
            return Allocate(new[s.buffer], s.body)
        return s

    params = tuple(new.get(p, p) if isinstance(p, Buffer) else names.get(p, p) for p in func.params)
    outputs = tuple(new.get(b, b) for b in func.outputs)
    body = map_stmt(func.body, lambda e: substitute(e, exprs), allocation)
    return Func(func.name, params, outputs, _on_buffers(body, new), func.attrs)


def _either(condition: Expr, first: Func, second: Func) -> Func:
    """The kernel that runs `first` where `condition` is true, and `second` elsewhere."""
    buffers = dict(zip(first.buffers, second.buffers))
    body = If(condition, _on_buffers(first.body, buffers), second.body)
    return replace(second, body=body)


def _on_buffers(body: Stmt, new: Mapping[Buffer, Buffer]) -> Stmt:
    """`body` with its accesses moved to other buffers."""

    def load(e: Load) -> Expr:
        buffer = new.get(e.buffer)  # type: ignore[arg-type]  # a buffer: this is loop IR
        return e if buffer is None else Load(buffer, e.indices, e.mask)

    def store(s: Stmt) -> Stmt:
        if not isinstance(s, Store) or s.buffer not in new:
            return s
        return Store(new[s.buffer], s.indices, s.value, s.mask)

    return map_stmt(body, lambda e: map_loads((e,), load)[0], store)
