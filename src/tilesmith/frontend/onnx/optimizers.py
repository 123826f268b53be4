"""The optimisers of ai.onnx.preview.training: one step for any number of tensors.

Inputs are the learning rate R, the number of steps before T, then each kind of operand (tensors X,
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
"""The new tensor and states of the rate, the number of steps, and one tensor's operands."""


def _times(n: OnnxNode, x: Value, by: Value | float) -> Value:
    return x * (by if isinstance(by, Value) else n.const(by, x.dtype))


def _plus(n: OnnxNode, a: Value, b: Value | float) -> Value:
    return a + (b if isinstance(b, Value) else n.const(b, a.dtype))


def _regularised(n: OnnxNode, x: Value, gradient: Value) -> Value:
    return _plus(n, _times(n, x, n.attr_float("norm_coefficient", 0.0)), gradient)


def _mixed(n: OnnxNode, old: Value, new: Value, kept: float) -> Value:
    return _plus(n, _times(n, old, kept), _times(n, new, 1 - kept))


def _unless_first(n: OnnxNode, steps: Value, value: Value, first: Value) -> Value:
    return where(steps > 0, value, first)


def _down(n: OnnxNode, x: Value, rate: Value, direction: Value) -> Value:
    return x - _times(n, direction, rate)


def _adagrad(
    n: OnnxNode, rate: Value, steps: Value, operands: tuple[Value, ...]
) -> tuple[Value, ...]:
    x, gradient, squares = operands
    decay = _times(n, steps.cast(rate.dtype), n.attr_float("decay_factor", 0.0))
    rate = rate / _plus(n, decay, 1.0)
    g = _regularised(n, x, gradient)
    squares = _plus(n, squares, _times(n, g, g))
    size = _plus(n, sqrt(squares), n.attr_float("epsilon", 0.0))
    return _down(n, x, rate, g / size), squares


def _adam(n: OnnxNode, rate: Value, steps: Value, operands: tuple[Value, ...]) -> tuple[Value, ...]:
    x, gradient, mean, squares = operands
    alpha, beta = n.attr_float("alpha", 0.9), n.attr_float("beta", 0.999)
    g = _regularised(n, x, gradient)
    mean, squares = _mixed(n, mean, g, alpha), _mixed(n, squares, _times(n, g, g), beta)
    one, count = n.const(1.0, rate.dtype), steps.cast(rate.dtype)
    rest_alpha, rest_beta = (one - b**count for b in (alpha, beta))
    corrected = _times(n, rate, sqrt(rest_beta)) / rest_alpha
    rate = _unless_first(n, steps, corrected, rate)
    size = _plus(n, sqrt(squares), n.attr_float("epsilon", 0.0))
    y = _down(n, x, rate, mean / size)
    return _times(n, y, 1 - n.attr_float("norm_coefficient_post", 0.0)), mean, squares


def _momentum(
    n: OnnxNode, rate: Value, steps: Value, operands: tuple[Value, ...]
) -> tuple[Value, ...]:
    x, gradient, velocity = operands
    alpha, beta = n.attr_float("alpha"), n.attr_float("beta")
    g = _regularised(n, x, gradient)
    weight = _unless_first(n, steps, n.const(beta, x.dtype), n.const(1.0, x.dtype))
    velocity = _plus(n, _times(n, velocity, alpha), _times(n, g, weight))
    mode = n.attr_string("mode", among=("standard", "nesterov"))
    ahead = _plus(n, g, _times(n, velocity, alpha))
    return _down(n, x, rate, velocity if mode == "standard" else ahead), velocity


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
