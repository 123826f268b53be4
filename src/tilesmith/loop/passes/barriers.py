"""Barriers between accesses of a block's threads to memory that they share.

A barrier is placed before a statement that conflicts with an access since the last barrier.  Two
accesses to a buffer conflict if at least one of them writes.  A branch or a loop counts as one
statement.

Two accesses with the same index do not conflict if no part of the index has changed between them.
Then one thread makes both, since a store with the same index in two threads would itself be a race.
This does not hold for code that only some threads run.  A store does not conflict with itself in
another iteration: it writes each element once before a read.  A loop is analysed twice, the second
time as a later iteration.

A store to memory of several threads must be inside loops over all thread indices of the launch.
Otherwise threads with different indices would write the same elements.

Asynchronous copies are already followed by a wait and a barrier, which order them.  So this pass
adds barriers before these copies but not after them.

All threads of a block must reach a barrier.  So it is placed outside of all code that only some
threads run: branches and loops that depend on the index of a thread, and loops over fewer threads
than the block has.
"""

from __future__ import annotations

from dataclasses import replace

from tilesmith.ir.expr import Const, Expr, Load, Var, const, free_vars, post_order, same
from tilesmith.ir.loop_tables import LOOP_KINDS, SCOPES, THREADS
from tilesmith.support.errors import ScheduleError

from .. import nodes
from ..nodes import Buffer, Func, Stmt, seq
from ..text import head, names_the_rest
from ..visit import bound_vars, children, own_exprs, rebuild, rebuild_through, walk

_Index = tuple[Expr, ...] | None
"""Indices of an access; None if they may belong to another iteration or thread."""
_OF_WARP: _Index = (const(True),)
"""Stands for the index of any element of a warp's own memory.  A warp makes its accesses to this
memory in order.
"""
_Access = tuple[Buffer, nodes.Store | None, _Index]
"""The buffer of an access, the store (None for a load), and the index."""


def add_barriers(func: Func) -> Func:
    """`func` with barriers; the same object if its threads share no memory that is written.

    Raises ScheduleError if a barrier is needed where only some threads would reach it.
    """

    def inside(s: Stmt) -> Stmt:
        if isinstance(s, nodes.For) and LOOP_KINDS[s.kind].level:
            return _Block(s, func).result()
        return rebuild_through(s, inside, lambda e: e)

    body = inside(func.body)
    return func if body is func.body else replace(func, body=body)


