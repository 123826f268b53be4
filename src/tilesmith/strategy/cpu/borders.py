"""Writes into a part of a buffer: a slice of a larger tensor, or the zero border of a result."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from functools import lru_cache

from tilesmith.ir.dtypes import DType
from tilesmith.ir.expr import Expr, Load, const, post_order, substitute
from tilesmith.ir.extents import total
from tilesmith.ir.layout import Layout
from tilesmith.ir.symbols import expected
from tilesmith.ir.target import Target
from tilesmith.ir.types import Dim
from tilesmith.loop.nodes import Buffer, Func, Stmt, Store, seq
from tilesmith.loop.visit import map_stmt
from tilesmith.strategy.group import Group
from tilesmith.strategy.sizes import applied
from tilesmith.te import tensor as te
from tilesmith.te.lower import lower
from tilesmith.te.relations import add, dim_expr
from tilesmith.te.schedule import Schedule, create_schedule

from .injective import schedule_injective


def redirect(
    body: Stmt,
    sources: Mapping[Buffer, Buffer],
    old: Buffer,
    new: Buffer,
    position: int,
    offset: Dim,
) -> Stmt:
    """`body` on other buffers.  A read of a buffer b in `sources` becomes a read of `sources[b]`.
    A write to `old` becomes a write to `new`, moved by `offset` along dimension `position`.
    """

    def expr(e: Expr) -> Expr:
        swap: dict[Expr, Expr] = {
            n: Load(sources[n.buffer], n.indices, n.mask)
            for n in post_order(e)
            if isinstance(n, Load) and isinstance(n.buffer, Buffer) and n.buffer in sources
        }
        return substitute(e, swap)

    def stmt(st: Stmt) -> Stmt:
        if isinstance(st, Store) and st.buffer is old:
            indices = tuple(
                add(i, dim_expr(offset)) if d == position else i for d, i in enumerate(st.indices)
            )
            return Store(new, indices, st.value, st.mask)
        return st

    return map_stmt(body, f_expr=expr, f_stmt=stmt)


def with_zero_halos(func: Func, group: Group, target: Target) -> Func:
    """`func` followed by loops that write zeros into the halos of its results."""
    borders: list[Stmt] = []
    for tensor, buffer in zip(group.args, func.buffers, strict=True):
        if tensor in set(group.outputs) and tensor in group.layouts:
            borders += zero_borders(buffer, group.layouts[tensor], tensor.shape, target)
    return replace(func, body=seq(func.body, *borders)) if borders else func


def zero_borders(
    buffer: Buffer, layout: Layout, logical: tuple[Dim, ...], target: Target
) -> list[Stmt]:
    """Loops that write zeros into the halo of a tensor.  The tensor has shape `logical` and is
    stored in `buffer`.
    """
    shape = layout.dense.physical_shape(logical)
    pieces = []
    for position, d in enumerate(layout.dims):
        for start, width in ((0, d.before), (total((logical[d.axis], d.before)), d.after)):
            if width:
                slab = tuple(width if i == position else n for i, n in enumerate(shape))
                pieces.append(_zeros(buffer, slab, position, start, target))
    return pieces


def _zeros(
    buffer: Buffer, slab: tuple[Dim, ...], position: int, start: Dim, target: Target
) -> Stmt:
    piece = _filled(buffer.dtype, slab, (position, start), target)
    return redirect(piece.body, {}, piece.buffers[0], buffer, position, start)


@lru_cache(maxsize=256)
def _filled(dtype: DType, slab: tuple[Dim, ...], place: tuple[int, Dim], target: Target) -> Func:
    """A function that fills a slab with zeros.  All kernels of a model share one function for equal
    slabs.

    place: position of the slab in its buffer.  It is only part of the cache's key, so that slabs of
        one buffer get functions with different variables.
    """
    del place
    known, border = (_zero_slab(dtype, n) for n in (tuple(map(expected, slab)), slab))
    s = create_schedule([known])
    if all(isinstance(n, int) for n in slab):
        schedule_injective(s, Group((), known.outputs, (known,), {}), known, target)
    else:
        _schedule_rows(s, known, target)
    return lower(applied(s.steps, border.outputs), border.outputs, "border")


def _schedule_rows(s: Schedule, op: te.Compute, target: Target) -> None:
    """Make a loop for each axis.  Fused loops would divide by extents that are known at run time
    only.
    """
    stage = s[op.outputs[0]]
    extents = [expected(a.extent) for a in op.axis]
    lanes = target.vector_lanes(op.outputs[0].dtype.bytes)
    if extents[-1] >= lanes:
        _, inner = stage.split(stage.axis[-1], factor=lanes)
        stage.vectorize(inner)
    if math.prod(extents) >= target.parallel_elements:
        stage.parallel(stage.axis[extents.index(max(extents[:-1]))])


def _zero_slab(dtype: DType, slab: tuple[Dim, ...]) -> te.Compute:
    zero = const(0, dtype)
    return te.compute(slab, lambda *_: zero, "border", [f"h{i}" for i in range(len(slab))]).op
