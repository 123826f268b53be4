"""Tensorise: loops that a schedule gave to a tensor intrinsic become one call of it.

    tensor dot_8:                              C[ramp(i * 8, 1, 8)] = tensor_dot_8(
        for j in vectorized(8):         ->         C[ramp(i * 8, 1, 8)], A[ramp(k * 2, 1, 2)],
            for q in unrolled(2):                  W[ramp(k * 16, 1, 16)])
                C[i * 8 + j] = C[i * 8 + j] + i32(A[k * 2 + q]) * i32(W[k * 16 + j * 2 + q])

The schedule proved that the loops compute the intrinsic's behaviour.  Here the tiles must lie in
memory as the instruction reads them.  In the tail of a tile a guard is left inside; there the loops
stay.
"""

from __future__ import annotations

from collections.abc import Sequence

from tilesmith.ir.affine import affine_form
from tilesmith.ir.expr import Binary, Const, Expr, Load, Ramp, TensorCall, Var, const, substitute
from tilesmith.ir.simplify import simplify
from tilesmith.ir.tensor_intrinsics import (
    Operand,
    TensorIntrinsic,
    assignments,
    matches,
    tensor_intrinsic,
)
from tilesmith.support.errors import ScheduleError

from ..nodes import For, Func, Stmt, Store, Tensorize
from ..visit import map_stmt, walk


def tensorize(func: Func) -> Func:
    """`func` (stage "flat") without `Tensorize`; the same object if it has none.

    Raises ScheduleError for tiles that lie in memory otherwise than the intrinsic reads them.
    """
    if not any(isinstance(s, Tensorize) for s in walk(func.body)):
        return func
    body = map_stmt(func.body, None, lambda s: _call(s) if isinstance(s, Tensorize) else s)
    return Func(func.name, func.params, func.outputs, body, func.attrs)


def without_intrinsics(func: Func) -> Func:
    """`func` with the loops instead of the intrinsics that compute them."""
    if not any(isinstance(s, Tensorize) for s in walk(func.body)):
        return func
    body = map_stmt(func.body, None, lambda s: s.body if isinstance(s, Tensorize) else s)
    return Func(func.name, func.params, func.outputs, body, func.attrs)


def _call(stmt: Tensorize) -> Stmt:
    intrinsic = tensor_intrinsic(stmt.intrinsic)
    loops: list[For] = []
    inner = stmt.body
    while isinstance(inner, For):
        loops.append(inner)
        inner = inner.body
    if not isinstance(inner, Store) or any(not isinstance(f.extent, Const) for f in loops):
        return stmt.body  # a tail
    begin: dict[Expr, Expr] = {f.var: f.start for f in loops}
    sizes = {f.var: int(f.extent.value) for f in loops if isinstance(f.extent, Const)}
    is_reduced = [f.var not in affine_form(inner.indices[0])[0] for f in loops]
    shape = [(sizes[f.var], r) for f, r in zip(loops, is_reduced, strict=True)]
    if sorted(shape) != sorted(zip(intrinsic.extents, intrinsic.is_reduced, strict=True)):
        return stmt.body  # a tail of fewer iterations
    problem = ""
    for term in _terms(intrinsic, inner):
        for binding in matches(intrinsic, term):
            tiles = {**binding, intrinsic.result: Load(inner.buffer, inner.indices)}
            for order in assignments(intrinsic, shape):
                axes = [loops[n].var for n in order]
                strides = {o: _strides(e, axes) for o, e in tiles.items()}
                if any(_moves(s) != _moves(intrinsic.strides(o)) for o, s in strides.items()):
                    continue  # another operand's place
                problem = _misplaced(intrinsic, tiles, strides)
                if not problem:
                    vectors = {o: _vector(o, e, begin) for o, e in tiles.items()}
                    return _store(intrinsic, vectors)
    problem = problem or "its operands are not read from memory"
    raise ScheduleError(
        f"cannot tensorize with {intrinsic.name}: {problem}; the intrinsic computes {intrinsic}, "
        f"the loops compute {inner.buffer.name}[{inner.indices[0]}] = {inner.value}"
    )


def _terms(intrinsic: TensorIntrinsic, store: Store) -> list[Expr]:
    """What the loops add to the old result, or store."""
    if not intrinsic.accumulates:
        return [store.value]
    here = Load(store.buffer, store.indices)
    value = store.value
    if not isinstance(value, Binary) or value.op != "add":
        return []
    return [b for a, b in ((value.a, value.b), (value.b, value.a)) if a is here]


def _strides(load: Load, loops: list[Var]) -> list[int]:
    """For each loop, the distance in memory between neighbouring iterations."""
    terms, _ = affine_form(load.indices[0])
    return [terms.get(v, 0) for v in loops]


def _misplaced(
    intrinsic: TensorIntrinsic, tiles: dict[Operand, Load], strides: dict[Operand, list[int]]
) -> str:
    """What is wrong with the places of tiles in memory; empty for nothing."""
    for operand, found in strides.items():
        wanted = list(intrinsic.strides(operand))
        if wanted != found:
            axes = ", ".join(a.name for a in intrinsic.axes)
            return (
                f"operand {operand} must lie in memory with strides {_listed(wanted)} along "
                f"{axes}, found {tiles[operand].buffer.name} with {_listed(found)} (pack it with "
                "transform_layout or cache_read)"
            )
    return ""


def _moves(strides: Sequence[int]) -> list[bool]:
    return [stride != 0 for stride in strides]


def _listed(numbers: list[int]) -> str:
    return ", ".join(map(str, numbers))


def _vector(operand: Operand, load: Load, begin: dict[Expr, Expr]) -> Load:
    """The elements of a tile, from the first one on."""
    first = simplify(substitute(load.indices[0], begin))
    index = first if operand.size == 1 else Ramp(first, const(1), operand.size)
    return Load(load.buffer, (index,))


def _store(intrinsic: TensorIntrinsic, vectors: dict[Operand, Load]) -> Store:
    result = vectors[intrinsic.result]
    read = [vectors[o] for o in intrinsic.operands]
    if intrinsic.accumulates:
        read.insert(0, result)
    made = TensorCall(intrinsic.name, tuple(read), result.dtype, result.lanes)
    buffer = result.buffer
    return Store(buffer, result.indices, made)  # type: ignore[arg-type]  # a buffer, no tensor
