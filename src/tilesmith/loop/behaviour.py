"""The loops that a tensor intrinsic replaces."""

from __future__ import annotations

from tilesmith.ir.expr import Expr, Load, const, post_order, rebuilt
from tilesmith.ir.tensor_intrinsics import Operand, TensorIntrinsic

from .nodes import Buffer, For, Func, Stmt, Store


def behaviour(intrinsic: TensorIntrinsic) -> Func:
    """The computation of a call, as a function of its operands and the result.

    The result holds its old value at the start if the intrinsic accumulates, otherwise zeros.
    """
    buffers = {o: Buffer(o.name, o.dtype, o.shape) for o in (*intrinsic.operands, intrinsic.result)}
    done: dict[Expr, Expr] = {}
    for node in post_order(intrinsic.term):
        new = rebuilt(node, done)
        if isinstance(new, Load) and isinstance(new.buffer, Operand):
            new = Load(buffers[new.buffer], new.indices)
        done[node] = new
    result = buffers[intrinsic.result]
    indices = tuple(intrinsic.axes[: len(intrinsic.result.shape)])
    term = done[intrinsic.term]
    adds = intrinsic.accumulates or any(intrinsic.is_reduced)
    body: Stmt = Store(result, indices, Load(result, indices) + term if adds else term)
    for axis, extent in reversed([*zip(intrinsic.axes, intrinsic.extents, strict=True)]):
        body = For(axis, const(0), const(extent), "serial", body)
    return Func(intrinsic.name, tuple(buffers.values()), (result,), body)
