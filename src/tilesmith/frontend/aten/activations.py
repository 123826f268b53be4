"""Activation functions."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from tilesmith.frontend.aten.node import AtenNode
from tilesmith.frontend.aten.promotion import Number
from tilesmith.frontend.aten.refusals import reason_of
from tilesmith.frontend.aten.registry import aten_op
from tilesmith.graph.nodes import Value
from tilesmith.ops import activation as act
from tilesmith.ops.base import Op
from tilesmith.ops.functions import clip, maximum, where


def _activation(n: AtenNode, self: Value, make: Callable[[], Op]) -> Value:
    return n.add(make(), self)


for _name, _make in {"silu": act.Silu, "mish": act.Mish, "hardswish": act.HardSwish}.items():
    aten_op(f"aten.{_name}.default")(partial(_activation, make=_make))


@aten_op("aten.relu.default")
def relu(n: AtenNode, self: Value) -> Value:
    if self.dtype.is_float:
        return n.add(act.Relu(), self)
    return maximum(self, 0)


@aten_op("aten.relu6.default")
def relu6(n: AtenNode, self: Value) -> Value:
    return hardtanh(n, self, 0, 6)


@aten_op("aten.hardtanh.default")
def hardtanh(n: AtenNode, self: Value, min_val: Number = -1, max_val: Number = 1) -> Value:
    low, high = (n.number(v, "a limit") for v in (min_val, max_val))
    return clip(self, low, high)


@aten_op("aten.sigmoid.default")
def sigmoid(n: AtenNode, self: Value) -> Value:
    return n.add(act.Sigmoid(), n.floating(self))


@aten_op("aten.hardsigmoid.default")
def hardsigmoid(n: AtenNode, self: Value) -> Value:
    return n.add(act.HardSigmoid(1 / 6, 0.5), self)


@aten_op("aten.gelu.default")
def gelu(n: AtenNode, self: Value, approximate: str = "none") -> Value:
    return n.add(act.Gelu(approximate), self)


@aten_op("aten.leaky_relu.default")
def leaky_relu(n: AtenNode, self: Value, negative_slope: Number = 0.01) -> Value:
    return n.add(act.LeakyRelu(float(n.number(negative_slope, "the slope"))), self)


@aten_op("aten.rrelu.default")
def rrelu(
    n: AtenNode, self: Value, lower: Number = 1 / 8, upper: Number = 1 / 3, training: bool = False,
    generator: object = None,
) -> Value:  # fmt: skip
    """A leaky ReLU whose slope is the mean of `lower` and `upper`.  Training is refused."""
    if training:
        n.unsupported(reason_of("aten.rrelu_with_noise.default"))
    low, high = (float(n.number(v, "a limit")) for v in (lower, upper))
    return leaky_relu(n, self, (low + high) / 2)


@aten_op("aten.rrelu_with_noise.default")
def rrelu_with_noise(
    n: AtenNode, self: Value, noise: Value, lower: Number = 1 / 8, upper: Number = 1 / 3,
    training: bool = False, generator: object = None,
) -> Value:  # fmt: skip
    return rrelu(n, self, lower, upper, training)


@aten_op("aten.rrelu_with_noise_functional.default")
def rrelu_with_noise_functional(
    n: AtenNode, self: Value, noise: Value, lower: Number = 1 / 8, upper: Number = 1 / 3,
    training: bool = False, generator: object = None,
) -> tuple[Value, Value]:  # fmt: skip
    return rrelu(n, self, lower, upper, training), noise


@aten_op("aten.rrelu_with_noise_backward.default")
def rrelu_backward(
    n: AtenNode, grad_output: Value, self: Value, noise: Value, lower: Number, upper: Number,
    training: bool, self_is_result: bool,
) -> Value:  # fmt: skip
    """The gradient of a randomised leaky ReLU.  The slope for negative elements is the mean of
    `lower` and `upper`, or in training the random slope in `noise`.
    """
    low, high = (float(n.number(v, "a limit")) for v in (lower, upper))
    if training and high - low > 1e-6:
        return grad_output * noise
    slope = n.tensor((low + high) / 2, grad_output.dtype)
    is_positive = self > 0
    return where(is_positive, grad_output, grad_output * slope)


@aten_op("aten.elu.default")
def elu(
    n: AtenNode, self: Value, alpha: Number = 1, scale: Number = 1, input_scale: Number = 1
) -> Value:
    """scale * x where x is positive, else scale * alpha * (exp(input_scale * x) - 1)."""
    a, s, i = (float(n.number(v, "a factor")) for v in (alpha, scale, input_scale))
    if i == 1:
        y = n.add(act.Elu(a), self)
    else:
        bent = n.add(act.Elu(a), self * i)
        is_positive = self > 0
        y = where(is_positive, self, bent)
    return y if s == 1 else y * s


@aten_op("aten.selu.default")
def selu(n: AtenNode, self: Value) -> Value:
    return n.add(act.Selu(), self)


@aten_op("aten.celu.default")
def celu(n: AtenNode, self: Value, alpha: Number = 1.0) -> Value:
    return n.add(act.Celu(float(n.number(alpha, "alpha"))), self)


@aten_op("aten.softplus.default")
def softplus(n: AtenNode, self: Value, beta: Number = 1, threshold: Number = 20) -> Value:
    """x where beta * x > threshold, else log(1 + exp(beta * x)) / beta."""
    b, t = (n.tensor(float(n.number(v, "a factor")), self.dtype) for v in (beta, threshold))
    scaled = self * b
    soft = n.add(act.Softplus(), scaled) / b
    return where(scaled > t, self, soft)


@aten_op("aten.prelu.default", "aten._prelu_kernel.default")
def prelu(n: AtenNode, self: Value, weight: Value) -> Value:
    if weight.type.rank == 1 and self.type.rank > 1:
        weight = n.reshape(weight, (weight.type.shape[0], *[1] * (self.type.rank - 2)))
    return n.add(act.PRelu(), self, weight)


@aten_op("aten.threshold.default")
def threshold(n: AtenNode, self: Value, threshold: Number, value: Number) -> Value:
    above = self > threshold
    return where(above, self, value)
