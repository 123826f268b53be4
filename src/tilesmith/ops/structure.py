"""The structure of an operator's tensor expression.

Fusion, layout assignment and schedules decide by structure, not by the name of an operator.  They
ask which loops reduce, which tensors are read at the index that is written, and which are
broadcast.  All answers are derived from `compute`.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Literal

from tilesmith.ir import expr as ir
from tilesmith.ir.affine import as_affine
from tilesmith.ir.expr import Expr, Var, all_of, as_expr, const, post_order, reads_memory
from tilesmith.ir.extents import difference, is_at_most, total
from tilesmith.ir.types import Dim, TensorType, same_dim
from tilesmith.te.tensor import SUM, Compute, Placeholder, Reduce, Tensor, producers_first

from .base import Op

Kind = Literal["elementwise", "injective", "reduction", "contraction", "opaque"]

COSTLY = frozenset({
    "exp", "exp2", "log", "log1p", "erf", "sin", "cos", "tan", "asin", "acos", "atan",
    "sinh", "cosh", "tanh", "asinh", "acosh", "atanh", "pow", "threefry",
})  # fmt: skip
"""Intrinsics that are so costly that results should be stored, not computed twice."""


def is_costly(values: Iterable[Expr]) -> bool:
    """Whether `values` are so costly that they should be stored, not computed twice."""
    nodes = (n for v in values for n in post_order(v))
    return any(
        (isinstance(n, ir.Call) and (n.name in COSTLY or n.name in ("sqrt", "rsqrt")))
        or (isinstance(n, ir.Binary) and n.op == "div")
        for n in nodes
    )


TABLE = 256
"""Upper bound on the entries of a table that stays in the L1 cache along with other data."""


@dataclass(frozen=True, slots=True)
class Structure:
    """The structure of an operator applied to given types.

    kind: "elementwise" if each output element reads each input at its own index (or a broadcast of
        it); "injective" if there is no reduction; "reduction"; "contraction" for a sum of products
        of two tensors; "opaque" if there is no tensor expression.
    reduced: the reduced axes, if one input is reduced over whole axes; else None.
    keeps_rank: whether the reduced axes stay, with extent 1.
    is_index_map: whether it only moves elements.
    is_costly: whether it evaluates transcendental functions.
    divides: whether the indices of its reads contain quotients or remainders.
    branches: number of selects that read an element in only one of their branches.
    samples: numbers of the operands from which several elements are read per result, at indices
        that depend on data.
    """

    kind: Kind
    reduced: frozenset[int] | None = None
    keeps_rank: bool = False
    is_index_map: bool = False
    is_costly: bool = False
    divides: bool = False
    branches: int = 0
    samples: frozenset[int] = frozenset()


SAMPLES = 2
"""Lower bound on the reads per result of an operand in `Structure.samples`.  So many gathers cost
more than reordering the operand and the result.
"""


def stages(outputs: tuple[Tensor, ...]) -> tuple[Compute, ...]:
    """All computes that `outputs` need, producers first."""
    order = producers_first(t.op for t in outputs)
    return tuple(op for op in order if not isinstance(op, Placeholder))


def loads(op: Compute) -> tuple[ir.Load, ...]:
    """The distinct reads in a compute's bodies."""
    return tuple(dict.fromkeys(n for b in op.body for n in post_order(b) if isinstance(n, ir.Load)))


def reads_own_point(op: Compute, load: ir.Load) -> bool:
    """Whether `load` reads one of these: the element at the index that is written, an element that
    is broadcast to this index (trailing axes aligned), or an element of a short table whose indices
    are all data.
    """
    if _looks_up(load):
        return True
    axes = [a.var for a in op.axis]
    if len(load.indices) > len(axes):
        return False
    aligned = axes[len(axes) - len(load.indices) :]
    return all(
        i is v or (i is const(0) and same_dim(n, 1))
        for i, v, n in zip(load.indices, aligned, load.buffer.shape, strict=True)
    )


def _looks_up(load: ir.Load) -> bool:
    """Whether `load` reads a table of at most `TABLE` entries, indexed only by data."""
    if len(load.indices) != 1 or not isinstance(load.buffer, Tensor):
        return False
    (extent,) = load.buffer.shape
    return isinstance(extent, int) and extent <= TABLE and _is_data(load.indices[0])


def _is_data(e: Expr) -> bool:
    """Whether `e` is computed from tensor elements and constants, with at least one element."""
    if isinstance(e, (ir.Load, ir.Const)):
        return isinstance(e, ir.Load)
    parts = [_is_data(c) for c in e.children if not isinstance(c, ir.Const)]
    return bool(parts) and all(parts)


def product_of_loads(op: Compute) -> tuple[ir.Load, ir.Load] | None:
    """The two factors, if `op` sums products of two different tensor elements; else None.  A factor
    may be clamped from below by a constant.
    """
    body = op.body[0]
    if len(op.body) != 1 or not isinstance(body, Reduce) or body.reducer is not SUM:
        return None
    source = body.sources[0]
    source = _uncast(source)
    if not isinstance(source, ir.Binary) or source.op != "mul":
        return None
    a, b = _uncast(source.a), _uncast(source.b)
    return (a, b) if isinstance(a, ir.Load) and isinstance(b, ir.Load) and a is not b else None


def _uncast(e: Expr) -> Expr:
    if isinstance(e, ir.Binary) and e.op == "max" and isinstance(e.b, ir.Const):
        e = e.a
    return e.a if isinstance(e, ir.Cast) else e


