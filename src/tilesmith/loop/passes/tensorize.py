"""Tensorise: loops that a schedule assigned to a tensor intrinsic become one call of it.

    tensor dot_8:                              C[ramp(i * 8, 1, 8)] = tensor_dot_8(
        for j in vectorized(8):         ->         C[ramp(i * 8, 1, 8)], A[ramp(k * 2, 1, 2)],
            for q in unrolled(2):                  W[ramp(k * 16, 1, 16)])
                C[i * 8 + j] = C[i * 8 + j] + i32(A[k * 2 + q]) * i32(W[k * 16 + j * 2 + q])

The schedule has proved that the loops compute the intrinsic's behaviour.  This pass checks that the
tiles have the memory layout that the instruction reads.  If a guard remains inside the loops, the
loops are kept for partial tiles.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import product

from tilesmith.ir import expr as ir
from tilesmith.ir.affine import affine_form
from tilesmith.ir.expr import Expr, Var, all_of, const, free_vars, substitute
from tilesmith.ir.lane_offsets import Rows
from tilesmith.ir.simplify import simplify
from tilesmith.ir.tensor_intrinsics import (
    Operand,
    TensorIntrinsic,
    assignments,
    matches,
    of_rows,
    tensor_intrinsic,
)
from tilesmith.support.errors import ScheduleError

from ..facts import conjuncts
from ..nodes import For, Func, If, Stmt, Store, Tensorize
from ..visit import map_stmt


def tensorize(func: Func) -> Func:
    """`func` (stage "flat") without `Tensorize`; the same object if it has none.

    Raises ScheduleError for tiles with another memory layout than the intrinsic reads.
    """
    body = map_stmt(func.body, None, lambda s: _call(s) if isinstance(s, Tensorize) else s)
    return func.with_body(body)


def without_intrinsics(func: Func) -> Func:
    """`func` with loops in place of all intrinsics."""
    return _without(func, lambda s: True)


def without_own_intrinsics(func: Func) -> Func:
    """`func` with loops in place of the intrinsics that a single thread runs."""
    return _without(func, lambda s: tensor_intrinsic(s.intrinsic).threads == 1)


def _without(func: Func, which: Callable[[Tensorize], bool]) -> Func:
    def stmt(s: Stmt) -> Stmt:
        return s.body if isinstance(s, Tensorize) and which(s) else s

    return func.with_body(map_stmt(func.body, None, stmt))


def _call(stmt: Tensorize) -> Stmt:
    intrinsic = tensor_intrinsic(stmt.intrinsic)
    loops: list[For] = []
    inner = stmt.body
    while isinstance(inner, For):
        loops.append(inner)
        inner = inner.body
    guard = const(True)
    if isinstance(inner, If) and inner.otherwise is None:  # the tail of the loop
        guard, inner = inner.cond, inner.then
    if not isinstance(inner, Store) or any(not isinstance(f.extent, ir.Const) for f in loops):
        return stmt.body
    if intrinsic.fills and inner.value is const(0, inner.value.dtype):
        return stmt.body  # the condition is false for all tiles
    begin: dict[Expr, Expr] = {f.var: f.start for f in loops}
    sizes = {f.var: int(f.extent.value) for f in loops if isinstance(f.extent, ir.Const)}
    is_reduced = [f.var not in affine_form(inner.indices[0])[0] for f in loops]
    shape = [(sizes[f.var], r) for f, r in zip(loops, is_reduced, strict=True)]
    fitting = (intrinsic, *(of_rows(intrinsic, n) for n, _ in shape))  # the tail has fewer rows
    fitted = next((i for i in fitting if i is not None and _has_shape(i, shape)), None)
    if fitted is None:
        return stmt.body  # no intrinsic has this shape
    intrinsic = fitted
    problem = ""
    for condition, term in _terms(intrinsic, inner):
        if free_vars(condition) & begin.keys():
            continue  # it differs inside the tile
        for binding in matches(intrinsic, term):
            tiles = {**binding, intrinsic.result: ir.Load(inner.buffer, inner.indices)}
            for order in assignments(intrinsic, shape):
                axes = [loops[n].var for n in order]
                strides = {o: _strides(e, axes) for o, e in tiles.items()}
                if any(_moves(s) != _moves(intrinsic.strides(o)) for o, s in strides.items()):
                    continue  # in this order, some operand varies along wrong axes
                problem = _misplaced(intrinsic, tiles, strides)
                if not problem:
                    vectors = {
                        o: _vector(o, e, begin, intrinsic.strides(o), strides[o])
                        for o, e in tiles.items()
                    }
                    call = _filled(condition, _store(intrinsic, vectors))
                    full = _holds_everywhere(guard, loops)
                    if full is None:
                        return stmt.body
                    return call if full is const(True) else If(full, call, stmt.body)
    problem = problem or "its operands are not read from memory"
    raise ScheduleError(
        f"cannot tensorize with {intrinsic.name}: {problem}; the intrinsic computes {intrinsic}, "
        f"the loops compute {inner.buffer.name}[{inner.indices[0]}] = {inner.value}"
    )


def _has_shape(intrinsic: TensorIntrinsic, loops: list[tuple[int, bool]]) -> bool:
    """Whether `loops`, as pairs (extent, whether reduced), are the intrinsic's axes in some
    order.
    """
    return sorted(loops) == sorted(zip(intrinsic.extents, intrinsic.is_reduced, strict=True))


def _terms(intrinsic: TensorIntrinsic, store: Store) -> list[tuple[Expr, Expr]]:
    """The possible terms that the loops add to the old result; the stored value if the intrinsic
    does not accumulate.  Before each, the condition under which it isn't zero.
    """
    if not intrinsic.accumulates:
        return [intrinsic.unfilled(store.value)]
    here = ir.Load(store.buffer, store.indices)
    value = store.value
    if not isinstance(value, ir.Binary) or value.op != "add":
        return []
    return [(const(True), b) for a, b in ((value.a, value.b), (value.b, value.a)) if a is here]


def _filled(condition: Expr, call: Store) -> Stmt:
    """The call where `condition` holds, and zeros elsewhere."""
    if condition is const(True):
        return call
    zeros = const(0, call.value.dtype)
    filled = zeros if call.value.lanes == 1 else ir.Broadcast(zeros, call.value.lanes)
    return If(condition, call, Store(call.buffer, call.indices, filled))


def _holds_everywhere(guard: Expr, loops: list[For]) -> Expr | None:
    """A condition without the loops' variables that implies that `guard` is true in all iterations;
    None if `guard` is not linear.

    A linear inequality that is true in all corners of a box is true in the whole box.
    """
    conditions: list[Expr] = []
    for part in conjuncts(guard):
        linear = part is const(True) or (isinstance(part, ir.Compare) and part.op in ("lt", "le"))
        if not linear or not all(_is_linear(e, loops) for e in part.children):
            return None
        moving = [f for f in loops if f.var in free_vars(part)]
        for corner in product(*((f.start, f.start + f.extent - 1) for f in moving)):
            point: dict[Expr, Expr] = dict(zip((f.var for f in moving), corner, strict=True))
            conditions.append(simplify(substitute(part, point)))
    return simplify(all_of(*conditions))


def _is_linear(e: Expr, loops: list[For]) -> bool:
    """Whether the loops' variables occur only as terms of the sum `e`."""
    own = {f.var for f in loops}
    return all(t in own or not free_vars(t) & own for t in affine_form(e)[0])


