"""Keras' merging layers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial, reduce
from typing import Any

from tilesmith.frontend.keras.node import KerasNode, Tensor, with_axis
from tilesmith.frontend.keras.normalizations import unit
from tilesmith.frontend.keras.registry import layer
from tilesmith.graph.nodes import Value
from tilesmith.ir import extents
from tilesmith.ops import functions as fn
from tilesmith.ops import matmul as mm
from tilesmith.ops import slicing

_BINARY: dict[str, Callable[[Any, Any], Any]] = {
    "Add": lambda a, b: a + b,
    "Average": lambda a, b: a + b,
    "Maximum": fn.maximum,
    "Minimum": fn.minimum,
    "Multiply": lambda a, b: a * b,
    "Subtract": lambda a, b: a - b,
}


def _aligned(n: KerasNode, inputs: Sequence[Value]) -> list[Value]:
    """Tensors of equal rank.  A tensor of lower rank gets axes of extent 1 after its batch axis."""
    most = max(v.type.rank for v in inputs)

    def wide(v: Value) -> Value:
        return n.reshape(v, (v.type.shape[0], *[1] * (most - v.type.rank), *v.type.shape[1:]))

    return [wide(v) if 0 < v.type.rank < most else v for v in inputs]


def _merge(n: KerasNode, combine: Callable[[Any, Any], Any]) -> Tensor:
    inputs = _aligned(n, n.together(*n.inputs))
    if (n.kind == "Subtract" and len(inputs) != 2) or not inputs:
        n.bad(f"expected 2 inputs, found {len(inputs)}")
    y = reduce(combine, inputs)
    masks = [t.mask for t in n.tensors]
    known = [m for m in masks if m is not None]
    mask = reduce(lambda a, b: a & b, known) if known and len(known) == len(masks) else None
    return Tensor(y / float(len(inputs)) if n.kind == "Average" else y, mask)


for _name, _combine in _BINARY.items():
    layer(_name)(partial(_merge, combine=_combine))


@layer("Concatenate")
def concatenate(n: KerasNode) -> Tensor:
    rank, inputs = n.input().type.rank, list(n.together(*n.inputs))
    axis = n.axis(n.option("axis", -1, int), rank)
    masks, mask = [t.mask for t in n.tensors], None
    if any(m is not None for m in masks):
        wide = []
        for v, m in zip(inputs, masks):
            m = n.expand(n.const(True), v.type.shape[:-1]) if m is None else m
            for _ in range(rank - m.type.rank):
                m = with_axis(n, m, -1)
            wide.append(n.expand(m, v.type.shape))
        all_ = n.add(slicing.Concat(axis), *wide).cast(inputs[0].dtype)
        mask = all_.min((rank - 1,)) > 0
    return Tensor(n.add(slicing.Concat(axis), *inputs) if len(inputs) > 1 else inputs[0], mask)


@layer("Dot")
def dot(n: KerasNode) -> Value:
    a, b = n.together(n.input(0), n.input(1))
    axes = n.option("axes")
    i, j = (axes, axes) if isinstance(axes, int) else n.integers("axes", 2)
    i, j = n.axis(i, a.type.rank), n.axis(j, b.type.rank)
    if 0 in (i, j):
        n.bad("'axes': expected axes after the batch, found 0")
    if n.option("normalize", False):
        a, b = unit(a, (i,)), unit(b, (j,))
    left = [k for k in range(1, a.type.rank) if k != i]
    right = [k for k in range(1, b.type.rank) if k != j]
    rows = [a.type.shape[k] for k in left]
    columns = [b.type.shape[k] for k in right]
    batch, inner = a.type.shape[0], a.type.shape[i]
    a = n.reshape(a.transpose(0, *left, i), (batch, extents.product(rows), inner))
    b = n.reshape(b.transpose(0, j, *right), (batch, inner, extents.product(columns)))
    dims = (batch, *rows, *columns)
    return n.reshape(n.add(mm.MatMul(), a, b), dims if len(dims) > 1 else (batch, 1))
