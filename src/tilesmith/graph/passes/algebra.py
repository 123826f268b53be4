"""Algebraic rewriting: rules that make a graph smaller or cheaper and keep its results.

Results stay equal bit for bit, except for the roundings named in `_power`.  So x + 0 is removed
only if x cannot be -0.0, and x / c becomes a product only if 1 / c is exact.  Rules are indexed by
operator.  `index_identity` examines the tensor expression instead, so it works for every operator.
`algebra_shapes` has the rules for operators that move elements.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from tilesmith.graph.nodes import Graph, Node, Value
from tilesmith.graph.passes.algebra_shapes import SHAPE_RULES, index_identity
from tilesmith.graph.passes.rewriter import Result, Rewriter, Rule
from tilesmith.ir.dtypes import DType, f8e8m0, f16
from tilesmith.ops.activation import Relu, Sigmoid
from tilesmith.ops.base import Op
from tilesmith.ops.conv import Conv, ConvTranspose
from tilesmith.ops.elementwise import (
    Abs,
    Add,
    BitwiseNot,
    Cast,
    Ceil,
    Clip,
    Div,
    Exp,
    Floor,
    LogicalNot,
    Mul,
    Neg,
    Pow,
    Reciprocal,
    Round,
    Sub,
    Trunc,
    Where,
)
from tilesmith.ops.matmul import MatMul
from tilesmith.ops.reduce import ReduceSum


def algebra(graph: Graph) -> Graph:
    """`graph` after the rules; the same object if no rule applies.  `decompose` must run before."""
    return Rewriter(graph, RULES, (index_identity,)).run()


def _fits(value: Value, node: Node) -> bool:
    """Whether `value` can replace the result of `node`: no broadcast makes the result larger."""
    return value.type == node.outputs[0].type


def _either_way(node: Node) -> tuple[tuple[Value, Value], tuple[Value, Value]]:
    a, b = node.inputs
    return (a, b), (b, a)


def _is_splat(r: Rewriter, value: Value, number: float) -> bool:
    """Whether `value` is a constant with all elements equal to `number`, sign of zero included."""
    value_of_all = r.splat(value)
    return (
        value_of_all is not None and value_of_all == number and _sign(value_of_all) == _sign(number)
    )


def _sign(x: float) -> float:
    return math.copysign(1.0, x)


# Identity elements

_NO_MINUS_ZERO: tuple[type[Op], ...] = (Conv, ConvTranspose, MatMul, ReduceSum, Exp, Abs, Sigmoid)
"""Operators whose results are never -0.0, by definition or because their sums start at +0.0."""


def _add_zero(r: Rewriter, n: Node) -> Result:
    """x + 0 -> x."""
    for x, c in _either_way(n):
        if not _fits(x, n):
            continue
        if _is_splat(r, c, -0.0):
            return x
        if _is_splat(r, c, 0.0) and (not x.dtype.is_float or r.producer(x, *_NO_MINUS_ZERO)):
            return x
    return None


def _add_negation(r: Rewriter, n: Node) -> Result:
    """x + -y -> x - y."""
    for x, y in _either_way(n):
        negation = r.producer(y, Neg)
        if negation:
            return r.add(Sub(), x, negation.inputs[0])
    return None


def _sub_zero(r: Rewriter, n: Node) -> Result:
    """x - 0 -> x."""
    x, c = n.inputs
    return x if _fits(x, n) and _is_splat(r, c, 0.0) else None


def _mul_one(r: Rewriter, n: Node) -> Result:
    """x * 1 -> x."""
    for x, c in _either_way(n):
        if _fits(x, n) and _is_splat(r, c, 1):
            return x
    return None


def _div_one(r: Rewriter, n: Node) -> Result:
    """x / 1 -> x."""
    x, c = n.inputs
    return x if _fits(x, n) and _is_splat(r, c, 1) else None


# Cheaper operators


def _div_constant(r: Rewriter, n: Node) -> Result:
    """x / c -> x * (1 / c) if 1 / c is exact: all c are powers of two with normal reciprocals."""
    x, c = n.inputs
    array = r.array(c)
    if array is None or not c.dtype.is_float or array.size == 0:
        return None
    wide = array.astype(np.float64)
    mantissa, _ = np.frexp(wide)
    reciprocal = 1.0 / np.where(wide == 0, 1.0, wide)
    narrow = reciprocal.astype(array.dtype)
    smallest = 2.0**-14 if c.dtype.bits == 16 and c.dtype.name == "f16" else 2.0**-126
    is_exact = (
        (np.abs(mantissa) == 0.5)
        & np.isfinite(narrow.astype(np.float64))
        & (np.abs(reciprocal) >= smallest)
    )
    return r.add(Mul(), x, r.constant(narrow)) if bool(is_exact.all()) else None


def _power(r: Rewriter, n: Node) -> Result:
    """x ** 1, 2, -1 -> x, x * x, 1 / x (exact); x ** 3 -> x * x * x, rounded twice (1 ULP)."""
    x, e = n.inputs
    if not x.dtype.is_float or not _fits(x, n):
        return None
    exponent = r.splat(e)
    if exponent == 1:
        return x
    if exponent == 2:
        return r.add(Mul(), x, x)
    if exponent == 3:
        return r.add(Mul(), r.add(Mul(), x, x), x)
    if exponent == -1:
        return r.add(Reciprocal(), x)
    return None


def _undo(kind: type[Op]) -> Rule:
    """f(f(x)) -> x."""

    def rule(r: Rewriter, n: Node) -> Result:
        inner = r.producer(n.inputs[0], kind)
        return inner.inputs[0] if inner else None

    return rule


def _again(r: Rewriter, n: Node) -> Result:
    """f(f(x)) -> f(x)."""
    inner = r.producer(n.inputs[0], type(n.op))
    return n.inputs[0] if inner and inner.op == n.op else None


def _clip(r: Rewriter, n: Node) -> Result:
    """clip(clip(x)) -> clip(x) with both limits, and clip(relu(x)) likewise."""
    assert isinstance(n.op, Clip)
    inner = r.producer(n.inputs[0], Clip, Relu)
    if inner is None:
        return None
    low, high = (inner.op.min, inner.op.max) if isinstance(inner.op, Clip) else (0, None)
    if low is not None and high is not None and low > high:
        return None
    new_low, new_high = n.op.min, n.op.max
    if new_low is not None and new_high is not None and new_low > new_high:
        return None
    # Clip the outer interval to the inner limits: then one clip has the effect of both.
    bounds = []
    for limit, outer, pick in ((low, new_low, max), (high, new_high, min)):
        both = [b for b in (limit, outer) if b is not None]
        bounds.append(pick(both) if both else None)
    if bounds[0] is not None and bounds[1] is not None and bounds[0] > bounds[1]:
        return None
    return r.add(Clip(bounds[0], bounds[1]), inner.inputs[0])


# Casts


def _is_exact_cast(source: DType, target: DType) -> bool:
    """Whether every value of `source` is a value of `target`, so that a cast loses nothing."""
    if source is target or source.is_bool:
        return True
    if target.is_bool or target.is_storage:
        return False
    digits = {"f16": 11, "bf16": 8, "f32": 24, "f64": 53}
    if source.is_float:
        if not target.is_float:
            return False
        return target.bits > source.bits and not (source is f8e8m0 and target is f16)
    if target.is_float:
        bits = source.bits - (source.kind == "int")
        fits_range = target.name != "f16" or bits <= 15
        return bits <= digits[target.name] and fits_range
    if source.kind == target.kind:
        return target.bits >= source.bits
    return source.kind == "uint" and target.bits > source.bits


def _cast_of_cast(r: Rewriter, n: Node) -> Result:
    """cast(cast(x)) -> cast(x) if the inner cast loses nothing."""
    assert isinstance(n.op, Cast)
    inner = r.producer(n.inputs[0], Cast)
    if inner is None or not _is_exact_cast(inner.inputs[0].dtype, inner.outputs[0].dtype):
        return None
    return r.add(Cast(n.op.to), inner.inputs[0])


# Constants that can be combined


def _integer_chain(kind: type[Op], combine: Any) -> Rule:
    """(x op c) op d -> x op (c op d) on integers, which is exact because integers wrap."""

    def rule(r: Rewriter, n: Node) -> Result:
        if n.outputs[0].dtype.is_float:
            return None
        for a, d in _either_way(n):
            inner = r.producer(a, kind) if r.is_constant(d) else None
            if inner is None or not r.is_single_use(a):
                continue
            for x, c in _either_way(inner):
                first, second = r.array(c), r.array(d)
                if first is not None and second is not None:
                    with np.errstate(over="ignore"):
                        return r.add(kind(), x, r.constant(combine(first, second)))
        return None

    return rule


def _add_after_sub(r: Rewriter, n: Node) -> Result:
    """(x - c) + d -> x + (d - c) on integers, which is exact because integers wrap."""
    for a, d in _either_way(n):
        inner = r.producer(a, Sub) if r.is_constant(d) else None
        if inner is None or not r.is_single_use(a) or a.dtype.is_float:
            continue
        first, second = r.array(inner.inputs[1]), r.array(d)
        if first is not None and second is not None:
            with np.errstate(over="ignore"):
                return r.add(Add(), inner.inputs[0], r.constant(second - first))
    return None


# Choices


def _where(r: Rewriter, n: Node) -> Result:
    """where(True, a, b) -> a, where(False, a, b) -> b, where(c, a, a) -> a, without broadcasts."""
    cond, a, b = n.inputs
    if a is b and _fits(a, n):
        return a
    known = r.splat(cond)
    if known is None:
        return None
    chosen = a if known else b
    return chosen if _fits(chosen, n) else None


def _where_not(r: Rewriter, n: Node) -> Result:
    """where(not c, a, b) -> where(c, b, a)."""
    cond, a, b = n.inputs
    inner = r.producer(cond, LogicalNot)
    return r.add(Where(), inner.inputs[0], b, a) if inner else None


_ARITHMETIC: dict[type[Op], tuple[Rule, ...]] = {
    Add: (_add_zero, _add_negation, _integer_chain(Add, np.add), _add_after_sub),
    Sub: (_sub_zero,),
    Mul: (_mul_one, _integer_chain(Mul, np.multiply)),
    Div: (_div_one, _div_constant),
    Pow: (_power,),
    Neg: (_undo(Neg),),
    LogicalNot: (_undo(LogicalNot),),
    BitwiseNot: (_undo(BitwiseNot),),
    Cast: (_cast_of_cast,),
    Clip: (_clip,),
    Where: (_where, _where_not),
    **dict.fromkeys((Abs, Relu, Floor, Ceil, Round, Trunc), (_again,)),
}

RULES: dict[type[Op], tuple[Rule, ...]] = {
    kind: (*_ARITHMETIC.get(kind, ()), *SHAPE_RULES.get(kind, ()))
    for kind in dict.fromkeys((*_ARITHMETIC, *SHAPE_RULES))
}
