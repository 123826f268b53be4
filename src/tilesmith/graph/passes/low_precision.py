"""Products of f32 get operands of 16 bits; their sums stay f32.

    matmul(x, w)  ->  matmul(bf16(x), bf16 w, to=f32)     where the target multiplies such numbers
    matmul(x, w)  ->  matmul(x, bf16 w, to=f32)           where the kernel waits for the weights

One factor is a constant and is stored in the low type.  A cast node, which fuses like any other,
converts the other factor.  All other values stay f32: sums, norms, softmax, residual adds, and
products of two computed tensors, as in attention.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Literal, TypeAlias

import numpy as np

from tilesmith.graph.control import everywhere
from tilesmith.graph.nodes import Graph, Node, Value
from tilesmith.graph.passes.factors import with_channels
from tilesmith.graph.passes.rewriter import Result, Rewriter
from tilesmith.ir.dtypes import DType, bf16, f16, f32
from tilesmith.ops.conv import Conv, ConvTranspose
from tilesmith.ops.elementwise import Cast
from tilesmith.ops.matmul import MatMul

LOW_TYPES: dict[str, DType] = {"bf16": bf16, "f16": f16}

Form: TypeAlias = Literal["operands", "weights"]
"""The factors that get the low type: both ("operands"), or only the constant one ("weights")."""

Wanted: TypeAlias = Callable[[str], DType | None]
"""Name of a node -> its low type; None for f32."""

Choice: TypeAlias = Callable[[Node, int, DType, int], Form | None]
"""Chooses which factors of a product get the low type; None if the low type would not be faster.
Arguments: the node, the number of the constant factor, the low type, and the bytes of all
constants.
"""


def low_precision(graph: Graph, wanted: Wanted, choice: Choice) -> Graph:
    """`graph` with operands of low types in products; the same object if no product gets them."""
    constants = constant_bytes(graph)
    made: dict[tuple[Value, DType], Value | None] = {}

    def lower(r: Rewriter, n: Node) -> Result:
        factor = constant_factor(n, r.is_constant)
        low = None if factor is None else wanted(n.loc)
        form = None if factor is None or low is None else choice(n, factor, low, constants)
        if factor is None or low is None or form is None:
            return None
        old = n.inputs[factor]
        if (old, low) not in made:
            made[old, low] = _rounded(r, old, low)
        weights = made[old, low]
        if weights is None:
            return None
        other = n.inputs[1 - factor]
        assert isinstance(n.op, (MatMul, Conv))
        if form == "operands":
            other = r.add(Cast(low), other)
            if factor == 1:
                other, weights = with_channels(r, n.op, other, weights, f32.bytes // low.bytes)
        operands = (weights, other) if factor == 0 else (other, weights)
        return r.add(replace(n.op, to=f32), *operands)

    return Rewriter(graph, {MatMul: (lower,), Conv: (lower,)}).run()


def low_products(graph: Graph, low: DType) -> Graph:
    """`graph` with both operands of all its products of f32 rounded to type `low`, also of products
    of two computed tensors, such as those of training steps, and in branches and loops.  Sums stay
    f32.  Operands of a transposed convolution are f32 again after rounding, because its result has
    their type.
    """

    def lower(r: Rewriter, n: Node) -> Result:
        assert isinstance(n.op, (MatMul, Conv))
        if n.op.to is not None or any(v.dtype is not f32 for v in n.inputs):
            return None
        return r.add(replace(n.op, to=f32), *(r.add(Cast(low), v) for v in n.inputs))

    def is_rounded(r: Rewriter, v: Value) -> bool:
        cast = r.producer(v, Cast)
        return cast is not None and cast.inputs[0].dtype is low

    def round_operands(r: Rewriter, n: Node) -> Result:
        if any(v.dtype is not f32 for v in n.inputs) or all(is_rounded(r, v) for v in n.inputs):
            return None
        return r.add(n.op, *(r.add(Cast(f32), r.add(Cast(low), v)) for v in n.inputs))

    rules = {MatMul: (lower,), Conv: (lower,), ConvTranspose: (round_operands,)}
    return everywhere(lambda g: Rewriter(g, rules).run())(graph)


def constant_bytes(graph: Graph) -> int:
    """Bytes of all constants of a graph."""
    return sum(c.value.type.size * c.value.dtype.bytes for c in graph.constants)


def constant_factor(n: Node, is_constant: Callable[[Value], bool]) -> int | None:
    """The operand number of the constant factor of a product of f32; None for other nodes."""
    if not isinstance(n.op, (MatMul, Conv)) or n.op.to is not None:
        return None
    if any(v.dtype is not f32 for v in n.inputs):
        return None
    constants = [i for i, v in enumerate(n.inputs) if is_constant(v)]
    return constants[0] if len(constants) == 1 else None


def _rounded(r: Rewriter, v: Value, low: DType) -> Value | None:
    """The constant `v` in type `low`; None if a finite element becomes infinite."""
    array = r.array(v)
    assert array is not None
    with np.errstate(over="ignore"):
        rounded = array.astype(low.numpy)
    infinite = np.isinf(rounded.astype(np.float32)) & np.isfinite(array)
    return None if infinite.any() else r.constant(rounded, v.name)
