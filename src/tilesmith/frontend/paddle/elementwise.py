"""Paddle's elementwise operators and activation functions."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from tilesmith.frontend.common.arithmetic import expm1, floor_quotient, logarithm, rounded_away
from tilesmith.frontend.common.networks import LayerNode
from tilesmith.frontend.common.slots import Result
from tilesmith.frontend.paddle.registry import dtype_of, paddle_op, same_operator, tensors
from tilesmith.graph.nodes import Value
from tilesmith.ops import activation as act
from tilesmith.ops import elementwise as ew
from tilesmith.ops import functions as fn

_SAME: dict[str, Any] = {
    "abs": ew.Abs,
    "acos": ew.Acos,
    "acosh": ew.Acosh,
    "asin": ew.Asin,
    "asinh": ew.Asinh,
    "assign": ew.Identity,
    "atan": ew.Atan,
    "atanh": ew.Atanh,
    "ceil": ew.Ceil,
    "cos": ew.Cos,
    "cosh": ew.Cosh,
    "data": ew.Identity,
    "erf": ew.Erf,
    "exp": ew.Exp,
    "floor": ew.Floor,
    "isnan": ew.IsNan,
    "isnan_v2": ew.IsNan,
    "log": ew.Log,
    "log1p": ew.Log1p,
    "mish": act.Mish,
    "logical_not": ew.LogicalNot,
    "reciprocal": ew.Reciprocal,
    "relu": act.Relu,
    "rsqrt": ew.Rsqrt,
    "share_data_": ew.Identity,
    "sigmoid": act.Sigmoid,
    "sign": ew.Sign,
    "silu": act.Silu,
    "sin": ew.Sin,
    "sinh": ew.Sinh,
    "softsign": act.Softsign,
    "sqrt": ew.Sqrt,
    "swish": act.Silu,
    "tan": ew.Tan,
    "tanh": ew.Tanh,
    "trunc": ew.Trunc,
}

for _name, _make in _SAME.items():
    same_operator(_make, _name)
same_operator(lambda: ew.Clip(0, 6), "relu6")

_FORMULAS: dict[str, Callable[[Value], Value]] = {
    "expm1": expm1,
    "logsigmoid": lambda x: -fn.apply(act.Softplus(), -x),
    "log10": partial(logarithm, base=10),
    "log2": partial(logarithm, base=2),
    "square": lambda x: x * x,
    "tanh_shrink": lambda x: x - fn.tanh(x),
}

for _name, _formula in _FORMULAS.items():
    paddle_op(_name)(lambda n, make=_formula: make(n.input()))


@paddle_op("round")
def rounded(n: LayerNode) -> Result:
    if n.attr_int("decimals", 0):
        n.unsupported("decimals other than 0")
    return rounded_away(n.input())


_PAIRS: dict[str, Any] = {
    "add": ew.Add,
    "divide": ew.Div,
    "elementwise_pow": ew.Pow,
    "maximum": ew.Max,
    "minimum": ew.Min,
    "multiply": ew.Mul,
    "remainder": ew.Mod,
    "subtract": ew.Sub,
    "fmax": ew.Max,
    "fmin": ew.Min,
    "equal": ew.Equal,
    "not_equal": ew.NotEqual,
    "greater_equal": ew.GreaterEqual,
    "greater_than": ew.Greater,
    "less_equal": ew.LessEqual,
    "less_than": ew.Less,
    "logical_and": ew.LogicalAnd,
    "logical_or": ew.LogicalOr,
    "logical_xor": ew.LogicalXor,
    "bitwise_and": ew.BitwiseAnd,
    "bitwise_or": ew.BitwiseOr,
    "bitwise_xor": ew.BitwiseXor,
}


def pair(n: LayerNode) -> tuple[Value, Value]:
    """Two operands.  Attribute `axis`, if given, says at which axis of the first operand the axes
    of the second begin.
    """
    x, y = n.input(0), n.input(1)
    axis = n.attr_int("axis", -1)
    if axis != -1 and 0 < y.type.rank < x.type.rank:
        missing = x.type.rank - axis - y.type.rank
        y = n.reshape(y, (*y.type.shape, *[1] * missing))
    return x, y


for _name, _make in _PAIRS.items():
    paddle_op(_name)(lambda n, make=_make: n.add(make(), *pair(n)))


@paddle_op("floor_divide")
def floor_divide(n: LayerNode) -> Result:
    x, y = pair(n)
    return floor_quotient(n, x, y) if x.dtype.is_int else fn.floor(x / y)


@paddle_op("add_n")
def add_n(n: LayerNode) -> Result:
    total, *others = tensors(n)
    for x in others:
        total = total + x
    return total


@paddle_op("scale")
def scale(n: LayerNode) -> Result:
    x, by, bias = n.input(), n.input(1).cast(n.input().dtype), n.attr_float("bias", 0.0)
    by = n.reshape(by, ())
    if n.attr_flag("bias_after_scale", True):
        return x * by + bias if bias else x * by
    return (x + bias) * by


@paddle_op("increment")
def increment(n: LayerNode) -> Result:
    return n.input() + n.attr_float("value", n.attr_float("step", 1.0))


@paddle_op("cast")
def cast(n: LayerNode) -> Result:
    default = dtype_of(n, "out_dtype", n.input().dtype)
    return n.input().cast(dtype_of(n, "dtype", default))


@paddle_op("pow")
def power(n: LayerNode) -> Result:
    return n.input() ** n.attr_float("y", 1.0)


@paddle_op("clip")
def clip(n: LayerNode) -> Result:
    x = n.input()
    low, high = (n.reshape(n.input(i).cast(x.dtype), ()) for i in (1, 2))
    return fn.clamp(x, low, high)


@paddle_op("where")
def where(n: LayerNode) -> Result:
    return fn.where(n.input(0), n.input(1), n.input(2))


@paddle_op("dropout")
def dropout(n: LayerNode) -> Result:
    x = n.input()
    if n.attr_string("mode", "downgrade_in_infer") == "upscale_in_train":
        return x, x
    y = x * (1 - float(n.scalar(n.input(2), "p")))
    return y, y


# Activation functions with parameters


def _activation(n: LayerNode, make: Callable[..., Any], *defaults: tuple[str, float]) -> Result:
    return n.add(make(*(n.attr_float(name, default) for name, default in defaults)), n.input())


def _selu(scale: float, alpha: float) -> act.Selu:
    return act.Selu(alpha, scale)


_PARAMETERS: dict[str, tuple[Any, ...]] = {
    "celu": (act.Celu, ("alpha", 1.0)),
    "elu": (act.Elu, ("alpha", 1.0)),
    "hard_shrink": (lambda t: act.Shrink(0.0, t), ("threshold", 0.5)),
    "hardshrink": (lambda t: act.Shrink(0.0, t), ("threshold", 0.5)),
    "hardsigmoid": (act.HardSigmoid, ("slope", 0.2), ("offset", 0.5)),
    "hardtanh": (ew.Clip, ("t_min", -1.0), ("t_max", 1.0)),
    "brelu": (ew.Clip, ("t_min", 0.0), ("t_max", 24.0)),
    "leaky_relu": (act.LeakyRelu, ("negative_slope", 0.02)),
    "selu": (_selu, ("scale", 1.0507009873554805), ("alpha", 1.6732632423543772)),
    "softshrink": (lambda t: act.Shrink(t, t), ("lambda", 0.5)),
    "thresholded_relu": (act.ThresholdedRelu, ("threshold", 1.0)),
}

for _name, (_make, *_defaults) in _PARAMETERS.items():
    paddle_op(_name)(lambda n, make=_make, of=_defaults: _activation(n, make, *of))


@paddle_op("hardswish")
def hard_swish(n: LayerNode) -> Result:
    x, numbers = n.input(), (("threshold", 6.0), ("scale", 6.0), ("offset", 3.0))
    threshold, divisor, offset = (n.attr_float(*number) for number in numbers)
    return x * fn.clip(x + offset, 0, threshold) / divisor


@paddle_op("gelu")
def gelu(n: LayerNode) -> Result:
    return n.add(act.Gelu("tanh" if n.attr_flag("approximate", False) else "none"), n.input())


@paddle_op("softplus")
def softplus(n: LayerNode) -> Result:
    x, beta, threshold = n.input(), n.attr_float("beta", 1.0), n.attr_float("threshold", 20.0)
    return fn.where(x * beta > threshold, x, n.add(act.Softplus(), x * beta) / beta)


@paddle_op("prelu")
def prelu(n: LayerNode) -> Result:
    x, slope = n.input(), n.input(1)
    mode = n.attr_string("mode", "all", among=("all", "channel", "element"))
    if mode == "channel":
        slope = n.reshape(slope, (-1, *[1] * (x.type.rank - 2)) if x.type.rank > 1 else (-1,))
    return fn.where(x > 0, x, x * slope)
