"""Transpositions in register blocks, which are read along one axis and written along another.

    for u in steps of U_BLOCKS * L: for v in steps of M: for u in steps of L:
      rows[v, u] = x[... u ...]                # M vectors along u, the order of `x` in memory
      for u in L: y[... v ...] = rows[:, u]    # L vectors along v, the order of `y`

A few shuffles, which all columns of the register block share, form a column; nothing is gathered.
M elements are a cache line.  The rows of `x` and of `y` often have strides that map them to a few
cache sets; a line written in pieces would then be evicted and fetched again.  If L is less than a
line (narrow types), whole lines of `x` are copied to the stack first, for the same reason.
Otherwise the rows of the next v are prefetched, since hardware does not foresee strides of a whole
row.

If no cache holds `y`, streaming stores are best.  They need whole cache lines.  If the row length
of `y` is not a multiple of a line and L is one line, v is skewed.  Then each u of a block begins at
the start of a line.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from tilesmith.ir.affine import affine_form
from tilesmith.ir.expr import Expr, Load, Select, Var, free_vars, post_order
from tilesmith.ir.layout import Layout
from tilesmith.ir.simplify import EMPTY
from tilesmith.ir.target import LINE_BYTES, Target
from tilesmith.ir.types import same_dim
from tilesmith.strategy.access import expand, strides
from tilesmith.strategy.group import Group
from tilesmith.te.schedule import Schedule
from tilesmith.te.tensor import Compute, Tensor

ROWS = 16
"""Upper bound on the rows of a block.  Vectors of narrow types have more lanes than this.  A block
with one row per lane would be too large, since it has lanes * lanes elements.
"""

U_BLOCKS = 16
"""Blocks along u per step of v: 1 KiB of a row of `x`, and a line in each of 256 rows of `y`."""

V_BLOCKS = 8
"""Blocks along v per step of u, for rows of `x` with at most `U_BLOCKS` blocks.  The cache holds
this many blocks, and each row of `y` is written several cache lines at a time.
"""


LEAST_LINES = 4
"""Fewest cache lines in a row of `x` for which rows are copied by lines: a partial last line is
slow.
"""


@dataclass(frozen=True, slots=True)
class Transposition:
    """The transposition that a stage computes.

    tensor: the source.
    u, v: axis numbers of the output; the output is contiguous along axis `v`.
    along: the source's contiguous dimension, which axis `u` indexes.
    across: the source's dimension that axis `v` indexes.
    """

    tensor: Tensor
    u: int
    v: int
    along: int
    across: int


def transposition(
    group: Group, op: Compute, keep: Iterable[Compute], target: Target
) -> Transposition | None:
    """The transposition that `op` computes; None if there is none or blocks would be partial."""
    lanes = _lanes(op, target)
    inner = group.innermost(op)
    if inner is None or len(op.body) != 1 or lanes < 2:
        return None
    body = expand(op, keep)[0]
    if any(isinstance(n, Select) for n in post_order(body)):
        return None
    for node in post_order(body):
        if not isinstance(node, Load) or not isinstance(node.buffer, Tensor):
            continue
        transposed = _of_read(group, op, node, node.buffer, inner)
        if transposed is not None and all(
            isinstance(n, int) and n >= lanes
            for n in (op.axis[transposed.u].extent, op.axis[transposed.v].extent)
        ):
            return transposed
    return None


def _of_read(group: Group, op: Compute, node: Load, tensor: Tensor, v: int) -> Transposition | None:
    steps = strides(tensor, node.indices, group.layout(tensor))
    if steps is None or steps.get(op.axis[v].var, 0) in (0, 1):
        return None
    number = {a.var: i for i, a in enumerate(op.axis)}
    plain = {
        number[i]: d
        for d, e in enumerate(node.indices)
        if (i := _shifted(e)) is not None and i in number
    }
    u = next((i for i, a in enumerate(op.axis) if steps.get(a.var, 0) == 1), None)
    if u is None or u not in plain or v not in plain:
        return None
    both = {op.axis[u].var, op.axis[v].var}
    others = (i for d, i in enumerate(node.indices) if d not in (plain[u], plain[v]))
    if any(free_vars(i) & both for i in others) or tensor.dtype is not op.outputs[0].dtype:
        return None
    if not _stays_inside(op, node, tensor):  # a copy has no halo
        return None
    return Transposition(tensor, u, v, plain[u], plain[v])


def _stays_inside(op: Compute, node: Load, tensor: Tensor) -> bool:
    """Whether a read stays inside the tensor, unlike reads of the padding in its halo."""
    known = EMPTY
    for a in op.axis:
        known = known.with_var(a.var, 0, a.extent - 1)
    ranges = (known.interval(i) for i in node.indices)
    return all(
        r.lo is not None and r.hi is not None and r.lo >= 0 and r.hi < n
        for r, n in zip(ranges, tensor.shape, strict=True)
    )


def _shifted(e: Expr) -> Var | None:
    """The variable v if `e` is v plus a constant, as in a slice; else None."""
    terms, _ = affine_form(e)
    atom = next(iter(terms), None)
    return atom if len(terms) == 1 and isinstance(atom, Var) and terms[atom] == 1 else None


def schedule_transposition(
    s: Schedule, group: Group, op: Compute, t: Transposition, target: Target
) -> tuple[list[Any], list[int]]:
    """Schedule the blocks.  Returns the loops outside them, outermost first, and their extents."""
    lanes = _lanes(op, target)
    readers = [st for st in group.stages if t.tensor in set(st.inputs)]
    readers = [s[st.outputs[0]] for st in readers]
    out = s[op.outputs[0]]
    extents = [int(a.extent) for a in op.axis]  # type: ignore[arg-type]  # numbers
    line = max(lanes, LINE_BYTES // op.outputs[0].dtype.bytes)
    across = min(line, 1 << (extents[t.v].bit_length() - 1))
    along = line if extents[t.u] >= LEAST_LINES * line else lanes
    tile = s.cache_read(t.tensor, "stack", readers) if along > lanes else None
    rows = s.cache_read(t.tensor if tile is None else tile, "register", readers)
    uo, ui = out.split(out.axis[t.u], factor=along)
    row = _steps_of_lines(group, op, t, line, target) if lanes == across == line else 0
    vs = out.skew(out.axis[t.v], ui, factor=row, modulus=line) if row else out.axis[t.v]
    block, ui = (None, ui) if tile is None else out.split(ui, factor=lanes)
    vo, vi = out.split(vs, factor=across)
    u, v = -(-extents[t.u] // along), -(-(extents[t.v] + (line - 1 if row else 0)) // across)
    order = [d.axis for d in group.layout(op.outputs[0]).dims]
    outer = [i for i in order if i not in (t.u, t.v)]
    loops, sizes = [out.axis[i] for i in outer], [extents[i] for i in outer]
    if u > U_BLOCKS:
        far, uo = out.split(uo, factor=U_BLOCKS)
        loops, sizes = [*loops, far], [*sizes, -(-u // U_BLOCKS)]
    inner = uo
    if u > 1 and u <= U_BLOCKS and v > V_BLOCKS:
        far, vo = out.split(vo, factor=V_BLOCKS)
        loops, sizes, inner = [*loops, far, uo], [*sizes, -(-v // V_BLOCKS), u], vo
    else:
        loops, sizes = [*loops, vo], [*sizes, v]
    if tile is None or block is None:
        out.reorder(*loops, inner, ui, vi)
        _read(s, t, rows, out, inner).prefetch(t.tensor, s[rows].axis[t.across], across)
    else:
        out.reorder(*loops, inner, block, ui, vi)
        _read(s, t, rows, out, block)
        _read(s, t, tile, out, inner)
    s[rows].unroll(s[rows].axis[t.across])
    out.unroll(ui)
    out.vectorize(vi)
    return loops, sizes


def schedule_packing(
    s: Schedule, copy: Tensor, t: Transposition, reader: Tensor, width: int, target: Target
) -> None:
    """Schedule `copy`, whose axis `t.v` is innermost in blocks of `width`, block by block.

        for v in steps of width: for u in steps of L: for v in steps of L:
          rows[v, u] = x[... u ...]
          for u in L: copy[... v ...] = rows[:, u]

    reader: the stage that reads `t.tensor`: the copy itself, or a stage inlined into it.
    """
    lanes = min(_lanes_of(copy, target), width)
    stage = s[copy]
    rows = s.cache_read(t.tensor, "register", [reader])
    others = [a for i, a in enumerate(stage.axis) if i not in (t.u, t.v)]
    u, v = stage.axis[t.u], stage.axis[t.v]
    block, inside = stage.split(v, factor=width)
    near, lane = stage.split(inside, factor=lanes)
    uo, ui = stage.split(u, factor=lanes)
    stage.reorder(*others, block, uo, near, ui, lane)
    _read(s, t, rows, stage, near)
    s[rows].unroll(s[rows].axis[t.across])
    stage.unroll(ui)
    stage.vectorize(lane)
    stage.parallel(stage.fuse(*others, block) if others else block)


def _steps_of_lines(group: Group, op: Compute, t: Transposition, line: int, target: Target) -> int:
    """The row stride of the result modulo a cache line, in elements; 0 if writing whole lines is
    not faster.

    Whole lines are faster if no cache holds the result, rows are long, and all blocks of rows begin
    at the same offset in a line.
    """
    y = op.outputs[0]
    size = math.prod(int(a.extent) for a in op.axis) * y.dtype.bytes  # type: ignore[arg-type]
    steps = strides(y, tuple(a.var for a in op.axis), group.layout(y))
    if steps is None or line > ROWS or not target.overflows(size):
        return 0
    if int(op.axis[t.v].extent) < LEAST_LINES * line:  # type: ignore[arg-type]  # a number
        return 0
    others = (
        a.var for i, a in enumerate(op.axis) if i not in (t.u, t.v) and not same_dim(a.extent, 1)
    )
    if any(steps.get(v, 0) % line for v in others):
        return 0
    return steps.get(op.axis[t.u].var, 0) % line


def _read(s: Schedule, t: Transposition, copy: Tensor, out: Any, loop: Any) -> Any:
    """Schedule the stage that copies the block of `t.tensor` row by row in each `loop`
    iteration.
    """
    stage = s[copy]
    stage.compute_at(out, loop)
    dims = [i for i in range(t.tensor.rank) if i not in (t.along, t.across)]
    s.transform_layout(copy, Layout.permuted((*dims, t.across, t.along)))
    stage.reorder(*(stage.axis[i] for i in dims), stage.axis[t.across], stage.axis[t.along])
    stage.vectorize(stage.axis[t.along])
    return stage


def _lanes(op: Compute, target: Target) -> int:
    return _lanes_of(op.outputs[0], target)


def _lanes_of(tensor: Tensor, target: Target) -> int:
    return min(target.vector_lanes(tensor.dtype.bytes), ROWS)
