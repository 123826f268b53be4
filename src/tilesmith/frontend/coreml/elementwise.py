"""Core ML's elementwise operators: arithmetic, comparisons, activation functions, casts."""

from __future__ import annotations

from collections.abc import Callable

from tilesmith.frontend.common.arithmetic import floor_quotient
from tilesmith.frontend.common.slots import Result
from tilesmith.frontend.coreml.node import MilNode
from tilesmith.frontend.coreml.registry import mil_op, same_operator
from tilesmith.graph.nodes import Value
from tilesmith.ops import activation as act
from tilesmith.ops import elementwise as ew
from tilesmith.ops import functions as fn
from tilesmith.ops import norm
from tilesmith.ops.base import Op

_UNARY: dict[str, Callable[[], Op]] = {
    "abs": ew.Abs,
    "acos": ew.Acos,
    "acosh": ew.Acosh,
    "asin": ew.Asin,
    "asinh": ew.Asinh,
    "atan": ew.Atan,
    "atanh": ew.Atanh,
    "ceil": ew.Ceil,
    "cos": ew.Cos,
    "cosh": ew.Cosh,
    "erf": ew.Erf,
    "exp": ew.Exp,
    "floor": ew.Floor,
    "identity": ew.Identity,
    "logical_not": ew.LogicalNot,
    "relu": act.Relu,
    "relu6": lambda: ew.Clip(0, 6),
    "round": ew.Round,
    "sigmoid": act.Sigmoid,
    "sign": ew.Sign,
    "silu": act.Silu,
    "sin": ew.Sin,
    "sinh": ew.Sinh,
    "softplus": act.Softplus,
    "softsign": act.Softsign,
    "sqrt": ew.Sqrt,
    "tan": ew.Tan,
    "tanh": ew.Tanh,
}

_BINARY: dict[str, Callable[[], Op]] = {
    "add": ew.Add,
    "equal": ew.Equal,
    "greater": ew.Greater,
    "greater_equal": ew.GreaterEqual,
    "less": ew.Less,
    "less_equal": ew.LessEqual,
    "logical_and": ew.LogicalAnd,
    "logical_or": ew.LogicalOr,
    "logical_xor": ew.LogicalXor,
    "maximum": ew.Max,
    "minimum": ew.Min,
    "mod": ew.Mod,
    "mul": ew.Mul,
    "not_equal": ew.NotEqual,
    "pow": ew.Pow,
    "real_div": ew.Div,
    "sub": ew.Sub,
}

for _name, _make in _UNARY.items():
    same_operator(_name, _make, "x")
for _name, _make in _BINARY.items():
    same_operator(_name, _make, "x", "y")
same_operator("select", ew.Where, "cond", "a", "b")

_FORMULAS: dict[str, Callable[[MilNode, Value], Value]] = {
    "clamped_relu": lambda n, x: fn.minimum(
        n.add(act.LeakyRelu(n.number("alpha")), x), n.number("beta")
    ),
    "clip": lambda n, x: fn.clip(x, n.number("alpha"), n.number("beta")),
    "elu": lambda n, x: n.add(act.Elu(n.number("alpha", 1.0)), x),
    "exp2": lambda n, x: fn.exp(x * 0.6931471805599453),
    "inverse": lambda n, x: fn.reciprocal(x + n.number("epsilon", 1e-4)),
    "leaky_relu": lambda n, x: n.add(act.LeakyRelu(n.number("alpha", 0.01)), x),
    "linear_activation": lambda n, x: x * n.number("alpha", 1.0) + n.number("beta", 0.0),
    "log": lambda n, x: fn.log(x + n.number("epsilon", 1e-45)),
    "prelu": lambda n, x: n.add(act.PRelu(), x, channelwise(n, "alpha", x)),
    "rsqrt": lambda n, x: fn.rsqrt(x + n.number("epsilon", 1e-12)),
    "scaled_tanh": lambda n, x: fn.tanh(x * n.number("beta", 1.0)) * n.number("alpha", 1.0),
    "sigmoid_hard": lambda n, x: n.add(
        act.HardSigmoid(n.number("alpha", 0.2), n.number("beta", 0.5)), x
    ),
    "softmax": lambda n, x: n.add(norm.Softmax(n.int("axis", -1)), x),
    "softplus_parametric": lambda n, x: (
        n.add(act.Softplus(), x * channelwise(n, "beta", x)) * channelwise(n, "alpha", x)
    ),
    "square": lambda n, x: x * x,
    "threshold": lambda n, x: fn.maximum(x, n.number("alpha")),
    "thresholded_relu": lambda n, x: fn.where(x < n.number("alpha", 1.0), 0, x),
}
"""Activation functions as formulas of the node's parameters and x."""


def _register(name: str, formula: Callable[[MilNode, Value], Value]) -> None:
    @mil_op(name)
    def convert(n: MilNode) -> Result:
        return formula(n, n.input("x"))


for _name, _formula in _FORMULAS.items():
    _register(_name, _formula)


def channelwise(n: MilNode, name: str, x: Value) -> Value:
    """An argument with a number for each channel of x [N, C, ...], reshaped to broadcast."""
    numbers = n.input(name)
    return n.reshape(numbers, (*numbers.type.shape, *[1] * (x.type.rank - 2)))


@mil_op("floor_div")
def floor_div(n: MilNode) -> Result:
    x, y = n.input("x"), n.input("y")
    return floor_quotient(n, x, y) if x.dtype.is_int else fn.floor(x / y)


@mil_op("gelu")
def gelu(n: MilNode) -> Result:
    x = n.input("x")
    mode = n.text("mode", "EXACT", ("EXACT", "TANH_APPROXIMATION", "SIGMOID_APPROXIMATION"))
    if mode == "SIGMOID_APPROXIMATION":
        return n.add(act.Silu(1.702), x)
    return n.add(act.Gelu("none" if mode == "EXACT" else "tanh"), x)


@mil_op("cast", "constexpr_cast")
def cast(n: MilNode) -> Result:
    x = n.input("source_val" if n.has("source_val") else "x")
    return x.cast(n.dtype("output_dtype" if n.has("output_dtype") else "dtype"))
