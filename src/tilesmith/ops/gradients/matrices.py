"""Gradients of matrix products and of linear equations."""

from __future__ import annotations

from typing import Any

import numpy as np

from tilesmith.ops.linalg import Det, Solve
from tilesmith.ops.matmul import MatMul
from tilesmith.ops.rules import product, static

from .call import Call, gradient, summed_to


@gradient(MatMul)
def matmul(call: Call) -> tuple[Any, ...]:
    """The gradients are products of the cotangent with the other operand, summed over broadcast
    axes.
    """
    op, b = call.op, call.builder
    dtype = call.outputs[0].type.dtype
    g = call.cotangent
    x, y = (v.cast(dtype) for v in call.inputs)
    tx, ty = op.transpose_a and x.type.rank > 1, op.transpose_b and y.type.rank > 1
    if y.type.rank == 1:
        g = g.reshape(*g.type.shape, 1)
        y = y.reshape(*y.type.shape, 1)
    if x.type.rank == 1:
        g = g.reshape(*g.type.shape[:-1], 1, g.type.shape[-1])
        x = x.reshape(1, *x.type.shape)
    if y.type.rank == 2 and x.type.rank > 2 and not tx:  # one product instead of one per batch
        x = x.reshape(product(x.type.shape[:-1]), x.type.shape[-1])
        g = g.reshape(product(g.type.shape[:-1]), g.type.shape[-1])
    to_x = to_y = None
    if call.wanted[0]:
        to_x = b.add(MatMul(ty, True), y, g) if tx else b.add(MatMul(False, not ty), g, y)
    if call.wanted[1]:
        to_y = b.add(MatMul(True, tx), g, x) if ty else b.add(MatMul(not tx, False), x, g)
    gradients = []
    for d, v, whole in zip((to_x, to_y), (x, y), call.inputs, strict=True):
        if d is not None:
            d = summed_to(d, v.type.shape).cast(whole.type.dtype)
            d = d if v.type.shape == whole.type.shape else d.reshape(*whole.type.shape)
        gradients.append(d)
    return tuple(gradients)


def _transposed(x: Any) -> Any:
    rank = x.type.rank
    return x.transpose(*range(rank - 2), rank - 1, rank - 2)


@gradient(Solve)
def solve(call: Call) -> tuple[Any, ...]:
    """With a x = b: the gradient of b solves the transposed equations, that of a is -db x^T."""
    (a, _), x = call.inputs, call.outputs[0]
    to_b = call.builder.add(Solve(), _transposed(a), call.cotangent)
    to_a = -call.builder.add(MatMul(transpose_b=True), to_b, x) if call.wanted[0] else None
    return to_a, to_b


@gradient(Det)
def det(call: Call) -> tuple[Any, ...]:
    """The gradient is the determinant times the transposed inverse (Jacobi's formula).  Matrices
    must be invertible.
    """
    a, y = call.inputs[0], call.outputs[0]
    size = static(call.op.name, a.type.shape[-1], "the size of a matrix")
    identity = call.builder.constant(np.eye(size, dtype=a.type.dtype.numpy))
    inverse = call.builder.add(Solve(), _transposed(a), identity.expand(*a.type.shape))
    return ((call.cotangent * y).reshape(*y.type.shape, 1, 1) * inverse,)