def _strides(load: ir.Load, loops: list[Var]) -> list[int]:
    """For each loop, the stride in memory between the elements of neighbouring iterations."""
    terms, _ = affine_form(load.indices[0])
    return [terms.get(v, 0) for v in loops]


def _misplaced(
    intrinsic: TensorIntrinsic, tiles: dict[Operand, ir.Load], strides: dict[Operand, list[int]]
) -> str:
    """Text about the first tile with a wrong memory layout; empty if there is none."""
    for operand, actual in strides.items():
        wanted = list(intrinsic.strides(operand))
        if not _fits(intrinsic, operand, actual):
            axes = ", ".join(a.name for a in intrinsic.axes)
            return (
                f"operand {operand} must lie in memory with strides {_listed(wanted)} along "
                f"{axes}, found {tiles[operand].buffer.name} with {_listed(actual)} (pack it with "
                "transform_layout or cache_read)"
            )
    return ""


def _fits(intrinsic: TensorIntrinsic, operand: Operand, actual: list[int]) -> bool:
    """Whether a tile has the layout that the intrinsic reads.  If the intrinsic loads operands
    itself, the rows of these may have any stride.
    """
    wanted = intrinsic.strides(operand)
    apart = intrinsic.load is not None and operand is not intrinsic.result
    row = operand.strides()[0] if apart and len(operand.shape) > 1 else None
    return all(a == b or (a == row and b > 0) for a, b in zip(wanted, actual, strict=True))


def _moves(strides: Sequence[int]) -> list[bool]:
    return [stride != 0 for stride in strides]


def _listed(numbers: list[int]) -> str:
    return ", ".join(map(str, numbers))


def _vector(
    operand: Operand,
    load: ir.Load,
    begin: dict[Expr, Expr],
    wanted: Sequence[int],
    actual: list[int],
) -> ir.Load:
    """A load of all elements of a tile as one vector.

    wanted, actual: strides of the tile along each axis, in the vector and in memory.
    """
    first = simplify(substitute(load.indices[0], begin))
    if operand.size == 1:
        return ir.Load(load.buffer, (first,))
    row = operand.strides()[0]
    distance = actual[wanted.index(row)] if row in wanted else row
    return ir.Load(load.buffer, (Rows(first, operand.shape[0], row, distance).index(),))


def _store(intrinsic: TensorIntrinsic, vectors: dict[Operand, ir.Load]) -> Store:
    result = vectors[intrinsic.result]
    read = [vectors[o] for o in intrinsic.operands]
    if intrinsic.accumulates:
        read.insert(0, result)
    buffer = result.buffer
    return Store(buffer, result.indices, intrinsic.call(read))  # type: ignore[arg-type]  # a buffer, no tensor
