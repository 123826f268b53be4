"""Concatenation: one copying loop nest per operand, each writing its own slice of the result.

A single tensor expression would select among the operands for every element.  Separate loop nests
copy at memory speed.  If the operands' rows in the result are short, the nests share their outer
loops.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from tilesmith.graph.nodes import Graph
from tilesmith.ir.expr import Const, same, substitute
from tilesmith.ir.layout import Layout
from tilesmith.ir.target import Target
from tilesmith.loop.nodes import Buffer, For, Func, Stmt, seq
from tilesmith.loop.visit import map_stmt
from tilesmith.ops.slicing import Concat
from tilesmith.strategy.group import Group, constant_literals
from tilesmith.te import tensor as te
from tilesmith.te.lower import lower
from tilesmith.te.schedule import create_schedule

from .borders import redirect, zero_borders
from .injective import schedule_injective

MOST_VECTORS = 4
"""Upper bound on the vectors of an operand's row that unrolled code copies."""


def is_concat(body: Graph) -> bool:
    """True for a group that is a single concatenation."""
    return len(body.nodes) == 1 and isinstance(body.nodes[0].op, Concat)


def lower_concat(body: Graph, target: Target, name: str) -> Func:
    """The kernel of a concatenation."""
    node = body.nodes[0]
    assert isinstance(node.op, Concat)
    out = body.outputs[0]
    rank = out.type.rank
    axis = node.op.axis % rank
    layout = out.layout or Layout.row_major(rank)
    position = next(i for i, d in enumerate(layout.dims) if d.axis == axis)
    shape = layout.physical_shape(out.type.static_shape)
    buffers = {
        v: Buffer(
            f"in{i}",
            v.dtype,
            (v.layout or Layout.row_major(rank)).physical_shape(v.type.static_shape),
        )
        for i, v in enumerate(body.inputs)
    }
    literals = constant_literals(body)
    result = Buffer("out", out.dtype, shape)
    part = layout.spanning(tuple(n if i == position else 0 for i, n in enumerate(shape)))
    pieces: list[Stmt] = []
    offset = 0
    for v in node.inputs:
        x = te.placeholder(v.shape, v.dtype, "x")
        literal = literals.get(v)
        y = te.compute(x.shape, lambda *i, x=x, c=literal: x[i] if c is None else c, "y")
        read = (x,) if literal is None else ()
        s = create_schedule([y.op])
        layouts = {y: part}
        if v.layout is not None and read:
            layouts[x] = v.layout
        for tensor, order in layouts.items():
            s.transform_layout(tensor, order)
        schedule_injective(s, Group(read, (y,), (y.op,), layouts), y.op, target)  # type: ignore[arg-type]
        piece = lower(s, [*read, y], name)
        destination = piece.buffers[-1]
        moved = {piece.buffers[0]: buffers[v]} if read else {}
        pieces.append(redirect(piece.body, moved, destination, result, position, offset))
        offset += v.type.static_shape[axis]
    borders = zero_borders(result, layout, out.type.static_shape, target)
    row = math.prod(shape[position:]) * out.dtype.bytes
    loops = together(pieces) if row <= target.model.l1_bytes // 2 else seq(*pieces)
    return Func(name, (*buffers.values(), result), (result,), seq(loops, *borders))


def together(pieces: Sequence[Stmt]) -> Stmt:
    """`pieces` fused into one loop, if all are loops with the same trip count; else one after the
    other.

    The pieces write different elements and read none of them.  The fused loop writes each short row
    of the result as a whole.  Loops over few vectors are unrolled.  So the parts of a cache line
    are written in direct succession.
    """
    loops = [p for p in pieces if isinstance(p, For)]
    first = loops[0] if loops else None
    if (
        first is None
        or len(loops) < max(len(pieces), 2)
        or any(
            not same((p.start, p.extent, p.kind), (first.start, first.extent, first.kind))
            for p in loops
        )
    ):
        return seq(*map(_unrolled, pieces))
    shared = first.var
    bodies = [
        map_stmt(loop.body, f_expr=lambda e, v=loop.var: substitute(e, {v: shared}))
        for loop in loops
    ]
    return For(first.var, first.start, first.extent, first.kind, together(bodies))


def _unrolled(piece: Stmt) -> Stmt:
    """`piece` with its loop unrolled if the loop has few iterations; else `piece`."""
    if not isinstance(piece, For) or piece.kind != "serial" or not isinstance(piece.extent, Const):
        return piece
    short = piece.extent.value <= MOST_VECTORS
    return For(piece.var, piece.start, piece.extent, "unrolled", piece.body) if short else piece
