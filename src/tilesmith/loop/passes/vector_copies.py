"""Vectorises copies, for a code generator of scalar code whose machine can move vectors.

    for v in vectorized(8):            ->   s[ramp(t * 8, 1, 8)] = x[ramp(i * 64 + t * 8, 1, 8)]
        s[t * 8 + v] = x[i * 64 + t * 8 + v]

If a condition that is equal in all lanes chooses between elements and a constant, one of two
vectors is stored.  Vectors must be aligned to their size in both buffers; the buffers themselves
have this alignment.  Other copies become serial loops.
"""

from __future__ import annotations

from tilesmith.ir.affine import affine_form
from tilesmith.ir.expr import (
    Broadcast,
    Const,
    Expr,
    Load,
    Ramp,
    Select,
    const,
    free_vars,
    substitute,
)
from tilesmith.ir.loop_tables import SCOPES
from tilesmith.ir.simplify import simplify

from ..nodes import Buffer, For, Func, If, Stmt, Store
from ..visit import map_stmt

WIDEST = 16
"""Upper bound on the bytes of a vector."""


def vector_copies(func: Func) -> Func:
    """`func` (stage "flat") without vectorised loops; the same object if it has none."""
    body = map_stmt(func.body, f_stmt=_moved)
    return func if body is func.body else Func(
        func.name, func.params, func.outputs, body, func.attrs
    )  # fmt: skip


def is_copy(s: Stmt) -> bool:
    """Whether `s` only copies an element between buffers with addresses.  It may store a constant
    instead if a condition is false.
    """
    if not isinstance(s, Store) or s.mask is not None:
        return False
    value = s.value
    if isinstance(value, Select) and isinstance(value.if_false, Const):
        value = value.if_true
    if not isinstance(value, Load) or value.mask is not None:
        return False
    source = value.buffer
    return (
        isinstance(source, Buffer)
        and all(SCOPES[b.scope].is_addressed for b in (s.buffer, source))
        and source.dtype is s.buffer.dtype
    )


def _moved(s: Stmt) -> Stmt:
    if not isinstance(s, For) or s.kind != "vectorized":
        return s
    store = s.body
    made = None
    if isinstance(store, Store) and is_copy(store):
        value = store.value
        made = _where(store, value, s) if isinstance(value, Select) else _vector(store, s)
    return made or For(s.var, s.start, s.extent, "serial", s.body)


def _where(store: Store, value: Select, s: For) -> Stmt | None:
    """A vector copy if the condition of `value` is true, else a store of a constant vector.  None
    if the condition differs between lanes.
    """
    if s.var in free_vars(value.cond):
        return None
    copy = _vector(Store(store.buffer, store.indices, value.if_true), s)
    if copy is None:
        return None
    constant = Broadcast(value.if_false, copy.value.lanes)
    return If(value.cond, copy, Store(copy.buffer, copy.indices, constant))


def _vector(store: Store, s: For) -> Store | None:
    """A copy loop as one load and store of a vector; None if this is impossible."""
    if not isinstance(s.extent, Const) or not isinstance(store.value, Load):
        return None
    lanes, value = int(s.extent.value), store.value
    to, source = (_first(i, s, lanes) for i in (store.indices[0], value.indices[0]))
    size = lanes * store.buffer.dtype.bytes
    if to is None or source is None or size > WIDEST or size & (size - 1):
        return None
    loaded = Load(value.buffer, (Ramp(source, const(1), lanes),))
    return Store(store.buffer, (Ramp(to, const(1), lanes),), loaded)


def _first(index: Expr, s: For, lanes: int) -> Expr | None:
    """The first index, if the lanes have consecutive indices and the first is a multiple of
    `lanes`; else None.
    """
    terms, first = affine_form(index)
    others = (n for v, n in terms.items() if v is not s.var)
    if terms.get(s.var) != 1 or first % lanes or any(n % lanes for n in others):
        return None
    return simplify(substitute(index, {s.var: s.start}))