class _Block:
    """Places the barriers of one launch, in the code of one block's threads."""

    def __init__(self, launch: nodes.For, func: Func) -> None:
        self.launch, self.func = launch, func
        self.threads: dict[str, int] = {}
        reads: set[Buffer] = set()
        writes: set[Buffer] = set()
        for s in walk(launch):
            reads |= {b for b, _ in _loads(s)}
            if isinstance(s, nodes.Store):
                writes.add(s.buffer)
            if isinstance(s, nodes.For) and LOOP_KINDS[s.kind].level == "thread":
                assert isinstance(s.extent, Const)
                size = int(s.extent.value)
                self.threads[s.kind] = max(self.threads.get(s.kind, 1), size)
        self.written = writes
        self.tracked = {b for b in reads & writes if SCOPES[b.scope].owner != "thread"}
        self.pending: dict[Buffer, set[tuple[nodes.Store | None, _Index]]] = {}
        self.varying: set[Var] = set()  # variables that differ between threads

    def check_owners(self, s: Stmt, bound: frozenset[str] = frozenset()) -> None:
        """Raises ScheduleError for a store to memory of several threads, unless loops over all
        thread indices are around the store.  `bound` has the kinds of the loops around `s`.
        """
        if isinstance(s, nodes.For):
            bound |= {s.kind}
        if isinstance(s, nodes.Store) and SCOPES[s.buffer.scope].owner != "thread":
            free = [k for k, n in self.threads.items() if n > 1 and k not in bound]
            if free:
                raise ScheduleError(
                    f"'{self.func.name}': the {self.threads[free[0]]} threads along {free[0]} all "
                    f"write the same elements of {s.buffer.name}: expected a loop around that is "
                    f"bound to {free[0]}, or none in the launch"
                )
        for x in children(s):
            self.check_owners(x, bound)

    def check_exchanges(self, s: Stmt, only: str = "") -> None:
        """Raises ScheduleError if only some of the threads along x reach an exchange of values.

        only: the statement around `s` that only some threads run; "" if all threads run `s`.
        """
        if isinstance(s, nodes.WaveReduce) and only:
            raise ScheduleError(
                f"'{self.func.name}': threads exchange their values of {s.value} inside of {only}, "
                "which only some of the threads along x run; let all of them run it (a factor that "
                "divides the extent, or tail='roundup')"
            )
        if isinstance(s, (nodes.LetStmt, nodes.WaveReduce)) and self.varies(s.value):
            self.varying.add(s.var)
        is_of_threads = isinstance(s, nodes.For) and LOOP_KINDS[s.kind].level == "thread"
        along_x = isinstance(s, nodes.For) and s.kind == THREADS[0]
        if isinstance(s, nodes.For) and along_x:
            self.varying.add(s.var)
        if (along_x or not is_of_threads) and self.is_divergent(s):
            only = only or f"'{head(s)}'"
        for x in children(s):
            self.check_exchanges(x, only)

    def result(self) -> Stmt:
        self.check_owners(self.launch)
        self.check_exchanges(self.launch)
        return self.stmt(self.launch) if self.tracked and self.threads else self.launch

    def stmt(self, s: Stmt) -> Stmt:
        """`s` with barriers.  All threads must run `s`."""
        if isinstance(s, nodes.Seq):
            return seq(*(self.stmt(x) for x in s.stmts))
        if isinstance(s, nodes.Barrier):
            self.pending.clear()
            return s
        if names_the_rest(s):  # the body of `s` is the rest of the block
            if isinstance(s, nodes.LetStmt) and self.varies(s.value):
                self.varying.add(s.var)
            # The result of an exchange differs between groups of threads.
            if isinstance(s, nodes.WaveReduce):
                self.varying.add(s.var)
            own = _own_accesses(s, self.tracked)
            before = self.before(own)
            self.add(own)
            return seq(*before, rebuild(s, self.stmt, lambda e: e))
        accesses = self.accesses(s)
        if isinstance(s, nodes.AsyncGroup):
            return seq(*self.before(accesses), s)
        if not accesses:
            return s
        before = self.before(accesses)
        if self.is_divergent(s):
            self.check_divergent(s)
            self.add(accesses)
            return seq(*before, s)
        return seq(*before, self.entered(s))

    def accesses(self, s: Stmt, some: bool = False, together: bool = False) -> list[_Access]:
        """The accesses to tracked buffers in `s`.

        some: whether only some threads run `s`.
        together: whether each warp runs `s` as one thread.
        """
        some = some or self.is_divergent(s)
        together = together or _is_of_warp(s)
        accesses: list[_Access] = []
        for b, store, index in _own_accesses(s, self.tracked):
            if together and SCOPES[b.scope].owner == "warp":
                index = _OF_WARP
            accesses.append((b, store, None if some and index is not _OF_WARP else index))
        return accesses + [a for x in children(s) for a in self.accesses(x, some, together)]

    def entered(self, s: Stmt) -> Stmt:
        self.add(_own_accesses(s, self.tracked))
        if isinstance(s, nodes.For):
            return self.loop(s)
        return self.branch(s) if isinstance(s, nodes.If) else s

    def before(self, found: list[_Access]) -> list[Stmt]:
        """A list with the barrier that is needed before the accesses; empty if none is."""
        if not self.conflicts(found):
            return []
        self.pending.clear()
        return [nodes.Barrier()]

    def add(self, found: list[_Access]) -> None:
        for buffer, store, index in found:
            self.pending.setdefault(buffer, set()).add((store, index))

    def conflicts(self, found: list[_Access]) -> bool:
        return any(
            (store or before) and store is not before and not _is_same(index, other)
            for buffer, store, index in found
            for before, other in self.pending.get(buffer, ())
        )

    def loop(self, s: nodes.For) -> nodes.For:
        if LOOP_KINDS[s.kind].level:
            if LOOP_KINDS[s.kind].level == "thread":
                self.varying.add(s.var)
            return replace(s, body=self.stmt(s.body))
        body = self.stmt(s.body)
        inside = {
            s.var,
            *(v for x in walk(s.body) for v in bound_vars(x)),
        }
        self.forget(inside)
        body = self.stmt(body)
        self.forget(inside)
        return replace(s, body=body)

    def forget(self, changed: set[Var]) -> None:
        """Forget indices that mention variables in `changed`, which have other values from here
        on.
        """
        for buffer, pending in self.pending.items():
            self.pending[buffer] = {
                (store, None if index is None or _mentions(index, changed) else index)
                for store, index in pending
            }

    def branch(self, s: nodes.If) -> nodes.If:
        outside = {b: set(uses) for b, uses in self.pending.items()}
        then = self.stmt(s.then)
        after, self.pending = self.pending, outside
        otherwise = None if s.otherwise is None else self.stmt(s.otherwise)
        for b, uses in after.items():
            self.pending.setdefault(b, set()).update(uses)
        return replace(s, then=then, otherwise=otherwise)

    def check_divergent(self, s: Stmt) -> None:
        """Raises ScheduleError if `s`, which only some threads run, needs a barrier inside it."""
        some = _Block(self.launch, self.func)
        some.varying = set(self.varying)
        if any(isinstance(x, nodes.Barrier) for x in walk(some.entered(s))):
            inside = {b.name for x in walk(s) for b, _, _ in _own_accesses(x, self.tracked)}
            raise ScheduleError(
                f"'{self.func.name}': threads need a barrier between writing and reading "
                f"{', '.join(sorted(inside))}, inside a branch or loop that only some of the "
                "threads of a block run; let all of them run it (a factor that divides the extent, "
                "or tail='roundup')"
            )

    def varies(self, e: Expr) -> bool:
        """Whether `e` may have different values in different threads: it depends on a thread's
        index, or on memory that threads write.
        """
        return bool(free_vars(e) & self.varying) or any(
            isinstance(n, Load) and n.buffer in self.written for n in post_order(e)
        )

    def is_divergent(self, s: Stmt) -> bool:
        if isinstance(s, nodes.For) and LOOP_KINDS[s.kind].level == "thread":
            assert isinstance(s.extent, Const)
            return s.extent.value != self.threads[s.kind]
        if isinstance(s, nodes.For):
            return self.varies(s.start) or self.varies(s.extent)
        return isinstance(s, nodes.If) and self.varies(s.cond)


def _is_of_warp(s: Stmt) -> bool:
    """Whether `s` is a loop that only the first thread of a warp runs, for the whole warp."""
    return isinstance(s, nodes.For) and s.kind == THREADS[0] and s.extent is const(1)


def _is_same(a: _Index, b: _Index) -> bool:
    return a is not None and b is not None and same(a, b)


def _mentions(index: tuple[Expr, ...], variables: set[Var]) -> bool:
    return any(free_vars(i) & variables for i in index)


def _loads(s: Stmt) -> list[tuple[Buffer, tuple[Expr, ...]]]:
    return [
        (n.buffer, n.indices)
        for e in own_exprs(s)
        for n in post_order(e)
        if isinstance(n, Load) and isinstance(n.buffer, Buffer)
    ]


def _own_accesses(s: Stmt, tracked: set[Buffer]) -> list[_Access]:
    """The accesses of `s` to tracked buffers, without those of statements inside it."""
    accesses: list[_Access] = [(b, None, index) for b, index in _loads(s) if b in tracked]
    if isinstance(s, nodes.Store) and s.buffer in tracked:
        accesses.append((s.buffer, s, s.indices))
    return accesses
