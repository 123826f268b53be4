"""Core ML's normalisations."""

from __future__ import annotations

import numpy as np

from tilesmith.frontend.common.slots import Result
from tilesmith.frontend.coreml.node import MilNode
from tilesmith.frontend.coreml.registry import mil_op
from tilesmith.graph.nodes import Value
from tilesmith.ops import norm
from tilesmith.ops.functions import rsqrt


def _or(n: MilNode, name: str, number: float, like: Value, dims: tuple[int, ...]) -> Value:
    """A parameter; by default the same number for each of `dims`."""
    stored = n.optional(name)
    return n.const(np.full(dims, number, like.dtype.numpy)) if stored is None else stored


@mil_op("batch_norm")
def batch_norm(n: MilNode) -> Result:
    x, mean, variance = n.input("x"), n.input("mean"), n.input("variance")
    dims = n.shape(mean)
    scale, bias = _or(n, "gamma", 1, x, dims), _or(n, "beta", 0, x, dims)
    return n.add(norm.BatchNorm(n.number("epsilon", 1e-5)), x, scale, bias, mean, variance)


@mil_op("instance_norm")
def instance_norm(n: MilNode) -> Result:
    x = n.input("x")
    dims = (n.extent(x, 1),)
    scale, bias = _or(n, "gamma", 1, x, dims), _or(n, "beta", 0, x, dims)
    return n.add(norm.InstanceNorm(n.number("epsilon", 1e-5)), x, scale, bias)


@mil_op("layer_norm")
def layer_norm(n: MilNode) -> Result:
    x = n.input("x")
    rank = x.type.rank
    axes = tuple(sorted(n.axes(n.ints("axes", range(rank)), rank)))
    # the normalised axes must be the last ones
    order = (*(a for a in range(rank) if a not in axes), *axes)
    y = x.transpose(*order)
    dims = n.shape(n.input("gamma")) if n.has("gamma") else None
    if dims is None:
        dims = tuple(n.extent(x, a) for a in axes)
    op = norm.LayerNorm(rank - len(axes), n.number("epsilon", 1e-5))
    y = n.add(op, y, _or(n, "gamma", 1, x, dims), _or(n, "beta", 0, x, dims))
    return y.transpose(*np.argsort(order).tolist())


@mil_op("l2_norm")
def l2_norm(n: MilNode) -> Result:
    x = n.input("x")
    if x.type.rank < 3:
        n.bad(f"expected a tensor of 3 axes or more, found {x.type}")
    axes = tuple(range(x.type.rank - 3, x.type.rank))
    total = (x * x).sum(axes, keepdims=True)
    return x * rsqrt(total + n.number("epsilon", 1e-6))


@mil_op("local_response_norm")
def local_response_norm(n: MilNode) -> Result:
    size = n.int("size")
    if size < 1:
        n.bad(f"size: expected at least 1, found {size}")
    op = norm.Lrn(size, n.number("alpha", 1e-4), n.number("beta", 0.75), n.number("k", 1.0))
    return n.add(op, n.input("x"))
