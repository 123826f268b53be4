"""Gradients of elementwise operators, from the derivatives of their expressions.

The derivative becomes nodes of ordinary operators.  So passes simplify it, and what it has in
common with the forward pass, such as exp(x), is computed once.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tilesmith.ir import expr as ir
from tilesmith.ir.derivative import derivative
from tilesmith.ir.expr import Expr, Var, post_order
from tilesmith.ir.simplify import simplify
from tilesmith.ops import elementwise as ew
from tilesmith.ops.activation import Relu, Sigmoid
from tilesmith.ops.base import GraphBuilder, Op
from tilesmith.ops.elementwise.base import Elementwise
from tilesmith.ops.functions import where
from tilesmith.support.errors import ExpressionError

from .call import Call, gradient, summed_to

_OPERATORS: dict[str, Callable[[], Op]] = {
    "neg": ew.Neg, "add": ew.Add, "sub": ew.Sub, "mul": ew.Mul, "div": ew.Div, "truncdiv": ew.Div,
    "min": ew.Min, "max": ew.Max, "floormod": ew.Mod, "truncmod": lambda: ew.Mod(fmod=True),
    "lt": ew.Less, "le": ew.LessEqual, "eq": ew.Equal, "ne": ew.NotEqual, "abs": ew.Abs,
    "pow": ew.Pow, "isnan": ew.IsNan, "isinf": ew.IsInf, "floor": ew.Floor, "ceil": ew.Ceil,
    "trunc": ew.Trunc, "round": ew.Round, "exp": ew.Exp, "log": ew.Log, "log1p": ew.Log1p,
    "sqrt": ew.Sqrt, "rsqrt": ew.Rsqrt, "erf": ew.Erf, "sin": ew.Sin, "cos": ew.Cos, "tan": ew.Tan,
    "asin": ew.Asin, "acos": ew.Acos, "atan": ew.Atan, "sinh": ew.Sinh, "cosh": ew.Cosh,
    "tanh": ew.Tanh, "asinh": ew.Asinh, "acosh": ew.Acosh, "atanh": ew.Atanh,
}  # fmt: skip
"""The operator of each operation and function on numbers."""

_OF_BOOLS: dict[str, Callable[[], Op]] = {
    "and": ew.LogicalAnd, "or": ew.LogicalOr, "xor": ew.LogicalXor, "not": ew.LogicalNot,
}  # fmt: skip


def scalar_gradient(call: Call, operand: int) -> Any:
    """The gradient of an operand of an elementwise operator; None if it is zero."""
    op, x, g = call.op, call.inputs[operand], call.cotangent
    assert isinstance(op, Elementwise)
    elements = [Var(f"x{n}", v.type.dtype) for n, v in enumerate(call.inputs)]
    slope = derivative(op.element(*elements), elements[operand])
    if slope is None:
        return None
    slope = simplify(slope)
    if isinstance(slope, ir.Const) and abs(slope.value) == 1:
        product = g if slope.value == 1 else -g
    else:
        product = g * _value(call.builder, slope, dict(zip(elements, call.inputs, strict=True)))
    return summed_to(product, x.type.shape).cast(x.type.dtype)


def _value(b: GraphBuilder, root: Expr, known: dict[Expr, Any]) -> Any:
    """An expression over `known` values, as a value of ordinary operators."""
    for node in post_order(root, known):
        inside = [known[c] for c in node.children]
        match node:
            case ir.Const():
                known[node] = b.constant(np.asarray(node.value, node.dtype.numpy))
            case ir.Select():
                known[node] = b.add(ew.Where(), *inside)
            case ir.Cast():
                known[node] = b.add(ew.Cast(node.type), *inside)
            case ir.Call(name="exp2"):
                known[node] = b.add(ew.Pow(), b.constant(np.asarray(2, node.dtype.numpy)), *inside)
            case _:
                key = node.name if isinstance(node, ir.Call) else getattr(node, "op", "")
                table = _OF_BOOLS if node.children[0].dtype.is_bool else _OPERATORS
                if key not in table:
                    raise ExpressionError(f"no operator computes {key!r} of {node}")
                known[node] = b.add(table[key](), *inside)
    return known[root]


@gradient(ew.StopGradient, ew.Sign)
def stop(call: Call) -> tuple[Any, ...]:
    """The gradient is zero."""
    return (None,)


@gradient(Relu)
def relu(call: Call) -> tuple[Any, ...]:
    """The derivative at 0 is 0, as in PyTorch."""
    return (where(call.outputs[0] > 0, call.cotangent, 0),)


@gradient(ew.Clip)
def clip(call: Call) -> tuple[Any, ...]:
    """The derivative at the limits is 1, as in PyTorch."""
    x, op = call.inputs[0], call.op
    g = call.cotangent
    if op.min is not None:
        g = where(x < op.min, 0, g)
    if op.max is not None:
        g = where(x > op.max, 0, g)
    return (g,)


@gradient(Sigmoid)
def sigmoid(call: Call) -> tuple[Any, ...]:
    """The gradient is computed from the result, because exp(-x) may overflow."""
    y = call.outputs[0]
    return (call.cotangent * y * (1 - y),)


@gradient(ew.Where)
def select(call: Call) -> tuple[Any, ...]:
    """The gradient is 0 for the operand that is not chosen, even if the cotangent is infinite."""
    c, a, b = call.inputs
    g = call.cotangent
    to_a = summed_to(where(c, g, 0), a.type.shape) if call.wanted[1] else None
    to_b = summed_to(where(c, 0, g), b.type.shape) if call.wanted[2] else None
    return None, to_a, to_b