def zero_padding(op: Compute) -> tuple[ir.Load, tuple[tuple[int, int], ...]] | None:
    """The read, and the number of zeros (before, after) each axis, if `op` only surrounds a tensor
    with zeros; else None.  If zeros after an axis depend on a symbolic extent, the number is an
    upper bound.
    """
    body = op.body[0]
    if (
        len(op.body) != 1
        or not isinstance(body, ir.Select)
        or not isinstance(body.if_true, ir.Load)
    ):
        return None
    zero, load = body.if_false, body.if_true
    if not isinstance(zero, ir.Const) or zero.value != 0 or len(load.indices) != len(op.axis):
        return None
    begins: list[int] = []
    for index, axis in zip(load.indices, op.axis, strict=True):
        form = as_affine(index)
        if form is None or form[0] != {axis.var: 1} or form[1] > 0:
            return None
        begins.append(-form[1])
    pads: list[tuple[int, int]] = []
    inside: list[Expr] = []
    for axis, begin, inner in zip(op.axis, begins, load.buffer.shape, strict=True):
        end = total((inner, begin))
        after = _most_behind(end, axis.extent)
        if after is None:
            return None
        pads.append((begin, after))
        # The condition must be exactly the one that keeps the read inside.
        inside += [axis.var >= begin] if begin else []
        inside += [axis.var < as_expr(end)] if after else []
    return (load, tuple(pads)) if body.cond is all_of(*inside) else None


_MOST_ZEROS = 8
"""Upper bound on the number of padding zeros that is recognised after a symbolic extent.  Such
zeros fill the last tile.
"""


def _most_behind(end: Dim, extent: Dim) -> int | None:
    """The smallest upper bound of `extent - end` that can be proved.  For a symbolic difference,
    bounds up to `_MOST_ZEROS` are tried.  None if there is none, or if the difference may be
    negative.
    """
    after = difference(extent, end)
    if isinstance(after, int):
        return after if after >= 0 else None
    if not is_at_most(end, extent):
        return None
    return next((n for n in range(1, _MOST_ZEROS + 1) if is_at_most(extent, total((end, n)))), None)


@lru_cache(maxsize=8192)
def structure(op: Op, types: tuple[TensorType, ...]) -> Structure:
    """The structure of `op` applied to inputs of `types`."""
    if not op.is_primitive():
        return Structure("opaque")
    tensors = op.tensors(*types)
    outputs = tensors.outputs
    computes = stages(outputs)
    costly = any(
        isinstance(n, ir.Call) and n.name in COSTLY
        for c in computes
        for b in c.body
        for n in post_order(b)
    )
    basic = _of_computes(outputs, computes, costly)
    placed = [load.buffer for c in computes for load in loads(c) if placed_by_data(load)]
    samples = (i for i, t in enumerate(tensors.inputs) if sum(b is t for b in placed) >= SAMPLES)
    return replace(basic, branches=sum(map(_branches, computes)), samples=frozenset(samples))


def placed_by_data(load: ir.Load) -> bool:
    """Whether an index of the read contains a tensor element."""
    return any(reads_memory(i) for i in load.indices)


def _branches(op: Compute) -> int:
    """Number of selects of a compute that have a read in a branch."""
    selects = {n for b in op.body for n in post_order(b) if isinstance(n, ir.Select)}
    return sum(reads_memory(s.if_true) or reads_memory(s.if_false) for s in selects)


def _of_computes(
    outputs: tuple[Tensor, ...], computes: tuple[Compute, ...], costly: bool
) -> Structure:
    reducing = [c for c in computes if c.reduce_axis]
    if any(product_of_loads(c) for c in reducing):
        return Structure("contraction", is_costly=costly)
    if reducing:
        reduced, keeps = _whole_axes(outputs, computes, reducing)
        return Structure("reduction", reduced, keeps, is_costly=costly)
    if all(reads_own_point(c, load) for c in computes for load in loads(c)):
        return Structure("elementwise", is_costly=costly)
    moves = all(isinstance(c.body[0], ir.Load) and len(c.body) == 1 for c in computes)
    divides = any(
        isinstance(n, ir.Binary) and n.op in ("floordiv", "floormod")
        for c in computes
        for load in loads(c)
        for i in load.indices
        for n in post_order(i)
    )
    return Structure("injective", is_index_map=moves, is_costly=costly, divides=divides)


def _whole_axes(
    outputs: tuple[Tensor, ...], computes: tuple[Compute, ...], reducing: list[Compute]
) -> tuple[frozenset[int] | None, bool]:
    """(reduced axes, whether kept) if one input is reduced over whole axes, else (None, False)."""
    if len(reducing) != 1 or len(outputs) != 1:
        return None, False
    core = reducing[0]
    reads = loads(core)
    tensors = {r.buffer for r in reads}
    if len(tensors) != 1 or any(
        not reads_own_point(c, load) for c in computes if c is not core for load in loads(c)
    ):
        return None, False
    reduce_vars = {a.var for a in core.reduce_axis}
    rank = len(reads[0].indices)
    keeps = len(core.axis) == rank
    reduced: set[int] = set()
    own = [a.var for a in core.axis]
    for read in reads:
        spatial = iter(own)
        for i, index in enumerate(read.indices):
            if isinstance(index, Var) and index in reduce_vars:
                reduced.add(i)
                if keeps:
                    next(spatial, None)
                    if not same_dim(
                        core.axis[i].extent, 1
                    ):  # a result per index, not one for the whole axis
                        return None, False
            elif index is not next(spatial, None):
                return None, False
    if len(reduced) != len(reduce_vars):
        return None, False
    return frozenset(reduced), keeps
