"""Copies in vectors, for a writer of scalar code whose machine moves vectors.

    for v in vectorized(8):            ->   s[ramp(t * 8, 1, 8)] = x[ramp(i * 64 + t * 8, 1, 8)]
        s[t * 8 + v] = x[i * 64 + t * 8 + v]

Vectors begin at multiples of their size in both buffers, which begin at such multiples themselves.
What can't be moved so is a serial loop.
"""

from __future__ import annotations

from tilesmith.ir.affine import affine_form
from tilesmith.ir.expr import Const, Expr, Load, Ramp, const, substitute
from tilesmith.ir.loop_tables import SCOPES
from tilesmith.ir.simplify import simplify

from ..nodes import Buffer, For, Func, Stmt, Store
from ..visit import map_stmt

WIDEST = 16
"""Bytes of the widest vector."""


def vector_copies(func: Func) -> Func:
    """`func` (stage "flat") without vectorised loops; the same object if it has none."""
    body = map_stmt(func.body, f_stmt=_moved)
    return func if body is func.body else Func(
        func.name, func.params, func.outputs, body, func.attrs
    )  # fmt: skip


def is_copy(s: Stmt) -> bool:
    """Whether `s` moves elements between buffers that have addresses, and does nothing else."""
    if not isinstance(s, Store) or not isinstance(s.value, Load):
        return False
    source = s.value.buffer
    return (
        isinstance(source, Buffer)
        and all(SCOPES[b.scope].is_addressed for b in (s.buffer, source))
        and s.mask is None
        and s.value.mask is None
        and source.dtype is s.buffer.dtype
    )


def _moved(s: Stmt) -> Stmt:
    if not isinstance(s, For) or s.kind != "vectorized":
        return s
    store, count = s.body, s.extent
    if isinstance(store, Store) and isinstance(count, Const) and is_copy(store):
        lanes, value = int(count.value), store.value
        assert isinstance(value, Load)
        to, source = (_first(i, s, lanes) for i in (store.indices[0], value.indices[0]))
        size = lanes * store.buffer.dtype.bytes
        if to is not None and source is not None and size <= WIDEST and not size & (size - 1):
            loaded = Load(value.buffer, (Ramp(source, const(1), lanes),))
            return Store(store.buffer, (Ramp(to, const(1), lanes),), loaded)
    return For(s.var, s.start, s.extent, "serial", s.body)


def _first(index: Expr, s: For, lanes: int) -> Expr | None:
    """The first of neighbouring elements, if it is a multiple of their number."""
    terms, first = affine_form(index)
    others = (n for v, n in terms.items() if v is not s.var)
    if terms.get(s.var) != 1 or first % lanes or any(n % lanes for n in others):
        return None
    return simplify(substitute(index, {s.var: s.start}))
