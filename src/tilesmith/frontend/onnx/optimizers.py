"""The optimisers of ai.onnx.preview.training: one step for any number of tensors.

Inputs are the learning rate R, the number T of earlier steps, then each kind of operand (tensors X,
gradients G, states) for all tensors.  Outputs are the new tensors and states in the same order.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from tilesmith.frontend.common.slots import Result
from tilesmith.frontend.onnx.node import OnnxNode
from tilesmith.frontend.onnx.registry import onnx_op
from tilesmith.graph.nodes import Value
from tilesmith.ir.dtypes import i64
from tilesmith.ops.functions import sqrt, where

_DOMAIN = "ai.onnx.preview.training"

Step = Callable[[OnnxNode, Value, Value, tuple[Value, ...]], tuple[Value, ...]]
"""Maps the rate, the number of steps and one tensor's operands to the new tensor and states."""


def _regularised(n: OnnxNode, x: Value, gradient: Value) -> Value:
    return x * n.attr_float("norm_coefficient", 0.0) + gradient


def _adagrad(
    n: OnnxNode, rate: Value, steps: Value, operands: tuple[Value, ...]
) -> tuple[Value, ...]:
    x, gradient, squares = operands
    rate = rate / (steps.cast(rate.dtype) * n.attr_float("decay_factor", 0.0) + 1.0)
    g = _regularised(n, x, gradient)
    squares = squares + g * g
    return x - g / (sqrt(squares) + n.attr_float("epsilon", 0.0)) * rate, squares


def _adam(n: OnnxNode, rate: Value, steps: Value, operands: tuple[Value, ...]) -> tuple[Value, ...]:
    x, gradient, mean, squares = operands
    alpha, beta = n.attr_float("alpha", 0.9), n.attr_float("beta", 0.999)
    g = _regularised(n, x, gradient)
    mean = mean * alpha + g * (1 - alpha)
    squares = squares * beta + g * g * (1 - beta)
    count = steps.cast(rate.dtype)
    corrected = rate * sqrt(1.0 - beta**count) / (1.0 - alpha**count)
    rate = where(steps > 0, corrected, rate)
    y = x - mean / (sqrt(squares) + n.attr_float("epsilon", 0.0)) * rate
    return y * (1 - n.attr_float("norm_coefficient_post", 0.0)), mean, squares


def _momentum(
    n: OnnxNode, rate: Value, steps: Value, operands: tuple[Value, ...]
) -> tuple[Value, ...]:
    x, gradient, velocity = operands
    alpha, beta = n.attr_float("alpha"), n.attr_float("beta")
    g = _regularised(n, x, gradient)
    weight = where(steps > 0, beta, n.const(1.0, x.dtype))
    velocity = velocity * alpha + g * weight
    mode = n.attr_string("mode", among=("standard", "nesterov"))
    direction = velocity if mode == "standard" else g + velocity * alpha
    return x - direction * rate, velocity


def _optimise(n: OnnxNode, step: Step, kinds: int) -> Result:
    rate, steps, *operands = n.inputs
    count = len(operands) // kinds
    if not count or len(operands) != kinds * count:
        n.bad(f"expected {kinds} operands for each tensor, found {len(operands)} in all")
    rate, steps = n.reshape(rate, ()), n.reshape(steps, ()).cast(i64)
    results = [step(n, rate, steps, tuple(operands[i::count])) for i in range(count)]
    return tuple(v for kind in zip(*results, strict=True) for v in kind)


for _name, _step, _kinds in (
    ("Adagrad", _adagrad, 3),
    ("Adam", _adam, 4),
    ("Momentum", _momentum, 3),
):
    onnx_op(_name, domain=_DOMAIN)(partial(_optimise, step=_step, kinds=_kinds))
