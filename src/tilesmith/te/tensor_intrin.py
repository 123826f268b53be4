"""Declarations of tensor intrinsics: instructions on small tiles, by their expressions."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Collection
from dataclasses import replace
from typing import Any

from tilesmith.ir.expr import Expr, Load, Var, free_vars, post_order, rebuilt
from tilesmith.ir.tensor_intrinsics import KeepAlive, Operand, TensorIntrinsic, declare
from tilesmith.support.arguments import checked
from tilesmith.support.errors import ExpressionError

from .tensor import Compute, Placeholder, Reduce, Tensor


@checked(ExpressionError)
def decl_tensor_intrin(
    name: str,
    result: Tensor,
    emit: Callable[..., Any],
    *,
    accumulates: bool | None = None,
    features: Collection[str] = (),
    fmas: float | str = 1.0,
    first_fmas: float | None = None,
    keep_alive: KeepAlive | None = None,
    load: Callable[..., Any] | None = None,
    registers: int | None = None,
    scratch: int = 0,
    threads: int = 1,
    reads: Callable[[Operand, int], tuple[tuple[int, tuple[int, ...]], ...]] | None = None,
    fills: bool = False,
    tolerance: float = 0.0,
) -> TensorIntrinsic:
    """Declare an instruction, for `Stage.tensorize`.

        a, w = te.placeholder((2,), "i16", "a"), te.placeholder((8, 2), "i16", "w")
        k = te.reduce_axis(2, "k")
        c = te.compute((8,), lambda l: te.sum(a[k].astype("i32") * w[l, k].astype("i32"), axis=k))

        def emit(code, c, a, w):
            pairs = code.call("llvm.x86.avx2.pmadd.wd", "<8 x i32>", code.repeated(a, 8), w)
            return code.add(c, pairs)

        dot = te.decl_tensor_intrin("dot_8", c, emit, features=["avx2"])

    name: unique; a second declaration of the name replaces the first one.
    result: a compute over placeholders of constant shapes, in which each index is an axis.  It may
        be a sum.
    emit: called with a `TensorCode` and the operands as vectors; returns the new result.  The first
        operand is the old result if the instruction accumulates.  The placeholders follow, in the
        order in which the expression reads them.  A tile is a vector of its elements in row-major
        order.
    accumulates: whether the expression is added to the old result; by default true if it is a sum.
    features: LLVM's names of the features that a target must have.
    fmas: time of a call, in multiply-adds of full vectors, or the name of the field of `CpuModel`
        that holds it.
    first_fmas: time of a call whose last operand has just been loaded, as in `fmas`.  None: the
        time of any other call.
    keep_alive: code that must run at intervals in loops of calls.  Otherwise the unit that executes
        the instruction would power down.
    load: loads an operand if the target has instructions that load rows at any stride.  It is
        called with a `TensorCode`, the operand, a pointer to its first element and the stride in
        bytes.  It returns the argument of `emit`.
    registers: number of registers of the target that can hold such tiles.  None: tiles are held in
        the vector registers.
    scratch: number of vector registers that the code needs besides those of the operands and the
        result.
    threads: number of threads that run a call together.  If there are several, they are a warp, and
        the result is in scope `fragment`.  `emit` gets and returns the registers of one thread, and
        `load` fills them.
    reads: called with an operand and its row stride in bytes; returns the loads by which `load`
        reads the operand, to count bank conflicts.  Each load is a pair: the number of bytes per
        thread, and the offset of each thread.
    fills: whether the instruction may fill a whole tile with zeros instead, so that it also
        computes `te.if_then_else(condition, expression, 0)` of a condition on the tile's place.
    tolerance: relative error of the instruction against the expression; 0 for none.

    Raises ExpressionError for an expression that does not describe an instruction.
    """
    op = result.op
    if not name.isidentifier():
        raise ExpressionError(f"tensor intrinsic {name!r}: expected a name of letters and digits")
    if not isinstance(op, Compute) or len(op.body) != 1:
        raise ExpressionError(f"{name}: expected one result of te.compute, found {result!r}")
    root = op.body[0]
    if isinstance(root, Reduce):
        if root.reducer.operation != "add":
            raise ExpressionError(f"{name}: the only reduction of an instruction is te.sum")
        term = root.sources[0]
    else:
        term = root
    axes = (*op.axis, *op.reduce_axis)
    extents = tuple(a.extent for a in axes)
    if not all(isinstance(n, int) and n > 1 for n in extents):
        raise ExpressionError(
            f"{name}: the extents of axes are numbers from 2 on, found "
            f"{', '.join(f'{a.name}: {a.extent}' for a in axes)}"
        )
    operands = {t: _operand(name, t) for t in op.inputs}
    term = _over_operands(name, term, operands, dict.fromkeys(a.var for a in axes))
    summed = isinstance(root, Reduce)
    made = TensorIntrinsic(
        name=name,
        result=Operand(
            op.name or "c", root.dtype, tuple(n for n in result.shape if isinstance(n, int))
        ),
        operands=tuple(operands.values()),
        axes=tuple(a.var for a in axes),
        extents=tuple(n for n in extents if isinstance(n, int)),
        term=term,
        accumulates=summed if accumulates is None else accumulates,
        emit=emit,
        features=frozenset(features),
        fmas=fmas,
        first_fmas=first_fmas,
        keep_alive=keep_alive,
        load=load,
        registers=registers,
        scratch=scratch,
        threads=threads,
        reads=reads,
        fills=fills,
        tolerance=tolerance,
    )
    if summed and not made.accumulates:
        raise ExpressionError(f"{name}: a sum is added to the old result; see accumulates=")
    return declare(_with_digest(made))


def _operand(name: str, t: Tensor) -> Operand:
    shape = tuple(n for n in t.shape if isinstance(n, int))
    if not isinstance(t.op, Placeholder) or len(shape) != len(t.shape):
        raise ExpressionError(f"{name}: {t!r} is no placeholder of constant shape")
    return Operand(t.op.name or "x", t.dtype, shape)


def _over_operands(
    name: str, term: Expr, operands: dict[Tensor, Operand], axes: dict[Expr, None]
) -> Expr:
    """`term` with reads of tensors replaced by operands.  Raises ExpressionError if an operand is
    read in two ways, or if an axis is not only an index.
    """
    done: dict[Expr, Expr] = {}
    seen: dict[Operand, Expr] = {}
    for node in post_order(term):
        new = rebuilt(node, done)
        if isinstance(new, Load) and isinstance(new.buffer, Tensor):
            operand = operands[new.buffer]
            new = Load(operand, new.indices)
            if seen.setdefault(operand, new) is not new or not all(i in axes for i in new.indices):
                raise ExpressionError(
                    f"{name}: {new} is read; an instruction reads each operand once, at axes "
                    f"({', '.join(map(str, axes))})"
                )
        done[node] = new
    replaced = done[term]
    outside = {v for v in free_vars(replaced) if v not in axes}
    if outside or any(v in axes for v in _values(replaced)):
        raise ExpressionError(f"{name}: {replaced} uses axes other than as indices")
    return replaced


def _values(e: Expr) -> set[Expr]:
    """The variables that `e` uses outside of the indices of Loads."""
    if isinstance(e, Load):
        return set()
    variables: set[Expr] = {e} if isinstance(e, Var) else set()
    for child in e.children:
        variables |= _values(child)
    return variables


def _with_digest(made: TensorIntrinsic) -> TensorIntrinsic:
    """The intrinsic with a digest of everything on which its code depends, so that caches do not
    return the code of an older definition.
    """
    body = [_code(f) for f in (made.emit, made.load) if f is not None]
    text = (
        f"{made} {made.operands!r} {sorted(made.features)} {made.tolerance} {made.threads} "
        f"{made.fills} {body!r}"
    )
    return replace(made, digest=hashlib.sha256(text.encode()).hexdigest())


def _code(function: Callable[..., Any]) -> object:
    code = getattr(function, "__code__", None)
    return function if code is None else (code.co_code, code.co_consts, code.co_names)
