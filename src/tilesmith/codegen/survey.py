"""The ways in which a kernel uses its buffers, collected in one walk before code generation."""

from __future__ import annotations

from dataclasses import dataclass, field

from tilesmith.ir.expr import Expr, Load, reached, type_text
from tilesmith.ir.intrinsics import needs_guard
from tilesmith.loop import nodes as loop
from tilesmith.loop.nodes import Buffer, Stmt
from tilesmith.loop.visit import own_exprs, walk
from tilesmith.support.errors import ScheduleError

from .indices import column_access, constant_access


def moved(s: loop.Store) -> Buffer | None:
    """The buffer whose elements a store copies unchanged; None for other stores."""
    value = s.value
    if isinstance(value, Load) and isinstance(value.buffer, Buffer):
        return value.buffer if value.buffer.dtype is s.buffer.dtype else None
    return None


def _of(place: Expr) -> set[Buffer]:
    """A set with the buffer from which a load reads; an empty set for other expressions."""
    buffer = place.buffer if isinstance(place, Load) else None
    return {buffer} if isinstance(buffer, Buffer) else set()


@dataclass(slots=True)
class Survey:
    """A kernel's uses of its buffers.

    written: buffers that the kernel, or code that it calls, may store to.
    loaded: buffers that are loaded from.
    accesses: the accesses to register buffers, all constant, as (first element, lanes).
    windows: register buffers in which reads of columns begin at different rows.
    computed: register buffers to which computed elements are stored, not only copied ones.
    asserts: whether the kernel may stop early.
    checks: whether the kernel checks indices.
    """

    written: set[Buffer] = field(default_factory=set)
    loaded: set[Buffer] = field(default_factory=set)
    accesses: dict[Buffer, set[tuple[int, int]]] = field(default_factory=dict)
    windows: set[Buffer] = field(default_factory=set)
    computed: set[Buffer] = field(default_factory=set)
    asserts: bool = False
    checks: bool = False
    _seen: set[Expr] = field(default_factory=set)
    # For each buffer, the top row of the first column that was read.
    _tops: dict[Buffer, int] = field(default_factory=dict)

    def statement(self, stmt: Stmt) -> None:
        for s in walk(stmt):
            self._statement(s)

    def _statement(self, s: Stmt) -> None:
        """Record the uses by a statement itself, without the statements inside it."""
        if isinstance(s, loop.Store):
            self.written.add(s.buffer)
            for i in s.indices:
                self.expression(i)
                if s.buffer.scope == "register":
                    self._access(s.buffer, i)
                    if moved(s) is None:
                        self.computed.add(s.buffer)
            self.expression(s.value)
            if s.mask is not None:
                self.expression(s.mask)
        elif isinstance(s, loop.Reinterpret):
            # The two buffers share memory: a store to either changes both.
            self.written |= {s.buffer, *_of(s.place)}
            self.expression(s.place)
        elif not isinstance(s, loop.Allocate):
            if isinstance(s, loop.CopyBytes):
                self.written |= _of(s.to)
            elif isinstance(s, (loop.CallFunction, loop.CallHost, loop.Grow, loop.Point)):
                self.written |= set().union(*map(_of, own_exprs(s)))
            elif isinstance(s, loop.Locate):
                self.written.add(s.buffer)  # other code may write to it through other pointers
            self.asserts |= isinstance(s, (loop.Assert, loop.Return))
            for e in own_exprs(s):
                self.expression(e)

    def expression(self, e: Expr) -> None:
        for node in reached([e], seen=self._seen):
            if isinstance(node, Load) and isinstance(node.buffer, Buffer):
                self.loaded.add(node.buffer)
                if node.buffer.scope == "register":
                    self._read(node.buffer, node.indices)
            elif needs_guard(node):
                self.checks = True

    def _read(self, buffer: Buffer, indices: tuple[Expr, ...]) -> None:
        for i in indices:
            column = column_access(i, i.lanes)
            if column is None:
                self._access(buffer, i)
            else:
                self.accesses.setdefault(buffer, set()).update(column[1])
                top = column[1][0][0]
                if self._tops.setdefault(buffer, top) != top:
                    self.windows.add(buffer)

    def _access(self, buffer: Buffer, index: Expr) -> None:
        access = constant_access(index, index.lanes)
        if access is None:
            raise ScheduleError(
                f"{buffer.name} is in registers, and is read or written there with a "
                f"{type(index).__name__} of {type_text(index)}; expected a constant, or "
                "neighbouring elements from a constant on, once loops are unrolled and vectorised: "
                "make the vectorised axis the innermost one of its memory with transform_layout, "
                "or set_scope('stack')"
            )
        self.accesses.setdefault(buffer, set()).add(access)
