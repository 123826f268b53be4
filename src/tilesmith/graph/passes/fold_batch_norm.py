"""Scales and shifts after a convolution or matrix product fold into its constant weights and bias.

After `decompose` and `fold` a batch normalisation is x * factor + offset with known factor and
offset per channel.

    conv(x, w) * f            ->  conv(x, w * f)
    (conv(x, w) + b) * f      ->  conv(x, w * f) + b * f
    (conv(x, w) + b) + c      ->  conv(x, w) + (b + c)

The structure decides, not names: any chain of additions, subtractions, products and quotients by
per-channel constants is folded.  The factor is then rounded once per weight instead of once per
result (both within half an ULP).  A factor that would make a finite weight infinite is not folded.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from tilesmith.graph.nodes import Graph, Node, Value
from tilesmith.graph.passes.rewriter import Result, Rewriter, Rule
from tilesmith.ir.types import same_dim
from tilesmith.ops.base import Op
from tilesmith.ops.conv import Conv, ConvTranspose
from tilesmith.ops.elementwise import Add, Div, Mul, Sub
from tilesmith.ops.matmul import MatMul

_ANCHORS = (Conv, ConvTranspose, MatMul)


def fold_batch_norm(graph: Graph) -> Graph:
    """`graph` with scales and shifts folded; the same object if there are none."""
    return Rewriter(graph, _RULES).run()


def _combine(
    function: Callable[..., np.ndarray], a: np.ndarray, b: np.ndarray
) -> np.ndarray | None:
    """`function` of the arrays, computed in f64 and rounded to the type of `a`; None if a result is
    not finite.
    """
    result = np.empty(np.broadcast_shapes(a.shape, b.shape), a.dtype)
    with np.errstate(all="ignore"):
        # A few thousand elements are converted at a time: weights are large.
        function(a, b, out=result, dtype=np.float64, casting="unsafe")
    # If an element is NaN, the minimum and the maximum are NaN too.
    ends = (result.min(), result.max()) if result.size else ()
    return result if all(math.isfinite(float(end)) for end in ends) else None


def _anchor(r: Rewriter, value: Value) -> Node | None:
    """The convolution or product with constant weights that defines `value`; None if there is none,
    or if `value` has several readers.
    """
    node = r.producer(value, *_ANCHORS)
    if node is None or not r.is_single_use(value) or not value.dtype.is_float:
        return None
    return node if r.is_constant(node.inputs[1]) and node.inputs[1].type.rank >= 2 else None


def _per_channel(anchor: Node, array: np.ndarray) -> np.ndarray | None:
    """`array` as a vector over the channels of the anchor's result, or of length 1.  None if it
    varies along other axes.
    """
    out = anchor.outputs[0]
    axis = out.type.rank - 1 if isinstance(anchor.op, MatMul) else 1
    shape = (1,) * (out.type.rank - array.ndim) + array.shape
    if len(shape) != out.type.rank or math.prod(shape) != shape[axis]:
        return None
    fits = shape[axis] == 1 or same_dim(shape[axis], out.shape[axis])
    return array.reshape(-1) if fits else None


def _scaled_weights(anchor: Node, w: np.ndarray, factor: np.ndarray) -> np.ndarray | None:
    if isinstance(anchor.op, MatMul):
        column = factor[:, None] if anchor.op.transpose_b else factor
        return _combine(np.multiply, w, column)
    if isinstance(anchor.op, ConvTranspose):  # [IC, OC / groups, kernel...]
        groups = anchor.op.groups
        split = w.reshape(groups, w.shape[0] // groups, w.shape[1], -1)
        wide = np.broadcast_to(factor, groups * w.shape[1]).reshape(groups, 1, w.shape[1], 1)
        scaled = _combine(np.multiply, split, wide)
        return None if scaled is None else scaled.reshape(w.shape)
    return _combine(np.multiply, w, factor.reshape(-1, *[1] * (w.ndim - 1)))


def _scale(r: Rewriter, n: Node, x: Value, factor: np.ndarray) -> Result:
    """`x * factor` with `factor` folded into the node that defines `x`."""
    anchor, bias = _anchor(r, x), None
    if anchor is None:
        shift = r.producer(x, Add) if r.is_single_use(x) else None
        if shift is None or shift.outputs[0].type != n.outputs[0].type:
            return None
        for value, constant in (shift.inputs, shift.inputs[::-1]):
            anchor, bias = _anchor(r, value), r.array(constant)
            if anchor is not None and bias is not None:
                break
        else:
            return None
    weights = r.array(anchor.inputs[1])
    vector = _per_channel(anchor, factor)
    if vector is None or weights is None or anchor.outputs[0].type != n.outputs[0].type:
        return None
    new_weights = _scaled_weights(anchor, weights, vector)
    new_bias = None if bias is None else _combine(np.multiply, bias, factor)
    if new_weights is None or (bias is not None and new_bias is None):
        return None
    product = r.add(anchor.op, anchor.inputs[0], r.constant(new_weights, anchor.inputs[1].name))
    return product if new_bias is None else r.add(Add(), product, r.constant(new_bias))


def _mul(r: Rewriter, n: Node) -> Result:
    for x, c in (n.inputs, n.inputs[::-1]):
        factor = r.array(c)
        if factor is not None:
            return _scale(r, n, x, factor)
    return None


def _div(r: Rewriter, n: Node) -> Result:
    divisor = r.array(n.inputs[1])
    if divisor is None or not divisor.size or not n.inputs[1].dtype.is_float or not divisor.all():
        return None
    # In f64, so that the weights are rounded once.
    return _scale(r, n, n.inputs[0], 1.0 / divisor.astype(np.float64))


def _shift(sign: int) -> Rule:
    """(anchor + b) + c -> anchor + (b + c), and the same for a subtraction."""

    def rule(r: Rewriter, n: Node) -> Result:
        orders = (n.inputs, n.inputs[::-1]) if sign > 0 else (n.inputs,)
        for x, c in orders:
            offset = r.array(c)
            inner = r.producer(x, Add) if offset is not None and r.is_single_use(x) else None
            if offset is None or not x.dtype.is_float:
                continue
            if inner is None:
                if sign < 0 and _anchor(r, x) and x.type == n.outputs[0].type:
                    return r.add(Add(), x, r.constant(-offset))  # other rules match this form
                continue
            for value, constant in (inner.inputs, inner.inputs[::-1]):
                bias, anchor = r.array(constant), _anchor(r, value)
                if bias is None or anchor is None or value.type != n.outputs[0].type:
                    continue
                total = _combine(np.add, bias, sign * offset)
                if total is not None and _per_channel(anchor, total) is not None:
                    return r.add(Add(), value, r.constant(total))
        return None

    return rule


_RULES: dict[type[Op], tuple[Rule, ...]] = {
    Mul: (_mul,),
    Div: (_div,),
    Add: (_shift(1),),
    Sub: (_shift(-1),),
}
