"""ONNX's activation functions."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from tilesmith.frontend.common.slots import Result
from tilesmith.frontend.onnx.node import OnnxNode
from tilesmith.frontend.onnx.registry import onnx_op, same_operator
from tilesmith.ir.dtypes import f64
from tilesmith.ops import activation as act
from tilesmith.ops import elementwise as ew
from tilesmith.ops import norm, shape
from tilesmith.ops.base import Op

_PLAIN: tuple[tuple[str, int, Callable[[], Op]], ...] = (
    ("Relu", 1, act.Relu),
    ("Sigmoid", 1, act.Sigmoid),
    ("Softplus", 1, act.Softplus),
    ("Softsign", 1, act.Softsign),
    ("HardSwish", 14, act.HardSwish),
    ("Mish", 18, act.Mish),
)
_WITH_ALPHA: tuple[tuple[str, int, Callable[[float], Op], float], ...] = (
    ("LeakyRelu", 1, act.LeakyRelu, 0.01),
    ("ThresholdedRelu", 10, act.ThresholdedRelu, 1.0),
    ("Elu", 1, act.Elu, 1.0),
)
"""ONNX operator, first opset, our operator, and the default of attribute alpha."""


def _with_alpha(n: OnnxNode, make: Callable[[float], Op], default: float) -> Result:
    return n.add(make(n.attr_float("alpha", default)), n.input(0))


for _name, _since, _make in _PLAIN:
    same_operator(_make, _name, since=_since)
for _name, _since, _of, _default in _WITH_ALPHA:
    onnx_op(_name, since=_since)(partial(_with_alpha, make=_of, default=_default))


@onnx_op("Celu", since=12)
def celu(n: OnnxNode) -> Result:
    alpha = n.attr_float("alpha", 1.0)
    if alpha == 0.0:
        n.bad("attribute 'alpha': expected a number other than 0")
    return n.add(act.Celu(alpha), n.input(0))


@onnx_op("Selu", since=1)
def selu(n: OnnxNode) -> Result:
    defaults = (1.67326319217681884765625, 1.05070102214813232421875)
    if n.version < 6:
        defaults = (1.6732, 1.0507)
    alpha, gamma = map(n.attr_float, ("alpha", "gamma"), defaults)
    return n.add(act.Selu(alpha, gamma), n.input(0))


@onnx_op("HardSigmoid", since=1)
def hard_sigmoid(n: OnnxNode) -> Result:
    return n.add(act.HardSigmoid(n.attr_float("alpha", 0.2), n.attr_float("beta", 0.5)), n.input(0))


@onnx_op("Shrink", since=9)
def shrink(n: OnnxNode) -> Result:
    x, op = n.input(0), act.Shrink(n.attr_float("bias", 0.0), n.attr_float("lambd", 0.5))
    # The bias may be a fraction.  So for integers, the f64 result is truncated, not the bias.
    if x.dtype.is_int:
        return n.add(op, x.cast(f64)).cast(x.dtype)
    return n.add(op, x)


@onnx_op("PRelu", since=7)
def prelu(n: OnnxNode) -> Result:
    x, slope = n.input(0), n.input(1)
    y = n.add(act.PRelu(), x, slope)
    if y.type != x.type:
        n.bad(f"slope: expected a shape that broadcasts to {x.type}, found {slope.type}")
    return y


@onnx_op("Gelu", since=20)
def gelu(n: OnnxNode) -> Result:
    return n.add(act.Gelu(n.attr_string("approximate", "none", among=("none", "tanh"))), n.input(0))


@onnx_op("Swish", since=24)
def swish(n: OnnxNode) -> Result:
    return n.add(act.Silu(n.attr_float("alpha", 1.0)), n.input(0))


@onnx_op("Softmax", "LogSoftmax", "Hardmax", since=13)
def softmax(n: OnnxNode) -> Result:
    x = n.input(0)
    op = _SOFTMAX[n.op_type](n.axis(n.attr_int("axis", -1), x.type.rank))
    return n.add(ew.Identity() if x.type.is_empty else op, x)


@onnx_op("Softmax", "LogSoftmax", "Hardmax", since=1, until=12)
def softmax_flattened(n: OnnxNode) -> Result:
    """Softmax before opset 13, which treats all axes from `axis` on as one."""
    x = n.input(0)
    axis = n.axis(n.attr_int("axis", 1), x.type.rank)
    if x.type.is_empty:
        return n.add(ew.Identity(), x)
    if axis == x.type.rank - 1:
        return n.add(_SOFTMAX[n.op_type](axis), x)
    y = n.add(_SOFTMAX[n.op_type](1), n.add(shape.Flatten(axis), x))
    return y.reshape(*x.type.shape)


_SOFTMAX = {"Softmax": norm.Softmax, "LogSoftmax": norm.LogSoftmax, "Hardmax": norm.Hardmax}
