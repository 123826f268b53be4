"""Loop IR to C with the vector extensions of GCC and Clang.

`write_vectors` turns a `Func` in its final stage, vectors included, into one C function with the
parameters of `emit.write`.  If a register buffer is always accessed by the same vectors, each of
these becomes a variable, which compilers keep in registers.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from itertools import pairwise

from tilesmith.codegen.kernel import Kernel
from tilesmith.codegen.lane_loads import known_lanes
from tilesmith.ir import expr as ir
from tilesmith.ir.expr import Var
from tilesmith.ir.target import Target
from tilesmith.loop import nodes
from tilesmith.loop.nodes import Buffer, Func, Stmt
from tilesmith.loop.visit import exprs, walk, written

from .dialect import Dialect
from .emit import CFunction, Statements, finished
from .prelude import HEADERS, MEMORY_TYPES, VALUE_TYPES, definitions, is_narrow
from .vector_forms import (
    Access,
    constant_access,
    constant_first,
    contiguous,
    holds,
    holds_everywhere,
    padded,
)  # fmt: skip
from .vectors import LANE, NEXT, Vectors


@dataclass(frozen=True, slots=True)
class VectorFunction:
    """A kernel as the text of one C function with vectors.

    function: the function's text, helpers, workspace and messages.
    types: the vector types that the function uses, as (name of the element type, lanes).
    """

    function: CFunction
    types: frozenset[tuple[str, int]]


class _Kernel:
    """Writer of a kernel with vectors, and of the variables for its register buffers."""

    def __init__(self, func: Func, shared: Collection[int]) -> None:
        own = {nodes.Allocate: self._allocate, nodes.Store: self._store}
        dialect = Dialect("C with vectors", reserved=(LANE, NEXT), statements=own)
        self.statements = Statements(func, shared, dialect)
        self.values = self.statements.values
        self.vectors = Vectors(self.values, written(func.body))
        self._masks: dict[tuple[Buffer, int | None], object] = {}

    def _allocate(self, f: Statements, s: nodes.Allocate) -> None:
        b = s.buffer
        self.values.slots.pop(b, None)  # unrolled copies of a loop declare the buffer again
        if b.scope == "register":
            accesses, masks = _register_accesses(b, s.body)
            if accesses is not None:
                self._masks |= {(b, first): mask for first, mask in masks.items()}
                self.values.slots[b] = dict(self._declared(b, accesses))
                f.then(s.body)
                return
        f.plain(s)

    def _declared(self, b: Buffer, accesses: set[Access]) -> Iterator[tuple[Access, str]]:
        """Declare the variables that hold the vectors of a register buffer."""
        for first, lanes in sorted(accesses):
            name = self.values.names.fresh(f"{b.name}_{first}")
            vector = self.vectors.vector
            type_ = VALUE_TYPES[b.dtype.name] if lanes == 1 else vector(b.dtype.name, lanes)
            # Masked stores leave some lanes undefined, but reads load the whole vector.
            partly = lanes > 1 and self._masks.get((b, first), _WHOLE) is not _WHOLE
            self.values.b.line(f"{type_} {name}{' = {0}' if partly else ''};")
            yield (first, lanes), name

    def _store(self, f: Statements, s: nodes.Store) -> None:
        lanes = max((*(i.lanes for i in s.indices), s.value.lanes))
        if lanes == 1:
            f.plain(s)
            return
        values, vectors, line = self.values, self.vectors, self.values.b.line
        values.begin((*s.indices, s.value, *(() if s.mask is None else (s.mask,))))
        is_whole = holds(s.mask)
        slot = values.slot(s.buffer, s.indices, lanes)
        if slot is not None:
            value = values.text(s.value)
            # If all stores have the same mask, the other lanes are never defined and need no blend.
            if not is_whole and self._masks.get((s.buffer, constant_first(s.indices))) is _MIXED:
                assert s.mask is not None
                mask = vectors.mask(s.mask, s.buffer.dtype.bits)
                value, _ = vectors.blend(mask, f"({value})", slot, s.value)
            if value != slot:
                line(f"{slot} = {value};")
            return
        start = contiguous(s.indices)
        plain = not (is_narrow(s.buffer.dtype) or s.buffer.dtype.is_bool)
        plain = plain and not s.buffer.dtype.is_storage and padded(lanes) == lanes
        if start is not None and plain and is_whole:
            value = values.text(s.value)
            line(f"{vectors.at(s.buffer, start, lanes)} = {value};")
            return
        if s.value.lanes > 1 and not isinstance(s.value, ir.Broadcast):
            vectors.name(s.value)
        everywhere = holds_everywhere(s.mask) if s.mask is not None and not is_whole else None

        def one(lane: Var) -> None:
            indices = tuple(vectors.lane_of(i, lane) for i in s.indices)
            mask = None if is_whole or s.mask is None else vectors.lane_of(s.mask, lane)
            f.plain(nodes.Store(s.buffer, indices, vectors.lane_of(s.value, lane), mask))

        if start is None or not plain or everywhere is None or known_lanes(s.mask) is not None:
            vectors.loop_over_lanes(lanes, one)
            return
        whole = f"{vectors.at(s.buffer, start, lanes)} = {values.text(s.value)};"
        vectors.either(everywhere, lambda: line(whole), lambda: vectors.loop_over_lanes(lanes, one))


_WHOLE, _MIXED = object(), object()
"""Markers for the masks of all stores to one vector.  `_WHOLE`: every store writes all lanes.
`_MIXED`: the stores have different masks.
"""


def _register_accesses(
    buffer: Buffer, body: Stmt
) -> tuple[set[Access] | None, dict[int | None, object]]:
    """The vectors by which `body` accesses a register buffer; None if the accesses overlap or are
    not constant.  The second result has an entry for each stored vector, by the vector's first
    element.  The entry is the mask that all stores to this vector share, or a marker (`_WHOLE`,
    `_MIXED`).
    """
    uses: set[Access | None] = set()
    masks: dict[int | None, object] = {}
    plain = not (is_narrow(buffer.dtype) or buffer.dtype.is_bool or buffer.dtype.is_storage)
    inside = {t.var for t in walk(body) if isinstance(t, (nodes.For, nodes.LetStmt))}
    for s in walk(body):
        if isinstance(s, nodes.Store) and s.buffer is buffer:
            uses.add(constant_access(s.indices, max(s.value.lanes, *(i.lanes for i in s.indices))))
            mask = _WHOLE if holds(s.mask) else s.mask
            if s.mask is not None and ir.symbols(s.mask) & inside:  # the loop may change the mask
                mask = _MIXED
            first = constant_first(s.indices)
            if masks.setdefault(first, mask) is not mask:
                masks[first] = _MIXED
    for root in exprs(body):
        for e in ir.post_order(root):
            if isinstance(e, ir.Load) and e.buffer is buffer:
                uses.add(constant_access(e.indices, e.lanes))
    accesses = {a for a in uses if a is not None and (a[1] == 1 or plain)}
    return (accesses if len(accesses) == len(uses) and _are_apart(accesses) else None), masks


def _are_apart(accesses: set[Access]) -> bool:
    ordered = sorted(accesses)
    return all(a + n <= b for (a, n), (b, _) in pairwise(ordered))


def write_vectors(
    func: Func, symbol: str | None = None, *, shared: Collection[int] = ()
) -> VectorFunction:
    """The C function of `func`.  Arguments and errors are the same as for `emit.write`."""
    symbol = re.sub(r"[^A-Za-z0-9_]", "_", symbol or func.name)
    kernel = _Kernel(func, shared)
    function = finished(kernel.statements, func, symbol)
    return VectorFunction(function, frozenset(kernel.vectors.types))


def vector_unit(functions: Iterable[VectorFunction], rest: str = "") -> str:
    """One C file with the functions, preceded by the vector types and helpers that they use."""
    functions = tuple(functions)
    helpers = frozenset[str]().union(*(f.function.helpers for f in functions))
    types = frozenset[tuple[str, int]]().union(*(f.types for f in functions))
    parts = [HEADERS, type_definitions(types), definitions(helpers)]
    return "\n".join([*parts, *(f.function.text for f in functions), rest])


def emit_vectors(
    func: Func, target: Target, *, shared: Collection[int] = (), strict: bool = False
) -> Kernel:
    """A C file that contains only `func`.  `strict` does not change the text."""
    f = write_vectors(func, shared=shared)
    own = f.function
    return Kernel(own.symbol, vector_unit([f]), own.workspace_bytes, 0, own.messages)


def type_definitions(types: Iterable[tuple[str, int]]) -> str:
    """C definitions of vector types, and of the unaligned types with which vectors are loaded and
    stored.
    """
    lines = []
    for element, lanes in sorted(types):
        type_, name = VALUE_TYPES[element], f"ts_{element}x{lanes}"
        size = f"vector_size({lanes} * sizeof({type_}))"
        near = f"aligned(sizeof({MEMORY_TYPES[element]})), may_alias"
        lines.append(f"typedef {type_} {name} __attribute__(({size}));")
        lines.append(f"typedef {type_} {name}_u __attribute__(({size}, {near}));")
    return "\n".join(lines) + "\n"
